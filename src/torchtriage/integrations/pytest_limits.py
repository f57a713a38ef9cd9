"""What the limit markers mean: how they are written, what counts against them, and what a test that exceeds one is told."""

import contextlib
import inspect
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torchtriage.capture.taps.trace import LOGGER_NAME
from torchtriage.diagnosis.compiles.frames import frame_key
from torchtriage.diagnosis.compiles.resume_frames import breaks_of_resume_frames
from torchtriage.errors import CommandError
from torchtriage.findings.model import Finding, Severity
from torchtriage.findings.report import Report
from torchtriage.integrations.pytest_allow import check_allow, is_allowed
from torchtriage.integrations.watch import Seen, watch
from torchtriage.recording.events import Recompile
from torchtriage.recording.recording import Process
from torchtriage.reporters import terminal
from torchtriage.text import counted

BLIND = ("TT901", "TT905")      # a tap was lost: silence is no proof then
Excess = tuple[str, list[Finding]]      # by how much, and the findings that show it


# The fields of a limit are the arguments of its marker.

@dataclass(frozen=True, slots=True)
class GraphBreakLimit:
    most: int
    allow: Sequence[str] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        _check_count("the number of graph breaks", self.most)

    def excess(self, kept: list[Finding], process: Process) -> Excess | None:
        breaks = _of_family(kept, "TT1")
        number = sum(f.evidence.num_events for f in breaks)
        places = len({str(f.raised_at or f.location) for f in breaks})
        return (f"{counted(number, 'graph break')} at {counted(places, 'place')}", breaks) if number > self.most else None


@dataclass(frozen=True, slots=True)
class RecompileLimit:
    most: int
    warmup: int = field(default=0, kw_only=True)
    allow: Sequence[str] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        _check_count("the number of recompiles", self.most)
        _check_count("warmup", self.warmup)

    def excess(self, kept: list[Finding], process: Process) -> Excess | None:
        """A frame at its recompile limit exceeds any number: only the refusal ended its recompiles."""
        counts = [(f, f.evidence.num_events - sum(map(self._is_warmup, f.evidence.compile_ids))) for f in _of_family(kept, "TT2")]
        counts += [(f, 1) for f in self._of_resume_frames(kept, process)]
        number = sum(count for _, count in counts)
        at_limit = _of_family(kept, "TT301")
        if number <= self.most and not at_limit:
            return None
        text = counted(number, "recompile") + (" after the warm-up" if self.warmup else "")
        refused = f", and {counted(len(at_limit), 'frame')} at the recompile limit of torch" if at_limit else ""
        return text + refused, [*at_limit, *(f for f, count in counts if count)]

    def _is_warmup(self, compile_id: str | None) -> bool:
        """Torch numbers the compiles of a frame from 0: `3/1` is the second compile of frame 3."""
        number = (compile_id or "").rpartition("/")[2]
        return number.isdigit() and int(number) < self.warmup

    def _of_resume_frames(self, kept: list[Finding], process: Process) -> Iterator[Finding]:
        """Recompiles of the frames that a graph break made have no finding of their own: they are told with the break."""
        breaks = {(place.path, place.line): f for f in _of_family(kept, "TT1") for place in [f.raised_at or f.location]}
        made_by = breaks_of_resume_frames(process)
        for event in process.of(Recompile):
            found = [breaks[key[:2]] for key in made_by.get(frame_key(event), ()) if key[:2] in breaks]
            if found and not self._is_warmup(event.compile_id):
                yield found[0]


@dataclass(frozen=True, slots=True)
class FindingLimit:
    severity: str
    allow: Sequence[str] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        if self.severity not in list(Severity.__members__):
            raise CommandError(f"the severity must be {', '.join(Severity.__members__)}, got {self.severity!r}")

    def excess(self, kept: list[Finding], process: Process) -> Excess | None:
        found = [f for f in kept if f.severity <= Severity[self.severity]]
        return (f"{counted(len(found), 'finding')} at {self.severity} or worse", found) if found else None


