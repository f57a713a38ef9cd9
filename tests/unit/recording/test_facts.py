"""Facts are read as typed records; a damaged fact is left out and reported."""

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchtriage.diagnosis.report import build_report
from torchtriage.recording.facts import (
    EagerCalls,
    LauncherFacts,
    PolicyFacts,
    ProgramFacts,
    RecorderFacts,
    ShardFacts,
    StepFacts,
    read_process_facts,
    read_recording_facts,
    to_dict,
)
from torchtriage.recording.reader import read_recording
from torchtriage.recording.recording import Process, Recording
from torchtriage.reporters import json as json_reporter
from torchtriage.reporters import terminal

RUNS = Path(__file__).parents[2] / "recordings" / "runs"
SOURCES = Path(__file__).parents[3] / "src" / "torchtriage"
NESTED = functools.reduce(lambda inner, _: [inner], range(500), 0)
WRONG: list[Any] = [
    None, True, -1, 10**30, 1.5, float("nan"), float("inf"), "", "text", [], [None], [["x"]], {}, {"x": None},
    {"x": {"y": []}}, NESTED,
]


@functools.cache
def recorded(name: str) -> Recording:
    return read_recording(RUNS / name)


def rendered(recording: Recording) -> tuple[str, dict[str, Any]]:
    report = build_report(recording, with_events=True, with_history=True)
    return terminal.render(report), json.loads(json_reporter.render(report))


def lost(recording: Recording) -> set[str]:
    return {damage.name for source in (recording, *recording.processes) for damage in source.damage}


def is_reported(name: str, page: dict[str, Any]) -> bool:
    return any(f["code"] == "TT908" and f["title"].startswith(f"{name} of ") for f in page["findings"])


@pytest.mark.parametrize("name", sorted(path.name for path in RUNS.glob("*.triage")))
def test_a_real_recording_has_no_damage(name: str) -> None:
    assert lost(recorded(name)) == set()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_damaged_fact_of_a_real_recording_is_reported(data: st.DataObject) -> None:
    recording = recorded(data.draw(st.sampled_from(sorted(path.name for path in RUNS.glob("*.triage")))))
    number = data.draw(st.integers(0, len(recording.processes) - 1))
    process = recording.processes[number]
    key = data.draw(st.sampled_from(sorted(process.facts)))
    inner = process.facts[key]
    value = data.draw(st.sampled_from(WRONG))
    if isinstance(inner, dict) and inner and data.draw(st.booleans()):
        value = {**inner, data.draw(st.sampled_from(sorted(inner))): value}
    damaged = replace(process, facts={**process.facts, key: value})
    processes = tuple(damaged if one is process else one for one in recording.processes)
    changed = replace(recording, processes=processes)
    _, page = rendered(changed)
    for name in lost(changed):
        assert name.partition(".")[0] == key
        assert is_reported(name, page)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(sorted(LauncherFacts.__dataclass_fields__)), st.sampled_from(WRONG))
def test_a_damaged_fact_of_the_launcher_is_reported(key: str, value: Any) -> None:
    recording = recorded("demo-torch2.13.triage")
    changed = replace(recording, facts={**recording.facts, key: value})
    _, page = rendered(changed)
    assert all(name == key and is_reported(name, page) for name in lost(changed))


@pytest.mark.parametrize(("key", "value"), [
    ("rank", "four"), ("start", float("nan")), ("num_steps", True), ("argv", "train.py"),
    ("libraries", {"numpy": ["numpy"]}),
    ("eager_calls", {"hits": 1}), ("functions", [{"path": "a.py"}]), ("dropped", {"tap": -1.5}), ("name", NESTED),
])
def test_a_damaged_fact_is_named_and_the_others_are_kept(key: str, value: Any) -> None:
    facts = read_process_facts({"pid": 7, "optimizers": ["Adam"], key: value})
    assert [damage.name for damage in facts.damage] == [key]
    assert (facts.program.pid, facts.learning.optimizers) == (7, ("Adam",))


def test_damage_inside_telemetry_loses_one_field() -> None:
    shards = {"ranks": [0, 1], "place": 1, "elements": {"w": 4}, "num_whole": 3}
    facts = read_process_facts({"telemetry": {"num_dropped": "x", "num_left_out": 2, "shards": shards}})
    assert [damage.name for damage in facts.damage] == ["telemetry.num_dropped"]
    assert facts.telemetry.num_left_out == 2
    assert facts.telemetry.shards == ShardFacts(ranks=(0, 1), place=1, elements={"w": 4})


def test_the_problem_names_the_expected_and_the_actual_type() -> None:
    [damage] = read_process_facts({"rank": "four"}).damage
    assert damage.problem == "expected a whole number or null, found text"


@pytest.mark.parametrize("record", [
    ProgramFacts(start=1.5, rank=0, argv=("train.py",), your_roots=("/w",), libraries={"numpy": ("numpy", "2.0")}),
    StepFacts(num_steps=4, step_source="optimizer", steps_of_other_optimizers=(2,), first_step_time=3.0),
    RecorderFacts(end=2.0, dropped={"tap": 3}),
    PolicyFacts(policy={"dynamic": "true"}, peak_memory_bytes=5),
])
def test_a_record_survives_a_round_trip(record: Any) -> None:
    stored = json.loads(json.dumps(to_dict(record)))
    facts = read_process_facts(stored)
    assert facts.damage == ()
    assert record in (facts.program, facts.steps, facts.recorder, facts.policy)


def test_unknown_facts_are_not_written() -> None:
    assert to_dict(RecorderFacts(end=2.0)) == {"end": 2.0}
    assert to_dict(
        EagerCalls(hits=1, misses=2, recompiles=0, eager=2)
    ) == {"hits": 1, "misses": 2, "recompiles": 0, "eager": 2}


def test_the_facts_of_a_run_are_typed_too() -> None:
    facts = read_recording_facts({"exit_status": 3, "argv": ["train.py"], "end": "late", "joined": True})
    assert (facts.launcher.exit_status, facts.launcher.argv, facts.folder.joined) == (3, ("train.py",), True)
    assert [damage.name for damage in facts.damage] == ["end"]


def test_no_module_reads_stored_facts_by_their_key() -> None:
    by_key = re.compile(r"\.facts(?:\.get\(|\[)")
    readers = [path for path in SOURCES.rglob("*.py") if by_key.search(path.read_text())]
    assert readers == []


def test_a_process_without_facts_has_empty_records() -> None:
    process = Process()
    empty: Mapping[str, Any] = {}
    assert (
        process.rank, process.num_steps, process.eager_calls, process.program.libraries,
    ) == (None, None, None, empty)
    assert process.damage == ()
