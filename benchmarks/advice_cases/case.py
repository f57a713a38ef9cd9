"""A sick program with the advice that it needs, and its cured twins."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A replacement in the source of a program; `old` occurs exactly once in it."""

    old: str
    new: str


@dataclass(frozen=True, kw_only=True)
class Option:
    """One way to cure a program.

    says: a pattern that a fix matches if it offers this option.
    same_numbers: whether the cured program prints the same result.
    leaves: codes of findings that may remain on the cured program.
    is_as_printed: whether the edits do what the printed words say, so that those words count as tried.
    """

    says: str
    edits: tuple[Edit, ...]
    same_numbers: bool = True
    leaves: tuple[str, ...] = ()
    is_as_printed: bool = True


@dataclass(frozen=True, kw_only=True)
class Case:
    """A program as users write it, and what an expert would say about it.

    codes: accepted codes of the first finding; a case without codes is a control that has no finding at P3 or worse.
    line: the text of the accepted source line, or of several.
    says: a pattern that the title, the cause or the fix of the first finding matches.
    never: a pattern of advice that was tried on this program and does not cure it.
    options: cures; the first is the one that the fix names first, the others may follow it.
    """

    name: str
    family: str
    cause: str
    program: str
    codes: tuple[str, ...]
    line: str | tuple[str, ...] = ()
    says: str = ""
    never: str = ""
    options: tuple[Option, ...] = ()

    @property
    def is_control(self) -> bool:
        return not self.codes

    @property
    def source(self) -> str:
        return self.program.lstrip("\n")

    @property
    def lines(self) -> tuple[int, ...]:
        """The numbers of the accepted lines."""
        texts = (self.line,) if isinstance(self.line, str) else self.line
        return tuple(self._number(text) for text in texts)

    def _number(self, text: str) -> int:
        numbers = [n for n, line in enumerate(self.source.splitlines(), 1) if line.strip() == text]
        if len(numbers) != 1:
            raise ValueError(f"{self.name}: {text!r} is on {len(numbers)} lines, not on one")
        return numbers[0]

    def twin(self, option: Option) -> str:
        """The source of the program with the edits of an option."""
        source = self.source
        for edit in option.edits:
            if source.count(edit.old) != 1:
                raise ValueError(f"{self.name}: {edit.old!r} occurs {source.count(edit.old)} times, not once")
            source = source.replace(edit.old, edit.new)
        return source
