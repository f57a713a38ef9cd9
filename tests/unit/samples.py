"""Hand-made findings and processes that the unit tests share."""

from typing import Any

from torchtriage.findings.model import Category, Finding, Fix, Location, SampledValue, Severity, SourceLine
from torchtriage.findings.tap_state import TapState
from torchtriage.recording.events import Event
from torchtriage.recording.recording import Process, Recording


def a_finding(code: str = "TT101", **fields: Any) -> Finding:
    """A finding that is complete enough for every reporter; `fields` replace its parts."""
    return Finding(**{
        "code": code, "slug": "print-in-graph", "title": "print() breaks forward", "severity": Severity.P3,
        "category": Category.COMPILE, "cause": "builtin print", "fix": Fix(text="move it out"),
        "location": Location(path="/app/model.py", line=14, function="forward"),
        "fingerprint": "0123456789abcdef", **fields,
    })


def a_process(*events: Event, series: Any = None, sources: Any = None, **facts: Any) -> Process:
    return Process(events=events, facts=facts, series=series or {}, sources=sources or {})


def a_recording(*processes: Process, origin: str = "recording", **facts: Any) -> Recording:
    return Recording(processes=processes, facts=facts, origin=origin)


def taps(*names: str) -> list[TapState]:
    return [TapState(name=name) for name in names]


def source_lines(*texts: str, first: int = 1, at: int | None = None) -> tuple[SourceLine, ...]:
    """Source lines numbered from `first`; the line `at` is the place of the finding."""
    return tuple(SourceLine(number=n, text=text, is_place=n == at) for n, text in enumerate(texts, start=first))


def sampled(*texts: str) -> tuple[SampledValue, ...]:
    """Values as a finding holds them; a text that is a number has its number."""
    values = []
    for text in texts:
        try:
            values.append(SampledValue(text=text, number=float(text)))
        except ValueError:
            values.append(SampledValue(text=text))
    return tuple(values)
