"""What was measured becomes one study, with every caveat."""

from typing import Any

import pytest

from tests.unit.shapes.trial_samples import rounds, trial
from torchtriage.findings.shape_study import ShapeStudy, VaryingSize
from torchtriage.recording.events import CompileCall
from torchtriage.recording.recording import Process, Recording
from torchtriage.shapes.experiment import Measurement
from torchtriage.shapes.policies import Policy, as_written, mixed
from torchtriage.shapes.runs.sizes import Marking
from torchtriage.shapes.runs.trial import Lane, Trial
from torchtriage.shapes.verdict.race import Race
from torchtriage.shapes.verdict.study import study_of

SIZE = VaryingSize(path="m.py", line=1, function="f", source="L['x']", dim=0, values={"4": 1, "5": 2}, num_values=2, num_calls=3)


def measurement(*, facts: dict[str, Any] | None = None, **more: Any) -> Measurement:
    race = Race()
    for policy in (as_written(), Policy(name="dynamic=True", setting=("set it",))):
        race.enter(policy)
    for one in [*rounds("as written", [10, 10, 10]), *rounds("dynamic=True", [5, 5, 5])]:
        race.add(one)
    process = Process(events=(CompileCall(target="f"),), facts={"torch": "2.13.0", **(facts or {})})
    return Measurement(race=race, first=Recording(processes=(process,)), num_asked=10, sizes=[SIZE], **more)


def study(found: Measurement, **more: Any) -> ShapeStudy:
    return study_of(found, ["train.py"], spent_seconds=12.34, **more)


def test_a_whole_study() -> None:
    found = study(measurement())
    assert (found.unit, found.num_units, found.num_planned, found.torch, found.seconds_spent) == ("call", 10, 10, "2.13.0", 12.3)
    assert [(row.name, row.num_runs) for row in found.policies] == [("as written", 3), ("dynamic=True", 3)]
    assert (found.advice.policy, found.advice.setting) == ("dynamic=True", ("set it",))
    assert found.branches[0].answer == "no"
    assert found.notes == []
    assert ShapeStudy.from_dict(found.to_dict()).advice == found.advice


def test_a_policy_that_failed_has_a_row_without_figures() -> None:
    one = measurement()
    one.race.enter(Policy(name="marked"))
    one.race.failures["marked"] = "ended with status 1: no"
    row = study(one).policies[-1]
    assert (row.name, row.failed, row.total_seconds) == ("marked", "ended with status 1: no", None)


def test_marks_come_with_what_stands_against_them() -> None:
    marking = Marking(marks=frozenset({("L['x']", 0)}), constant_again={("L['x']", 0): "x.size()[0] == 4"}, new_reasons=["f: y is None"],
                      num_runs=4, is_complete=False)
    one = measurement(marking=marking, with_dims=False)
    one.race.enter(Policy(name="marked"))
    for run in rounds("marked", [6, 6, 6]):
        one.race.add(run)
    found = study(one)
    assert (found.sizes[0].is_marked, found.sizes[0].why_not) == (True, "became constant again (x.size()[0] == 4)")
    notes = " ".join(found.policies[-1].notes)
    for told in ("every compiled function of the process", "ignores the dimension", "f: y is None", "still recompile after 4 rounds"):
        assert told in notes


@pytest.mark.parametrize(("more", "told"), [
    ({"files": ["log.txt"], "last_run": "as written"}, "every run writes log.txt again; what is there now is from a run as written"),
    ({"files": ["log.txt"], "last_run": "marked"}, "every run writes log.txt again; what is there now is from a run under marked"),
    ({"is_interrupted": True}, "interrupted: this is what was measured until then"),
    ({"same": {"dynamic=None": "this is what is written"}}, "dynamic=None was not run: this is what is written"),
    ({"facts": {"marks": [{"path": "/w/t.py", "line": 3, "call": "mark_dynamic", "dim": 0, "num": 2}]}},
     "the program marks dimensions itself, under every policy: mark_dynamic(dim 0) at /w/t.py:3"),
    ({"facts": {"peak_device_memory_bytes": 1}}, "calls are timed on the host"),
    ({"notes": ["x"]}, "x"),
])
def test_caveats_are_told(more: dict[str, Any], told: str) -> None:
    assert any(note.startswith(told) for note in study(measurement(**more)).notes)


