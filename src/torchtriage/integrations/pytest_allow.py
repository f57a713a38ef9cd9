"""The `allow=[...]` argument of a limit marker, which excludes findings from the limit."""

import difflib
import re
from collections.abc import Sequence

from torchtriage.errors import CommandError
from torchtriage.findings import catalogue
from torchtriage.findings.model import Finding, Location

_CODE = re.compile(r"TT\d{1,3}", re.I)
_FINGERPRINT = re.compile(r"[0-9a-f]{16}")
_PLACE = re.compile(r"[^:]+\.py(::[\w.]+)?|[^:]*[^:/]/")
TAKES = ("a code ('TT101'), a prefix of codes ('TT1'), a slug ('print-in-graph'), a fingerprint (16 hex digits),"
         " a file ('model.py'), a function ('model.py::Policy.forward') or a folder ('transformers/')")


def check_allow(allow: object) -> None:
    """Reject an item that no finding can match: otherwise it would be noticed only when the test fails."""
    if not isinstance(allow, (list, tuple, set, frozenset)):
        raise CommandError(f"allow must be a list, got {allow!r}")
    for item in allow:
        if not isinstance(item, str):
            raise CommandError(f"allow takes {TAKES}, got {item!r}")
        if not _can_match(item):
            slugs = [catalogue.rule(code).slug for code in catalogue.codes()]
            near = difflib.get_close_matches(item, [*catalogue.codes(), *slugs], n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {TAKES}"
            raise CommandError(f"no rule or place {item!r} for allow, {hint}")


def _can_match(item: str) -> bool:
    if _FINGERPRINT.fullmatch(item) or _PLACE.fullmatch(item):
        return True
    codes = catalogue.codes()
    if _CODE.fullmatch(item):
        return any(code.startswith(item.upper()) for code in codes)
    return any(catalogue.rule(code).slug == item for code in codes)


def is_allowed(finding: Finding, allow: Sequence[str]) -> bool:
    return any(_matches(finding, item) for item in allow)


def _matches(finding: Finding, item: str) -> bool:
    if item in (finding.slug, finding.fingerprint):
        return True
    if _CODE.fullmatch(item):
        return finding.code.startswith(item.upper())
    return any(place is not None and _is_at(place, item) for place in (finding.location, finding.raised_at))


def _is_at(place: Location, item: str) -> bool:
    """Whether the place is in this file, function or folder; a path matches by its last parts."""
    path = "/" + place.path.replace("\\", "/")
    file, _, function = item.partition("::")
    if file.endswith("/"):
        folder = file.strip("/")
        return bool(folder) and f"/{folder}/" in path
    is_in_file = path.endswith(f"/{file.lstrip('/')}")
    return is_in_file and (not function or f".{place.function}".endswith(f".{function}"))
