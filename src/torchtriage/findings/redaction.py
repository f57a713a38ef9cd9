"""Redacts a report for sharing: names become pseudonyms; source, values, paths, environment are removed.

The redacted report is built from public fields only, so a field that is added to a report later stays out of it
until it is added here.
"""

import re
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

from torchtriage.findings import catalogue
from torchtriage.findings.history import CompileEntry, Curve, FrameHistory, History, Link, Moment, ProcessHistory
from torchtriage.findings.model import (
    UNKNOWN_PLACE,
    Category,
    Check,
    CheckKind,
    Cost,
    Evidence,
    Finding,
    Fix,
    Location,
    Owner,
    OwnerKind,
    RemedyProof,
    Severity,
)
from torchtriage.findings.report import SHAPES, TOTALS, Report
from torchtriage.findings.shape_redaction import redacted_study
from torchtriage.findings.tap_state import OWN_NAMES, TapState
from torchtriage.recording.series import STEP_SECONDS

_INSTALLED = re.compile(r"(?:^|/)((?:site|dist)-packages/([^/]+).*)\Z")
_STDLIB = re.compile(r"(?:^|/)(lib/python3\.\d+/([A-Za-z_]\w*).*)\Z")
# A local version label in another form may name the organization that built it.
_VERSION = re.compile(
    r"\d+(?:\.\d+)*(?:(?:a|b|rc|\.dev|\.post)\d+)?"
    r"(?:\+(?:cpu|xpu|cu\d+|rocm[\d.]+|git[0-9a-f]+)(?!\w))?"
)
_PLATFORM = re.compile(r"Linux|macOS|Darwin|Windows|x86_64|amd64|AMD64|aarch64|arm64|ppc64le|riscv64")
_COMPILE_ID = re.compile(r"[\d/_!-]*")
_GB_ID = re.compile(r"GB\d{4,}")
_SUPPRESSION = re.compile(r"(.+):(\d+): ignore\[([^\]]*)\]")
_ORIGINS = ("recording", "trace", "log", "scalars", "watch")
# Facts of the run that are removed.
_PRIVATE_FACTS = ("argv", "cwd", "executable", "host", "cpu_count", "environment", "path", "start", "end")
_PUBLIC_CURVES = (STEP_SECONDS,)    # other curves hold values of the training, and are named after its layers
_PUBLIC_EVENTS = ("graph_breaks", "recompiles")

NOT_NAMED = "something that is not named here"
_NO_RULE = catalogue.Rule(
    code="unknown",
    slug="rule-that-is-not-named-here",
    severity=Severity.P4,
    category=Category.COMPILE,
    summary="",
    page="",
)


def redacted(report: Report) -> Report:
    """The same report without anything that shows what the program is, where it is stored or what it computes."""
    names = Pseudonyms()
    # Pseudonyms are numbered in order of first use: this order decides which function is function-1.
    findings = [_finding(f, names) for f in report.findings]
    events = {}
    for kind in _PUBLIC_EVENTS:
        if kind in report.events:
            events[kind] = [_event(row, names) for row in report.events[kind]]
    history = _history(report.history, names)
    shapes = None
    if report.shapes is not None:
        shapes = redacted_study(report.shapes, names, _version(report.shapes.torch) or "")
    return Report(
        findings=findings,
        run=_run(report.run),
        watched=list(map(_tap, report.watched)),
        not_seen=list(map(_tap, report.not_seen)),
        totals={name: _number(report.totals.get(name)) for name in TOTALS},
        events=events,
        history=history,
        shapes=shapes,
        num_known=report.num_known,
        num_hidden=report.num_hidden,
        num_suppressed=report.num_suppressed,
        unused_suppressions=[_suppression(text, names) for text in report.unused_suppressions],
    )


