"""`# torchtriage: ignore[TT101] reason` on a line takes the findings of these codes at that line out of the report."""

import re
from dataclasses import dataclass

_COMMENT = re.compile(r"#\s*torchtriage:\s*ignore\b(?:\[([^\]]*)\])?\s*(.*)", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    codes: tuple[str, ...]
    reason: str

    def covers(self, code: str) -> bool:
        return code in self.codes


def suppression_in(line: str) -> Suppression | None:
    """The suppression that a source line carries; one without a code accepts nothing, and is named as unused."""
    match = _COMMENT.search(line)
    if match is None:
        return None
    codes = tuple(code.strip().upper() for code in (match[1] or "").split(",") if code.strip())
    return Suppression(codes=codes, reason=match[2].strip())
