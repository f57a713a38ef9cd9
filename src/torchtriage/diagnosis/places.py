"""Whose line it is: from torch's place and stack to the owner and the user's nearest line."""

import re
from dataclasses import dataclass

from torchtriage.findings.fingerprint import without_comment
from torchtriage.findings.model import UNKNOWN_OWNER, YOU, Location, Owner, OwnerKind, SourceLine
from torchtriage.recording.events import Placed, StackEntry
from torchtriage.recording.facts import ProgramFacts
from torchtriage.recording.recording import Process
from torchtriage.recording.sources import CONTEXT
from torchtriage.text import original_function

_INSTALLED = re.compile(r"/(?:site|dist)-packages/([^/]+)")
_STDLIB = re.compile(r"/lib/python3\.\d+/|^<frozen |/lib/python3\d+\.zip/")
_GENERATED = re.compile(r"__\w+__$")
_TORCH = Owner(kind=OwnerKind.TORCH)
_PYTHON = Owner(kind=OwnerKind.PYTHON)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a finding is shown, where torch raised it, who can fix it, and the text of the shown line."""

    location: Location
    raised_at: Location | None
    owner: Owner
    code: str


def owner_of(path: str, program: ProgramFacts) -> Owner:
    """Torch, an installed library, python, you, or a library outside the places that are yours."""
    path = path.replace("\\", "/")
    if path in ("", "unknown"):
        return UNKNOWN_OWNER
    installed = _INSTALLED.search(path)
    if (installed and installed[1] == "torch") or _below(path, program.torch_dir):
        return _TORCH
    if installed:
        top = installed[1].removesuffix(".py")
        name, version = program.libraries.get(top, (top, ""))
        return Owner(kind=OwnerKind.LIBRARY, name=name, version=version)
    if _STDLIB.search(path):
        return _PYTHON
    yours = program.your_roots
    if not yours or path.startswith("<") or "/ipykernel_" in path or any(_below(path, root) for root in yours):
        return YOU
    return Owner(kind=OwnerKind.LIBRARY, name=path.rpartition("/")[0].rpartition("/")[2] or path)


def owner_at(entry: StackEntry, program: ProgramFacts) -> Owner:
    """The owner of a line; `__init__` in `<string>` is what a dataclass or namedtuple wrote, and stands for its caller."""
    generated = entry.path == "<string>" and _GENERATED.match(entry.function)
    return _PYTHON if generated else owner_of(entry.path, program)


def _below(path: str, root: str) -> bool:
    return bool(root) and path.startswith(root.replace("\\", "/").rstrip("/") + "/")


def locate(process: Process, event: Placed) -> Place:
    """The user's nearest line for an event; the event's own place if no line of the stack is the user's."""
    own = StackEntry(path=event.path, line=event.line or 0, function=event.function)
    entries = list(event.stack)
    if not entries or (entries[-1].path, entries[-1].line) != (own.path, own.line):
        entries.append(own)
    owners = [owner_at(entry, process.program) for entry in entries]
    # Torch and the standard library only carry out what their caller asked, so the caller owns the problem.
    owner = next((o for o in reversed(owners) if o.kind not in (OwnerKind.TORCH, OwnerKind.PYTHON)), owners[-1])
    shown = next((e for e, o in zip(reversed(entries), reversed(owners), strict=True) if o == YOU), own)
    raised_at = None if shown.path == own.path and shown.line == own.line else _location(process, own)
    return Place(location=_location(process, shown), raised_at=raised_at, owner=owner, code=code_at(process, shown))


def _location(process: Process, entry: StackEntry) -> Location:
    return Location(path=entry.path, line=entry.line or None, function=qualified_name(process, entry) or None)


def qualified_name(process: Process, entry: StackEntry) -> str:
    """`Policy.forward` where the recording kept the source, else the bare name; resume functions get their origin's name."""
    name = original_function(entry.function)
    source = process.sources.get((entry.path, entry.line))
    if source and source.qualname.rsplit(".", 1)[-1] == name:
        return source.qualname
    return name


def is_wrapped(event: Placed) -> bool:
    """Torch compiles its own modules, and modules with hooks, through a function of this file."""
    return event.path.endswith("_dynamo/external_utils.py")


def frame_name(place: Place, event: Placed, target: str = "") -> str:
    """What to call a compiled frame: its own name, even where the place shown is the user's line above it."""
    if is_wrapped(event):
        file = place.location.path.rpartition("/")[2]
        return target or ("the compiled module" if place.raised_at is None else f"the module called at {file}:{place.location.line}")
    own = place.raised_at or place.location
    return own.function or event.function or "a frame"


def code_at(process: Process, entry: StackEntry) -> str:
    """The source line at a place, without its comment."""
    source = process.sources.get((entry.path, entry.line))
    return without_comment(source.line(entry.line) if source else entry.code).strip()


def source_lines(process: Process, place: Location) -> tuple[SourceLine, ...]:
    """The few lines around a place as the recording kept them."""
    line = place.line or 0
    source = process.sources.get((place.path, line))
    if source is None:
        return ()
    shown = []
    for number, text in enumerate(source.lines, start=source.first_line):
        if abs(number - line) <= CONTEXT:
            shown.append(SourceLine(number=number, text=text.rstrip(), is_place=number == line))
    return tuple(shown)
