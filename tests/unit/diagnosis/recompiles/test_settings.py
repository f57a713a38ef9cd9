"""Variants of one function that torch.compile calls with other settings made."""

from typing import Any

from torchtriage.diagnosis.recompiles.finding import recompiles
from torchtriage.findings.model import Finding, Severity
from torchtriage.recording.events import CompileCall, CompileStart, Event, Recompile
from torchtriage.recording.recording import Process

HEAD: dict[str, Any] = {"path": "/p/net.py", "line": 5, "function": "head"}
TARGET: dict[str, Any] = {"path": "/p/train.py", "target": "head", "target_path": "/p/net.py", "target_line": 5}
FIXED = CompileCall(**TARGET, line=7, number=1, backend="eager", dynamic=False)
SIZES = CompileCall(**TARGET, line=8, number=2, backend="eager")


def start(number: int, call: int | None) -> CompileStart:
    return CompileStart(**HEAD, compile_id=f"0/{number}", call=call)


def size(number: int, *old: int, new: int) -> Recompile:
    """A recompile for which each older variant, newest first, had failed on the size."""
    reasons = tuple(
        f"0/{number - 1 - i}: tensor 'x' size mismatch at index 0. expected {value}, actual {new}"
        for i, value in enumerate(old)
    )
    return Recompile(**HEAD, compile_id=f"0/{number}", reasons=reasons)


def findings_of(*events: Event) -> list[Finding]:
    return list(recompiles(Process(events=events, facts={"your_roots": ["/p"]})))


def test_each_recompile_belongs_to_the_call_whose_result_runs() -> None:
    first, second = findings_of(
        FIXED, SIZES, start(0, 1), size(1, 4, new=5), start(1, 1), size(2, 5, 4, new=6), start(2, 1),
        size(3, 6, 5, 4, new=7), start(3, 1), size(4, 7, 6, 5, 4, new=3), start(4, 2),
    )
    assert first.code == "TT202"
    assert "x.size(0) took 4, 5, 6, 7" in first.cause
    assert "train.py:7 with dynamic=False" in first.cause
    assert (second.code, second.severity) == ("TT219", Severity.P4)
    assert second.title == "head recompiled once: torch.compile was called on it with other settings"


def test_settings_explain_the_first_compile_of_each_call() -> None:
    [finding] = findings_of(FIXED, SIZES, start(0, 1), size(1, 4, new=5), start(1, 2))
    assert "train.py:7 with backend='eager', dynamic=False and train.py:8 with backend='eager'" in finding.cause
    assert finding.fix.text.startswith("nothing to do if you need each of them")


def test_sizes_that_another_call_compiled_are_no_values_of_this_one() -> None:
    settings, sizes = findings_of(
        FIXED, SIZES, start(0, 1), size(1, 40, new=5), start(1, 2), size(2, 5, 40, new=6), start(2, 2),
    )
    assert (settings.code, sizes.code) == ("TT219", "TT201")
    assert "x.size(0) took 5, 6;" in sizes.cause


def test_without_numbers_the_last_call_is_behind_every_compile() -> None:
    [finding] = findings_of(FIXED, SIZES, start(0, None), size(1, 4, new=5), start(1, None))
    assert finding.code == "TT201"


def test_another_backend_object_with_the_same_settings_is_to_be_kept() -> None:
    again = CompileCall(**TARGET, line=7, number=2, backend="eager", dynamic=False)
    reason = "0/0: BACKEND_MATCH failure: torch.compile detected different backend callables. Cached backend: a."
    [finding] = findings_of(
        FIXED, again, start(0, 1), Recompile(**HEAD, compile_id="0/1", reasons=(reason,)), start(1, 2))
    assert finding.title == "head recompiled once: the backend is another object"
    assert finding.fix.text.startswith("create the backend once")
