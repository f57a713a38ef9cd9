"""A program, and its variants: each one is a small edit of it."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

Edit = tuple[str, str]
COMPILED: Edit = ("forward = model\n", 'forward = torch.compile(model, backend="aot_eager")\n')


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One edited program. A healthy one has no codes; a fault that no rule can know yet has the code `none`."""

    program: str
    name: str
    source: str
    codes: tuple[str, ...]  # the rules that name the cause
    step: int  # the step in which the fault takes effect for the first time
    is_contract: bool  # what must hold in any training is broken: it can be known exactly

    @property
    def is_healthy(self) -> bool:
        return not self.codes

    @property
    def is_held_out(self) -> bool:
        """One third, by a checksum of the name, so that nobody chooses it."""
        return zlib.crc32(f"{self.program}/{self.name}".encode()) % 3 == 0


class Program:
    """The source of a healthy training, and what can be edited in it."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self._source = name, source
        self._variants: list[Variant] = []
        self.healthy("as it is")

    def healthy(self, name: str, *edits: Edit) -> None:
        self._add(name, edits, (), 0, False)

    def fault(self, name: str, codes: str, *edits: Edit, step: int = 1, contract: bool = False) -> None:
        self._add(name, edits, tuple(codes.split()), step, contract)

    def variants(self) -> Iterator[Variant]:
        yield from self._variants

    def _add(self, name: str, edits: tuple[Edit, ...], codes: tuple[str, ...], step: int, is_contract: bool) -> None:
        source = self._source
        for old, new in edits:
            if source.count(old) != 1:
                raise ValueError(f"{self.name}/{name}: {old!r} is {source.count(old)} times in the program, not once")
            source = source.replace(old, new)
        self._variants.append(
            Variant(
                program=self.name,
                name=name,
                source=source,
                codes=codes,
                step=step,
                is_contract=is_contract,
            )
        )