class Pseudonyms:
    """Gives the same thing the same pseudonym throughout a report: file-1.py, function-2, finding-3."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, ...], str] = {}
        self._counts: Counter[str] = Counter()

    def of(self, kind: str, *thing: str) -> str:
        key = (kind, *thing)
        if key not in self._names:
            self._counts[kind] += 1
            self._names[key] = f"{kind}-{self._counts[kind]}"
        return self._names[key]

    def path(self, path: str) -> str:
        if path == UNKNOWN_PLACE.path:
            return path
        return _public_path(path) or f"{self.of('file', path)}.py"

    def function(self, path: str, function: str) -> str:
        is_public = function in ("", "<module>") or _public_path(path) is not None
        return function if is_public else self.of("function", path, function)

    def place(self, place: Location) -> Location:
        function = None if place.function is None else self.function(place.path, place.function)
        return Location(
            path=self.path(place.path), line=_count(place.line), function=function, column=_count(place.column)
        )

    def fingerprint(self, fingerprint: str) -> str:
        """A fingerprint is a hash of a path and a source line: a reader who guesses both could confirm the guess."""
        return self.of("finding", fingerprint) if fingerprint and fingerprint != SHAPES else fingerprint


def _finding(f: Finding, names: Pseudonyms) -> Finding:
    rule = _rule(f.code)
    return Finding(
        code=rule.code,
        slug=rule.slug,
        title=rule.slug.replace("-", " "),
        severity=f.severity,
        category=f.category,
        cause=_flat(rule.section("What it is")),
        fix=Fix(text=" ".join(_items(rule.section("Fix")))),
        location=names.place(f.location),
        raised_at=None if f.raised_at is None else names.place(f.raised_at),
        owner=_owner(f),
        upstream=_gb_id(f.upstream),
        cost=_cost(f.cost),
        evidence=Evidence(
            num_events=f.evidence.num_events, compile_ids=tuple(map(_compile_id, f.evidence.compile_ids))
        ),
        verification=tuple(Check(CheckKind.BY_HAND, item) for item in _items(rule.section("How to verify"))),
        related=tuple(map(names.fingerprint, f.related)),
        ranks=f.ranks,
        steps=f.steps,
        fingerprint=names.fingerprint(f.fingerprint),
        proof=None if f.proof is None else _proof(f.proof),
    )


def _proof(proof: RemedyProof) -> RemedyProof:
    """The text of the edit names variables of the program."""
    return RemedyProof(
        label=proof.label, text="", numbers=proof.numbers, num_steps=proof.num_steps,
        seconds_before=_number(proof.seconds_before), seconds_after=_number(proof.seconds_after),
        ratio_low=_number(proof.ratio_low), ratio_high=_number(proof.ratio_high), torch=_version(proof.torch) or "",
    )


def _rule(code: str) -> catalogue.Rule:
    try:
        return catalogue.rule(code)
    except KeyError:
        return _NO_RULE


def _cost(cost: Cost) -> Cost:
    return Cost(
        seconds=_number(cost.seconds),
        share=_number(cost.share),
        ms_per_step=_number(cost.ms_per_step),
        kind=cost.kind,
    )


def _owner(f: Finding) -> Owner:
    """The name of an installed library is public; any other library is named after its folder, which is private."""
    if f.owner.kind is not OwnerKind.LIBRARY:
        return Owner(kind=f.owner.kind)
    packages = set()
    for place in (f.location, f.raised_at):
        match = _INSTALLED.search(place.path.replace("\\", "/")) if place is not None else None
        if match:
            packages.add(match[2].removesuffix(".py"))
    version = _version(f.owner.version)
    is_public = version is not None or f.owner.name in packages
    return Owner(kind=f.owner.kind, name=f.owner.name if is_public else "a library", version=version or "")


def _run(run: Mapping[str, Any]) -> dict[str, Any]:
    start, end = _number(run.get("start")), _number(run.get("end"))
    return {
        **dict.fromkeys(_PRIVATE_FACTS),
        "redacted": True,
        "torch": _version(run.get("torch")),
        "python": _version(run.get("python")),
        "torchtriage": _version(run.get("torchtriage")),
        "platform": " ".join(_PLATFORM.findall(str(run.get("platform") or ""))) or None,
        "origin": run.get("origin") if run.get("origin") in _ORIGINS else None,
        "exit_status": _count(run.get("exit_status")),
        "num_processes": _count(run.get("num_processes")),
        "ranks": [rank for rank in run.get("ranks") or () if isinstance(rank, int)],
        "seconds": None if start is None or end is None else round(end - start, 3),
    }


def _event(row: Mapping[str, Any], names: Pseudonyms) -> dict[str, Any]:
    path, function, compile_id = (str(row.get(name) or "") for name in ("path", "function", "compile_id"))
    fields = {
        "path": names.path(path),
        "line": _count(row.get("line")),
        "function": names.function(path, function),
        "compile_id": _compile_id(compile_id),
        "step": _count(row.get("step")),
        "rank": _count(row.get("rank")),
        "time": None,
    }
    if "reasons" in row:
        reasons = [names.of("guard", str(reason)) for reason in row["reasons"]]
        return {**fields, "reasons": reasons, "num_reasons_omitted": _count(row.get("num_reasons_omitted"))}
    return {**fields, "gb_id": _gb_id(row.get("gb_id")), "type": None, "reason": None}


def _suppression(text: str, names: Pseudonyms) -> str:
    match = _SUPPRESSION.fullmatch(text)
    if match is None:
        return NOT_NAMED
    codes = [code for code in match[3].split(",") if _rule(code) is not _NO_RULE]
    return f"{names.path(match[1])}:{match[2]}: ignore[{','.join(codes)}]"


def _history(history: History, names: Pseudonyms) -> History:
    frames = tuple(_frame(frame, names) for frame in history.frames)
    # The label of a moment is a function's name without its path, so it may stand for several pseudonyms.
    pseudonyms: dict[str, set[str]] = {}
    for before, after in zip(history.frames, frames, strict=True):
        pseudonyms.setdefault(before.name, set()).add(after.name)
    labels = {name: min(candidates) for name, candidates in pseudonyms.items() if len(candidates) == 1}
    return History(
        start=None if history.start is None else 0.0,       # not None, as the history has times; the date is removed
        seconds=_number(history.seconds),
        processes=tuple(_process(number, process) for number, process in enumerate(history.processes, start=1)),
        moments=tuple(_moment(moment, labels, names) for moment in history.moments),
        frames=frames,
        curves=tuple(_curve(curve) for curve in history.curves if curve.name in _PUBLIC_CURVES),
    )


def _process(number: int, p: ProcessHistory) -> ProcessHistory:
    return ProcessHistory(
        name=f"process {number}" if p.rank is None else f"rank {p.rank}",
        rank=p.rank,
        start=_number(p.start),
        end=_number(p.end),
        num_compiles=p.num_compiles,
        num_recompiles=p.num_recompiles,
        num_breaks=p.num_breaks,
        compile_seconds=_number(p.compile_seconds),
        num_steps=_count(p.num_steps),
        step_milliseconds=_number(p.step_milliseconds),
        eager_calls=_count(p.eager_calls),
        steady_time=_number(p.steady_time),
        steady_step=_count(p.steady_step),
    )


def _moment(m: Moment, labels: Mapping[str, str], names: Pseudonyms) -> Moment:
    return Moment(
        kind=m.kind,
        time=m.time,
        process=m.process,
        seconds=_number(m.seconds),
        step=_count(m.step),
        label=labels.get(m.label.removesuffix(", backward"), str(m.kind)),
        compile_id=_compile_id(m.compile_id),
        fingerprint=names.fingerprint(m.fingerprint),
        is_backward=m.is_backward,
    )


def _frame(frame: FrameHistory, names: Pseudonyms) -> FrameHistory:
    is_public = frame.name == frame.location.function and _public_path(frame.location.path) is not None
    return FrameHistory(
        name=frame.name if is_public else names.of("function", frame.location.path, frame.name),
        location=names.place(frame.location),
        process=frame.process,
        compiles=tuple(_compile(c, names) for c in frame.compiles),
        num_compiles=frame.num_compiles,
        compile_seconds=_number(frame.compile_seconds),
        chain=tuple(_link(link, names) for link in frame.chain),
        is_at_limit=frame.is_at_limit,
        fingerprints=tuple(map(names.fingerprint, frame.fingerprints)),
    )


def _compile(c: CompileEntry, names: Pseudonyms) -> CompileEntry:
    return CompileEntry(
        compile_id=_compile_id(c.compile_id),
        time=c.time,
        step=_count(c.step),
        seconds=_number(c.seconds),
        failed="failed" if c.failed else "",
        num_ops=_count(c.num_ops),
        num_guards=_count(c.num_guards),
        guards_failed=tuple(names.of("guard", guard) for guard in c.guards_failed),
        num_guards_failed=c.num_guards_failed,
        backward_seconds=_number(c.backward_seconds),
        resumed_at=_count(c.resumed_at),
    )


def _link(link: Link, names: Pseudonyms) -> Link:
    place = names.place(link.location)
    return Link(
        is_break=link.is_break,
        label="graph break" if link.is_break else place.function or "graph",
        location=place,
        compile_id=_compile_id(link.compile_id),
        num_ops=_count(link.num_ops),
        fingerprint=names.fingerprint(link.fingerprint),
    )


def _curve(curve: Curve) -> Curve:
    steps, values, times = (tuple(map(float, numbers)) for numbers in (curve.steps, curve.values, curve.times))
    return Curve(name=curve.name, process=curve.process, steps=steps, values=values, times=times)


def _public_path(path: str) -> str | None:
    """A path from site-packages or the standard library on, which every machine has; None for a private path."""
    path = path.replace("\\", "/")
    installed = _INSTALLED.search(path)
    if installed:
        return installed[1]
    standard = _STDLIB.search(path)
    return standard[1] if standard and standard[2] in sys.stdlib_module_names else None


def _tap(tap: TapState) -> TapState:
    """torchtriage's own names, the status and the number are public; the detail may quote an error."""
    return TapState(name=tap.name if tap.name in OWN_NAMES else NOT_NAMED, status=tap.status, number=tap.number)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _items(section: str) -> list[str]:
    """The items of a Markdown list."""
    return [_flat(item) for item in f"\n{section}".split("\n- ") if item.strip()]


def _gb_id(value: object) -> str | None:
    return value if isinstance(value, str) and _GB_ID.fullmatch(value) else None


def _compile_id(text: str) -> str:
    return text if _COMPILE_ID.fullmatch(text) else ""


def _version(value: object) -> str | None:
    match = _VERSION.match(value) if isinstance(value, str) else None
    return match[0] if match and match.string[match.end():][:1] in ("", "+") else None


def _number(value: Any) -> Any:
    return value if isinstance(value, (int, float)) else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) else None
