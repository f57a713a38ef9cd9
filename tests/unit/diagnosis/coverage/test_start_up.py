"""TT306 and TT307 are reported for slow starts and missed caches, and for no others."""

from typing import Any

import pytest

from tests.unit.diagnosis.coverage.samples import F, G, findings_of, the_one
from tests.unit.samples import a_process
from torchtriage.diagnosis.coverage.start_up import COLD_START_SECONDS, compile_cache_misses, slow_cold_start
from torchtriage.diagnosis.totals import busy_seconds
from torchtriage.findings.model import CostKind
from torchtriage.recording.events import (
    CacheUse,
    CompileEnd,
    Event,
)
from torchtriage.recording.recording import Process

# TT306

def a_compile(
    seconds: float, end: float, place: dict[str, Any] = F, compile_id: str = "0/0", **fields: Any,
) -> CompileEnd:
    return CompileEnd(**place, compile_id=compile_id, seconds=seconds, time=end, **fields)


def test_a_slow_start_names_the_slowest_compiles() -> None:
    backward = a_compile(2.0, 59.0, G, "1/0", is_backward=True)
    finding = the_one(slow_cold_start, a_compile(4.0, 10.0), a_compile(29.0, 59.0, G, "1/0"), backward)
    assert (finding.code, finding.title) == ("TT306", "33.0 s of compiling before steady state")
    assert finding.cause == "slowest: g 29.0 s, f 4.00 s, g (backward) 2.00 s"
    assert (finding.cost.seconds, finding.cost.kind) == (33.0, CostKind.OBSERVED)
    assert finding.evidence.notes == ("2 compiles",)


@pytest.mark.parametrize("ends", [
    [a_compile(COLD_START_SECONDS - 0.1, 20.0)],
    [a_compile(20.0, 40.0), a_compile(20.0, 40.0, G, "1/0")],
    [a_compile(1.0, 10.0), a_compile(60.0, 80.0, compile_id="0/1")],
    [CompileEnd(**F, compile_id="0/0", time=20.0)],
    [],
], ids=["quick", "side by side", "after steady state began", "not timed", "no compile"])
def test_a_quick_start_is_not_reported(ends: list[CompileEnd]) -> None:
    assert findings_of(slow_cold_start, *ends) == []


@pytest.mark.parametrize(("spans", "expected"), [
    ([], 0.0), ([(0, 2)], 2.0), ([(0, 2), (2, 3)], 3.0), ([(0, 2), (1, 3)], 3.0), ([(0, 10), (2, 3)], 10.0),
    ([(5, 6), (0, 1)], 2.0),
])
def test_overlapping_compiles_count_once(spans: list[tuple[float, float]], expected: float) -> None:
    assert busy_seconds([CompileEnd(time=float(end), seconds=float(end - start)) for start, end in spans]) == expected


# TT307

def test_cache_bypasses_are_reported_with_their_reasons() -> None:
    uses = [CacheUse(cache="aotautograd", outcome="bypass", reason=f"reason {n}\ndetail") for n in (1, 2, 1, 3)]
    finding = the_one(compile_cache_misses, CacheUse(cache="fx_graph", outcome="hit"), *uses)
    assert (finding.code, finding.title) == ("TT307", "4 compile-cache bypasses")
    assert finding.cause == "aotautograd bypass: 4, fx_graph hit: 1; reason 1"
    assert finding.evidence.reasons == ("reason 1", "reason 2", "reason 3")
    assert finding.cost.kind is CostKind.NOT_MEASURED


def test_the_reason_of_a_bypass_has_no_memory_address() -> None:
    use = CacheUse(
        cache="aotautograd", outcome="bypass", reason="Unsupported target <function f at 0x7f3f55fc0ea0>. \n more",
    )
    finding = the_one(compile_cache_misses, use)
    assert finding.title == "1 compile-cache bypass"
    assert finding.cause == "aotautograd bypass: 1; Unsupported target <function f>."


def test_cache_misses_are_reported_if_they_took_long() -> None:
    finding = the_one(
        compile_cache_misses, *[CacheUse(cache="fx_graph", outcome="miss")] * 3, CompileEnd(inductor_seconds=31.0),
    )
    assert finding.title == "3 graphs were not in the compile cache"
    assert (finding.cost.seconds, finding.cost.kind) == (31.0, CostKind.OBSERVED)


@pytest.mark.parametrize("events", [
    [CacheUse(cache="fx_graph", outcome="miss"), CompileEnd(inductor_seconds=COLD_START_SECONDS - 1)],
    [CacheUse(cache="fx_graph", outcome="hit"), CompileEnd(inductor_seconds=60.0)],
    [CompileEnd(inductor_seconds=60.0)],
], ids=["cheap misses", "hits", "no cache"])
def test_a_cache_that_works_is_not_reported(events: list[Event]) -> None:
    assert findings_of(compile_cache_misses, *events) == []


def test_a_cache_that_a_shape_study_empties_is_not_reported() -> None:
    events = (CacheUse(cache="fx_graph", outcome="miss"), a_compile(60.0, 80.0, inductor_seconds=60.0))
    for facts, codes in (({}, ["TT306", "TT307"]), ({"policy": {"name": "as written"}}, ["TT306"])):
        process = Process(events=events, facts=facts)
        findings = [*slow_cold_start(process), *compile_cache_misses(process)]
        assert [f.code for f in findings] == codes
        assert ("TORCHINDUCTOR_CACHE_DIR" in findings[0].fix.text) == (not facts)


def test_a_cache_is_advised_only_where_inductor_compiled() -> None:
    slow: dict[str, Any] = {
        "path": "/p/net.py", "line": 5, "function": "forward", "compile_id": "0/0", "time": 100.0, "seconds": 30.0,
    }
    [eager] = slow_cold_start(a_process(CompileEnd(**slow)))
    [inductor] = slow_cold_start(a_process(CompileEnd(**slow, inductor_seconds=20.0)))
    assert "TORCHINDUCTOR_CACHE_DIR" not in eager.fix.text
    assert "TORCHINDUCTOR_CACHE_DIR" in inductor.fix.text
