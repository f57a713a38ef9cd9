"""A measurement becomes one study, with every caveat."""

from typing import Any

import pytest

from tests.unit.shapes.trial_samples import rounds, trial
from torchtriage.findings.shape_study import Basis, Question, ShapeStudy, VaryingSize
from torchtriage.recording.events import CompileCall
from torchtriage.recording.recording import Process, Recording
from torchtriage.reporters.shape_text import needs, reason
from torchtriage.shapes.experiment import Measurement
from torchtriage.shapes.policies import ShapePolicy, baseline_policy, mixed
from torchtriage.shapes.runs.sizes import Marking
from torchtriage.shapes.runs.trial import Lane, Trial
from torchtriage.shapes.verdict.race import Race
from torchtriage.shapes.verdict.study import study_of

SIZE = VaryingSize(
    path="m.py", line=1, function="f", source="L['x']", dim=0, values={"4": 1, "5": 2}, num_values=2, num_calls=3,
)


def measurement(*, facts: dict[str, Any] | None = None, **more: Any) -> Measurement:
    race = Race()
    for policy in (baseline_policy(), ShapePolicy(name="dynamic=True", setting=("set it",))):
        race.enter(policy)
    for one in [*rounds("as written", [10, 10, 10]), *rounds("dynamic=True", [5, 5, 5])]:
        race.add(one)
    process = Process(events=(CompileCall(target="f"),), facts={"torch": "2.13.0", **(facts or {})})
    return Measurement(race=race, first=Recording(processes=(process,)), num_asked=10, sizes=[SIZE], **more)


def study(found: Measurement, **more: Any) -> ShapeStudy:
    return study_of(found, ["train.py"], spent_seconds=12.34, **more)


def test_a_complete_study() -> None:
    found = study(measurement())
    assert (found.unit, found.num_units, found.num_planned, found.torch, found.seconds_spent) == (
        "call",
        10,
        10,
        "2.13.0",
        12.3,
    )
    assert [(row.name, row.num_runs) for row in found.policies] == [("as written", 3), ("dynamic=True", 3)]
    assert (found.advice.policy, found.advice.setting) == ("dynamic=True", ("set it",))
    assert (found.branches[0].kind, found.branches[0].is_yes) == (Question.IS_FIXED, False)
    assert found.notes == []
    assert ShapeStudy.from_dict(found.to_dict()).advice == found.advice


def test_the_command_of_a_study_is_kept_without_its_secrets() -> None:
    command = ["train.py", "wandb.api_key=hunter2", "--lr", "1"]
    assert study_of(measurement(), command, spent_seconds=1.0).command == [
        "train.py", "wandb.api_key=***", "--lr", "1",
    ]


def test_a_policy_that_failed_has_a_row_without_figures() -> None:
    one = measurement()
    one.race.enter(ShapePolicy(name="marked"))
    one.race.failures["marked"] = "ended with status 1: no"
    row = study(one).policies[-1]
    assert (row.name, row.failed, row.total_seconds) == ("marked", "ended with status 1: no", None)


def test_marks_come_with_their_problems() -> None:
    marking = Marking(
        marks=frozenset({("L['x']", 0)}), specialized={("L['x']", 0): "x.size()[0] == 4"},
        new_reasons=["f: y is None"], num_runs=4, is_complete=False,
    )
    one = measurement(marking=marking, with_dims=False)
    one.race.enter(ShapePolicy(name="marked"))
    for run in rounds("marked", [6, 6, 6]):
        one.race.add(run)
    found = study(one)
    assert (found.sizes[0].is_marked, found.sizes[0].why_not) == (True, "specialized to a constant (x.size()[0] == 4)")
    notes = " ".join(found.policies[-1].notes)
    for text in (
        "every compiled function of the process",
        "ignores the dimension",
        "f: y is None",
        "recompile after 4 rounds",
    ):
        assert text in notes


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (
            {"files": ["log.txt"], "last_run": "as written"},
            "each run overwrites log.txt; the current file was written by the unmodified program",
        ),
        (
            {"files": ["log.txt"], "last_run": "marked"},
            "each run overwrites log.txt; the current file was written by the marked run",
        ),
        (
            {"files": ["a", "b"], "last_run": "marked"},
            "each run overwrites a and b; the current files were written by the marked run",
        ),
        ({"is_interrupted": True}, "interrupted: only the runs before the interruption are shown"),
        (
            {"same": {"dynamic=None": "the program already uses it"}},
            "dynamic=None was not run: the program already uses it",
        ),
        (
            {"facts": {"marks": [{"path": "/w/t.py", "line": 3, "call": "mark_dynamic", "dim": 0, "num": 2}]}},
            "the program marks dimensions itself, under every policy: mark_dynamic(dim 0) at /w/t.py:3",
        ),
        ({"facts": {"peak_device_memory_bytes": 1}}, "calls are timed on the host"),
        ({"notes": ["x"]}, "x"),
    ],
)
def test_caveats_are_noted(more: dict[str, Any], text: str) -> None:
    assert any(note.startswith(text) for note in study(measurement(**more)).notes)