def test_the_users_own_marks_are_told() -> None:
    assert any("was set already" in note for note in study(measurement(), users_sources="L['y']").notes)


def test_runs_that_were_stopped_are_told() -> None:
    one = measurement()
    one.race.add(trial("dynamic=True", 4, startup=0.0, rate=0.5, units=6, was_stopped=True, exit_status=130))
    found = study(one)
    assert found.num_units == 6
    assert "runs were stopped at their time limit; compared are the first 6 calls of each" in found.notes


def test_where_every_other_policy_fails_it_is_kept_as_written() -> None:
    one = measurement()
    one.race.failures["dynamic=True"] = "ended with status 1"
    found = study(one)
    assert (found.advice.policy, found.advice.text) == ("as written", "keep it as written: every other policy failed")


def test_a_program_without_a_varying_size_is_kept_as_written() -> None:
    one = measurement()
    one.race.trials["dynamic=True"], one.sizes = [], []
    assert one.is_static
    assert study(one).advice.text.startswith("keep it as written: no size varies and nothing is recompiled")


@pytest.mark.parametrize("change", [{"num_recompiles": 1}, {"was_stopped": True}])
def test_a_program_is_static_only_if_a_whole_run_showed_it(change: dict[str, Any]) -> None:
    one = measurement()
    one.sizes = []
    one.race.trials["as written"] = [trial("as written", **change)]
    assert not one.is_static


def test_what_was_interrupted_early_recommends_nothing() -> None:
    one = measurement(is_interrupted=True)
    one.race.trials["dynamic=True"] = []
    assert study(one).advice.policy == ""


def test_a_budget_that_ends_after_one_policy_recommends_nothing_and_says_what_is_needed() -> None:
    one = measurement()
    one.race.trials["dynamic=True"] = []
    advice = study(one).advice
    assert advice.policy == ""
    assert advice.text == "not settled: no other policy was measured before the time was up; keep it as written until then"
    assert advice.needs.startswith("--budget ")
    one.race.failures["dynamic=True"] = "ended with status 1: no"
    assert study(one).advice.text == "keep it as written: every other policy failed"


def test_where_every_other_policy_compiles_the_same_code_it_is_kept_as_written_and_that_is_said() -> None:
    one = measurement(same_code={"dynamic=True": "as written"})
    del one.race.policies["dynamic=True"], one.race.trials["dynamic=True"]
    found = study(one)
    assert found.advice.policy == "as written"
    assert found.advice.text == "keep it as written: every other policy failed or compiles exactly the same code"
    assert "dynamic=True compiles exactly the code of as written, so it is the same policy here" in found.notes


def test_the_best_policy_of_each_function_is_told_where_there_are_several() -> None:
    assert study(measurement()).by_function == {}
    race = Race()
    for name, slow, quick in (("as written", 5.0, 1.0), ("dynamic=True", 1.0, 2.0)):
        race.enter(Policy(name=name))
        lanes = {"f": Lane.of([slow] * 3), "g": Lane.of([quick] * 3)}
        race.add(Trial(policy=name, round=1, functions=lanes, sites=dict.fromkeys(lanes, "m.py:3")))
    found = study(Measurement(race=race, num_asked=6))
    assert found.by_function == {"f": "dynamic=True", "g": "as written"}
    assert any(note.startswith("f and g want different policies, and one line compiles them (m.py:3)") for note in found.notes)


def test_where_a_policy_each_was_tried_it_is_the_one_that_is_told() -> None:
    race = Race()
    sites = {"f": "m.py:3", "g": "m.py:4"}
    policies = (Policy(name="as written"), Policy(name="dynamic=True"), mixed({"m.py:3": "dynamic=False"}, []))
    for policy, seconds in zip(policies, (5.0, 1.0, 0.9), strict=True):
        race.enter(policy)
        race.add(Trial(policy=policy.name, round=1, functions=dict.fromkeys(sites, Lane.of([seconds] * 3)), sites=sites))
    assert study(Measurement(race=race, num_asked=6)).by_function == {"f": "dynamic=False", "g": "as written"}


def test_why_runs_came_one_after_the_other_is_said() -> None:
    notes = study(measurement(why_alone="it writes files")).notes
    assert notes == ["policies were run one after the other, which is noisier than in turns: it writes files"]
