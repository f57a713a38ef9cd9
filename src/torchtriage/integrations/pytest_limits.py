"""The limit markers: their arguments, the events that count against them, the message of a failed test."""

import contextlib
import inspect
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torchtriage.diagnosis.compiles.frames import frame_key
from torchtriage.diagnosis.compiles.resume_frames import breaks_of_resume_frames
from torchtriage.diagnosis.recompiles.finding import recompile_findings
from torchtriage.errors import CommandError
from torchtriage.findings.model import Finding, Severity
from torchtriage.findings.report import Report
from torchtriage.integrations.pytest_allow import check_allow, is_allowed
from torchtriage.integrations.watch import Seen, watch
from torchtriage.recording.events import Recompile
from torchtriage.recording.recording import Process
from torchtriage.reporters import terminal
from torchtriage.text import counted

BLIND = ("TT901", "TT905")      # a tap was lost, so missing events prove nothing
Excess = tuple[str, list[Finding]]      # the amount, and the findings that make it up


# The fields of a limit are the arguments of its marker. `excess` gets the findings that are not allowed.

@dataclass(frozen=True, slots=True)
class GraphBreakLimit:
    most: int
    allow: Sequence[str] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        _check_count("the number of graph breaks", self.most)

    def excess(self, findings: list[Finding], process: Process) -> Excess | None:
        breaks = _with_prefix(findings, "TT1")
        number = sum(f.evidence.num_events for f in breaks)
        if number <= self.most:
            return None
        places = len({str(f.raised_at or f.location) for f in breaks})
        return f"{counted(number, 'graph break')} at {counted(places, 'place')}", breaks


@dataclass(frozen=True, slots=True)
class RecompileLimit:
    most: int
    warmup: int = field(default=0, kw_only=True)
    allow: Sequence[str] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        _check_count("the number of recompiles", self.most)
        _check_count("warmup", self.warmup)

    def excess(self, findings: list[Finding], process: Process) -> Excess | None:
        """A frame at torch's recompile limit exceeds any number: only that limit ended its recompiles."""
        counts = []
        for f in _with_prefix(findings, "TT2"):
            num_warmup = sum(map(self._is_warmup, f.evidence.compile_ids))
            counts.append((f, f.evidence.num_events - num_warmup))
        counts += [(f, 1) for f in self._breaks_with_recompiles(findings, process)]
        number = sum(count for _, count in counts)
        at_limit = _with_prefix(findings, "TT301")
        if number <= self.most and not at_limit:
            return None
        text = counted(number, "recompile")
        if self.warmup:
            text += " after the warm-up"
        if at_limit:
            text += f", and {counted(len(at_limit), 'frame')} at torch's recompile limit"
        return text, [*at_limit, *(f for f, count in counts if count)]

    def _is_warmup(self, compile_id: str | None) -> bool:
        """Torch numbers the compiles of a frame from 0: `3/1` is the second compile of frame 3."""
        number = (compile_id or "").rpartition("/")[2]
        return number.isdigit() and int(number) < self.warmup

    def _breaks_with_recompiles(self, findings: list[Finding], process: Process) -> Iterator[Finding]:
        """The finding of the graph break for each recompile of a frame that the break split off, if it has none."""
        breaks = {}
        for f in _with_prefix(findings, "TT1"):
            place = f.raised_at or f.location
            breaks[place.path, place.line] = f
        breaks_by_frame = breaks_of_resume_frames(process)
        grouped = {id(event) for group, _ in recompile_findings(process) for event in group.recompiles}
        for event in process.of(Recompile):
            if id(event) in grouped:
                continue
            causes = [breaks[key[:2]] for key in breaks_by_frame.get(frame_key(event), ()) if key[:2] in breaks]
            if causes and not self._is_warmup(event.compile_id):
                yield causes[0]


@dataclass(frozen=True, slots=True)
class FindingLimit:
    severity: str
    allow: Sequence[str] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        if self.severity not in list(Severity.__members__):
            raise CommandError(f"the severity must be {', '.join(Severity.__members__)}, got {self.severity!r}")

    def excess(self, findings: list[Finding], process: Process) -> Excess | None:
        severe = [f for f in findings if f.severity <= Severity[self.severity]]
        return (f"{counted(len(severe), 'finding')} at {self.severity} or worse", severe) if severe else None


Limit = GraphBreakLimit | RecompileLimit | FindingLimit
MarkedLimit = tuple[str, Limit]     # the marker as in the source, and its limit
_LIMITS: dict[str, type[Limit]] = {
    "limit_graph_breaks": GraphBreakLimit,
    "limit_recompiles": RecompileLimit,
    "limit_findings": FindingLimit,
}
_EXAMPLES = {
    "limit_graph_breaks": "limit_graph_breaks(0, allow=['TT101'])",
    "limit_recompiles": "limit_recompiles(1, warmup=2, allow=['TT204'])",
    "limit_findings": "limit_findings('P2', allow=['TT306'])",
}


def limit_of(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> MarkedLimit:
    """The limit that a marker sets; raises CommandError for a wrong one."""
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
    """Watches a test and checks its limits; `excess` is the message if it exceeds one.

    Dynamo is reset before the fixtures are set up and after the test.
    """

    def __init__(self, limits: Sequence[MarkedLimit], root: str) -> None:
        self._limits = limits
        self._watch = watch(roots=[root])
        self.excess = ""
        _reset_dynamo()

    @property
    def seen(self) -> Seen:
        return self._watch.seen

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the block, then check the limits, even if the block raises."""
        try:
            with self._watch:
                yield
        finally:
            if self._limits:
                self.excess = excess_message(self._limits, self.seen.recording.processes[0], self.seen.report)

    def close(self) -> None:
        _reset_dynamo()


def excess_message(limits: Sequence[MarkedLimit], process: Process, report: Report) -> str:
    """One line per exceeded limit, then the findings; empty if no limit is exceeded."""
    lines: list[str] = []
    shown: list[Finding] = []
    for text, limit in limits:
        findings = [f for f in report.findings if not is_allowed(f, limit.allow)]
        blind = [f for f in findings if f.code in BLIND]
        if blind:
            excess: Excess | None = ("cannot be checked, a tap of the watch was lost", blind)
        else:
            excess = limit.excess(findings, process)
        if excess is not None:
            lines.append(f"{text}: {excess[0]}")
            shown += excess[1]
    if not lines:
        return ""
    findings = [f for f in report.findings if f in shown]
    return "\n".join([*lines, "", findings_text(replace(report, findings=findings))])


def findings_text(report: Report) -> str:
    """The findings with their causes and fixes, as wide as the terminal."""
    return terminal.render(report, width=min(shutil.get_terminal_size((100, 40)).columns, 160)).rstrip()


def _with_prefix(findings: list[Finding], prefix: str) -> list[Finding]:
    return [f for f in findings if f.code.startswith(prefix)]


def _check_count(what: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise CommandError(f"{what} must be 0 or more, got {value!r}")


def _reset_dynamo() -> None:
    """Discard the compiles of other tests: they would hide a compile of this test, or make it a recompile."""
    try:
        import torch._dynamo
    except ImportError as error:
        raise CommandError(
            f"a limit marker and the fixture triage need torch, got {error}; install it, or skip the test"
        ) from error
    torch._dynamo.reset()