Limit = GraphBreakLimit | RecompileLimit | FindingLimit
Written = tuple[str, Limit]     # the marker as it stands in the source
_LIMITS: dict[str, type[Limit]] = {
    "limit_graph_breaks": GraphBreakLimit, "limit_recompiles": RecompileLimit, "limit_findings": FindingLimit,
}
_EXAMPLES = {
    "limit_graph_breaks": "limit_graph_breaks(0, allow=['TT101'])", "limit_recompiles": "limit_recompiles(1, warmup=2, allow=['TT204'])",
    "limit_findings": "limit_findings('P2', allow=['TT306'])",
}


def limit_of(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Written:
    """The limit that a marker sets; CommandError says what is wrong with it."""
    words = [*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())]
    text = f"{name}({', '.join(words)})"
    kind = _LIMITS[name]
    try:
        inspect.signature(kind).bind(*args, **kwargs)
        limit = kind(*args, **kwargs)
        check_allow(limit.allow)
    except (CommandError, TypeError) as error:
        raise CommandError(f"{text}: {error}; write it like {_EXAMPLES[name]}") from None
    return text, limit


class Gate:
    """A watched test: its limits, its watch, and by what it exceeded them. Dynamo is reset before the fixtures and at the end."""

    def __init__(self, limits: Sequence[Written], root: str) -> None:
        self._limits = limits
        self._watch = watch(roots=[root])
        self.excess = ""
        _reset_dynamo()

    @property
    def seen(self) -> Seen:
        return self._watch.seen

    @contextlib.contextmanager
    def judging(self) -> Iterator[None]:
        """Watch the block and judge what was seen, whether it raises or not."""
        try:
            with self._watch, _without_captured_trace():
                yield
        finally:
            self.excess = judge(self._limits, self.seen.recording.processes[0], self.seen.report) if self._limits else ""

    def close(self) -> None:
        _reset_dynamo()


def judge(limits: Sequence[Written], process: Process, report: Report) -> str:
    """What a test that exceeds its limits is told: each limit in a line, then the findings; empty if it keeps them."""
    lines: list[str] = []
    shown: list[Finding] = []
    for text, limit in limits:
        kept = [f for f in report.findings if not is_allowed(f, limit.allow)]
        blind = [f for f in kept if f.code in BLIND]
        excess = ("cannot be checked, the watch lost sight of torch.compile", blind) if blind else limit.excess(kept, process)
        if excess is not None:
            lines.append(f"{text}: {excess[0]}")
            shown += excess[1]
    if not lines:
        return ""
    findings = [f for f in report.findings if f in shown]
    width = min(shutil.get_terminal_size((100, 40)).columns, 160)
    return "\n".join([*lines, "", terminal.render(replace(report, findings=findings), width=width)]).rstrip()


def _of_family(findings: list[Finding], prefix: str) -> list[Finding]:
    return [f for f in findings if f.code.startswith(prefix)]


def _check_count(what: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise CommandError(f"{what} must be 0 or more, got {value!r}")


@contextlib.contextmanager
def _without_captured_trace() -> Iterator[None]:
    """Pytest 9.2 captures also what does not propagate: hundreds of trace records without a text would follow the finding."""
    logger = logging.getLogger(LOGGER_NAME)
    captured = [handler for handler in logger.handlers if type(handler).__module__ == "_pytest.logging"]
    for handler in captured:
        logger.removeHandler(handler)
    try:
        yield
    finally:
        for handler in captured:
            logger.addHandler(handler)


def _reset_dynamo() -> None:
    """What other tests compiled neither hides a compile of this one nor makes it a recompile."""
    try:
        import torch._dynamo
    except ImportError as error:
        raise CommandError(f"a limit marker and the fixture triage need torch, got {error}; install it, or skip the test") from error
    torch._dynamo.reset()