def test_the_users_own_marks_are_noted() -> None:
    assert any("was already set" in note for note in study(measurement(), users_sources="L['y']").notes)


def test_stopped_runs_are_noted() -> None:
    one = measurement()
    one.race.add(trial("dynamic=True", 4, startup=0.0, rate=0.5, units=6, was_stopped=True, exit_status=130))
    found = study(one)
    assert found.num_units == 6
    assert "some runs were stopped at their time limit; the first 6 calls of each run are compared" in found.notes


def test_the_baseline_is_kept_if_every_other_policy_fails() -> None:
    one = measurement()
    one.race.failures["dynamic=True"] = "ended with status 1"
    found = study(one)
    assert (found.advice.policy, reason(found)) == ("as written", "every other policy failed")


def test_the_baseline_is_kept_if_no_size_varies() -> None:
    one = measurement()
    one.race.trials["dynamic=True"], one.sizes = [], []
    assert one.is_static
    assert study(one).advice.basis == Basis.STATIC
    assert reason(study(one)).startswith("no size varies and nothing recompiles")


@pytest.mark.parametrize("change", [{"num_recompiles": 1}, {"was_stopped": True}])
def test_a_program_is_static_only_if_a_complete_run_shows_it(change: dict[str, Any]) -> None:
    one = measurement()
    one.sizes = []
    one.race.trials["as written"] = [trial("as written", **change)]
    assert not one.is_static


def test_an_early_interruption_recommends_nothing() -> None:
    one = measurement(is_interrupted=True)
    one.race.trials["dynamic=True"] = []
    found = study(one)
    assert found.advice.policy == ""
    assert reason(found) == "no other policy was measured before the interruption"
    assert needs(found) == "a run that is not interrupted"


def test_a_budget_that_ends_after_one_policy_recommends_a_larger_budget() -> None:
    one = measurement()
    one.race.trials["dynamic=True"] = []
    found = study(one)
    assert found.advice.policy == ""
    assert reason(found) == "no other policy was measured before the budget ran out"
    assert needs(found).startswith("--budget ")
    one.race.failures["dynamic=True"] = "ended with status 1: no"
    assert reason(study(one)) == "every other policy failed"


def test_the_baseline_is_kept_if_every_other_policy_compiles_the_same_code() -> None:
    one = measurement(same_code={"dynamic=True": "as written"})
    del one.race.policies["dynamic=True"], one.race.trials["dynamic=True"]
    found = study(one)
    assert found.advice.policy == "as written"
    assert reason(found) == "every other policy failed or compiles exactly the same code"
    note = "dynamic=True compiles exactly the same code as the unmodified program, so it is the same policy here"
    assert note in found.notes


def test_the_best_policy_of_each_of_several_functions_is_shown() -> None:
    assert study(measurement()).by_function == {}
    race = Race()
    for name, slow, quick in (("as written", 5.0, 1.0), ("dynamic=True", 1.0, 2.0)):
        race.enter(ShapePolicy(name=name))
        lanes = {"f": Lane.of([slow] * 3), "g": Lane.of([quick] * 3)}
        race.add(Trial(policy=name, round=1, functions=lanes, sites=dict.fromkeys(lanes, "m.py:3")))
    found = study(Measurement(race=race, num_asked=6))
    assert found.by_function == {"f": "dynamic=True", "g": "as written"}
    text = "f and g do best under different policies but are compiled on the same line (m.py:3); give each its own"
    assert any(note.startswith(text) for note in found.notes)


def test_the_mixed_policy_of_each_function_is_shown_if_it_was_tried() -> None:
    race = Race()
    sites = {"f": "m.py:3", "g": "m.py:4"}
    policies = (
        ShapePolicy(name="as written"),
        ShapePolicy(name="dynamic=True"),
        mixed({"m.py:3": "dynamic=False"}, []),
    )
    for policy, seconds in zip(policies, (5.0, 1.0, 0.9), strict=True):
        race.enter(policy)
        race.add(
            Trial(policy=policy.name, round=1, functions=dict.fromkeys(sites, Lane.of([seconds] * 3)), sites=sites)
        )
    assert study(Measurement(race=race, num_asked=6)).by_function == {"f": "dynamic=False", "g": "as written"}


def test_the_reason_for_separate_runs_is_noted() -> None:
    notes = study(measurement(why_alone="it writes files")).notes
    assert notes == ["policies ran one after the other, which is noisier than in turns: it writes files"]
