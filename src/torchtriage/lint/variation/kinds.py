"""The values that an expression has from call to call, as far as the source shows them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

MAX_KINDS = 8   # of one expression; more say nothing
NUMBERS = ("int", "float", "bool")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueKind:
    """One kind of value that an expression has, in some of the passes of a loop or in some calls."""

    type: str = ""              # tensor, int, float, bool, str, None, list, dict, function, enum; empty: unknown
    varies: bool = False        # it is another value in another pass
    values: tuple[object, ...] = ()     # those that the source names
    sizes: "tuple[ValueKind, ...] | None" = None     # of a tensor, one for each dimension
    size_varies: bool = False
    dtype: str = ""             # of a tensor or array; empty if unknown
    is_transposed: bool = False
    has_grad: bool | None = None
    item: "tuple[ValueKind, ...]" = ()       # what a loop over it yields
    parts: "tuple[tuple[ValueKind, ...], ...]" = ()      # of a tuple or list that is written out
    length_varies: bool = False
    is_carried: bool = False    # it is also made of its own value in an earlier pass
    keys_vary: bool = False

    @property
    def is_grown(self) -> bool:
        """Whether what is made of it, and more, is larger in each pass."""
        return self.is_carried or self.type == "earlier"

    @property
    def has_varying_size(self) -> bool:
        return self.size_varies or any(size.varies for size in self.sizes or ())


UNKNOWN_KIND = ValueKind()
EARLIER = ValueKind(type="earlier", varies=True)     # the value that the expression itself had in an earlier pass
TENSOR_KIND = ValueKind(type="tensor")


def kinds(found: Iterable[ValueKind]) -> tuple[ValueKind, ...]:
    """The distinct kinds; unknown if there are too many, or none. What is made of its earlier value changes."""
    distinct = tuple(dict.fromkeys(found))
    if not distinct or len(distinct) > MAX_KINDS:
        return (UNKNOWN_KIND,)
    others = tuple(each for each in distinct if each != EARLIER)
    if not others or len(others) == len(distinct):
        return distinct
    return tuple(dict.fromkeys(
        changing(each) if each.type in (*NUMBERS, "str") else replace(each, is_carried=True) for each in others
    ))


def changing(kind: ValueKind) -> ValueKind:
    return replace(kind, varies=True, values=())


def constant(kind: ValueKind) -> ValueKind:
    """The same for a use that no loop repeats with it."""
    sizes = None if kind.sizes is None else tuple(map(constant, kind.sizes))
    return replace(kind, varies=False, sizes=sizes, size_varies=False, length_varies=False, keys_vary=False)


def merged(found: Iterable[ValueKind]) -> tuple[ValueKind, ...]:
    """The items of a list that is written out: numbers and texts of one type become one kind that varies."""
    by_type: dict[object, list[ValueKind]] = {}
    for kind in found:
        by_type.setdefault((kind.type, len(kind.parts)), []).append(kind)
    result: list[ValueKind] = []
    for alike in by_type.values():
        first = alike[0]
        if first.type in (*NUMBERS, "str") and len(alike) > 1:
            values = tuple(dict.fromkeys(value for kind in alike for value in kind.values))
            result.append(replace(first, values=values, varies=len(values) > 1 or any(k.varies for k in alike)))
        elif first.parts and len(alike) > 1:
            columns = zip(*(kind.parts for kind in alike), strict=True)
            parts = tuple(merged(kind for part in column for kind in part) for column in columns)
            result.append(replace(first, parts=parts, item=()))
        else:
            result += alike
    return kinds(result)


def any_varies(found: Iterable[ValueKind]) -> bool:
    return any(each.varies for each in found)


def number_type(found: Iterable[ValueKind]) -> str:
    """The type of a result of arithmetic with these numbers; empty if one is none."""
    types = {each.type for each in found if each != EARLIER}
    if not types or not types <= set(NUMBERS):
        return ""
    return "float" if "float" in types else "int"
