"""The course of a study over made-up runs: which runs are made, in which order, and when it ends."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from torchtriage.capture.policy.policy import ForcedPolicy
from torchtriage.proof.runs.process import Program, RunOutcome
from torchtriage.recording.events import CompileCall
from torchtriage.recording.recording import Process, Recording
from torchtriage.shapes import experiment
from torchtriage.shapes.budget import Budget
from torchtriage.shapes.experiment import Experiment, Measurement
from torchtriage.shapes.policies import ShapePolicy
from torchtriage.shapes.runs.trial import Lane, Trial

NOTHING = Path(os.devnull)
SITES = {"f": "m.py:3", "g": "m.py:4"}


class World:
    """A program with a fixed time per call under each policy; it remembers the runs that were made."""

    def __init__(self, rates: Mapping[str, Any], sizes: Mapping[str, int] | None = None, **more: Any) -> None:
        self.rates, self.sizes, self.more = rates, {"4": 1, "5": 1} if sizes is None else sizes, more
        self.runs: list[str] = []
        self.in_turns: list[list[str]] = []
        self.forced: dict[str, ForcedPolicy] = {}

    def run_in_turns(
        self, program: Program, policies: Sequence[ShapePolicy], limit: float, together: float,
    ) -> list[RunOutcome]:
        names = [policy.name for policy in policies]
        self.in_turns.append(names)
        self.forced |= {policy.name: policy.forced for policy in policies}
        if KeyboardInterrupt in map(self.rates.get, names):
            raise KeyboardInterrupt
        failing = self.more.get("fails_in_turns", ())
        return [self.outcome(name in failing or self.rates[name] is None) for name in names]

    def outcome(self, failed: bool) -> RunOutcome:
        return RunOutcome(
            recording=Path(), exit_status=int(failed), seconds=1.0, was_stopped=False, stdout=NOTHING, stderr=NOTHING,
        )

    def run_once(
        self, program: Program, policy: ShapePolicy, limit: float, forced: Mapping[str, Any] | None = None,
    ) -> RunOutcome:
        if forced is None:
            self.runs.append(policy.name)
            self.forced[policy.name] = policy.forced
        if self.rates.get(policy.name) is KeyboardInterrupt:
            raise KeyboardInterrupt
        if forced:
            return self.outcome("fails_with_sizes" in self.more and forced.get("dynamic") == "true")
        return self.outcome(self.rates[policy.name] is None)

    def read_recording(self, path: Path) -> Recording:
        size = {"path": "m.py", "line": 3, "function": "f", "source": "L['x']", "dim": 0, "values": self.sizes,
                "num_values": len(self.sizes), "num_calls": 2}
        calls = tuple(CompileCall(path="m.py", line=line, target=name) for name, line in (("f", 3), ("g", 4)))
        functions = [{"path": "m.py", "line": 3, "target": "f", "num_calls": 9}]
        facts = {"sizes": [size], "functions": functions, "torch": "x"}
        return Recording(processes=(Process(events=calls, facts=facts),))

    def trial_of(self, outcome: RunOutcome, policy: str, number: int) -> Trial:
        rate = self.rates[policy]
        rates = rate if isinstance(rate, dict) else {"f": rate}
        lanes = {name: Lane.of([one or 1.0] * 10) for name, one in rates.items()}
        return Trial(
            policy=policy,
            round=number,
            functions=lanes,
            sites=SITES,
            exit_status=int(rate is None),
            seconds=1.0,
            hit_limit=policy in self.more.get("at_limit", ()),
            num_recompiles=1,
            code=frozenset(self.more.get("code", {}).get(policy, ())),
        )


def measured(
    world: World, monkeypatch: pytest.MonkeyPatch, *, seconds: float = 600.0, rounds: int = 9, alone: str = "it must",
    one_by_one: bool = False, said: list[str] | None = None,
) -> Measurement:
    for name in ("run_once", "run_in_turns", "read_recording", "trial_of"):
        monkeypatch.setattr(experiment, name, getattr(world, name))
    monkeypatch.setattr(experiment, "why_alone", lambda *of: alone)
    monkeypatch.setattr(experiment, "takes_dimensions", lambda version: True)
    program = Program(command=["m.py"], folder=Path())
    budget = Budget(seconds=seconds)
    study = Experiment(
        program, budget, max_rounds=rounds, num_planned=None, users_sources="", one_by_one=one_by_one,
        say=(said if said is not None else []).append,
    )
    return study.measure()


FOUR = {"as written": 1.0, "dynamic=False": 1.1, "dynamic=True": 0.2, "marked": 0.9}


def test_a_warm_up_is_followed_by_rotated_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(FOUR)
    found = measured(world, monkeypatch)
    assert world.runs == [
        "as written",
        "as written", "dynamic=False", "dynamic=True", "marked",
        "dynamic=False", "dynamic=True", "marked", "as written",
    ]
    assert found.race.ranking(found.num_planned).settled() == "dynamic=True"
    assert found.num_planned == 10


def test_a_budget_that_is_too_small_is_said_after_the_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    measured(World(FOUR), monkeypatch, seconds=5.0, said=said)     # runs of 1 s: one for sizes, two rounds of four
    assert re.fullmatch(
        r"the budget of 5\.00 s is probably too small: 2 rounds of 4 policies need about [\d.]+ s, estimated from the "
        r"first run; stop and give --budget \d+s, or see what fits", said[1])
    said.clear()
    measured(World(FOUR), monkeypatch, seconds=600.0, said=said)
    assert not [text for text in said if "too small" in text]


def test_without_budget_after_the_sizes_no_marks_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    found = measured(World(FOUR), monkeypatch, seconds=1e-6, said=said)
    assert "marked" not in found.race.policies
    assert not [text for text in said if "marking" in text]


def test_a_failed_policy_is_not_run_again_and_the_others_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({**FOUR, "marked": None})
    found = measured(world, monkeypatch)
    assert list(found.race.failures) == ["marked"]
    assert world.runs.count("marked") == 1
    assert world.runs.count("dynamic=True") == 2


def test_a_policy_with_the_code_of_a_simpler_one_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(FOUR, code={"dynamic=True": "ab", "marked": "ab", "as written": "c"})
    found = measured(world, monkeypatch)
    assert world.runs.count("marked") == 1
    assert found.same_code == {"marked": "dynamic=True"}
    assert "marked" not in found.race.policies


def test_a_limit_that_was_hit_is_raised_for_the_baseline_and_for_static_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {**FOUR, "recompile_limit=64": 1.0, "dynamic=False, recompile_limit=64": 0.1}
    world = World(rates, at_limit=("as written", "dynamic=False"))
    found = measured(world, monkeypatch)
    assert world.forced["dynamic=False, recompile_limit=64"] == ForcedPolicy(dynamic="false", recompile_limit=64)
    assert found.race.ranking(found.num_planned).leader == "dynamic=False, recompile_limit=64"


def test_functions_with_different_best_policies_are_mixed_in_the_first_round(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({
        "as written": {"f": 1.0, "g": 1.0}, "dynamic=False": {"f": 0.1, "g": 2.0}, "dynamic=True": {"f": 2.0, "g": 0.1},
        "marked": {"f": 1.0, "g": 1.0}, "mixed": {"f": 0.1, "g": 0.1},
    })
    found = measured(world, monkeypatch)
    assert world.runs.index("mixed") == 5
    assert world.forced["mixed"] == ForcedPolicy(at={"m.py:3": "false", "m.py:4": "true"})
    assert found.race.ranking(found.num_planned).settled() == "mixed"


def test_only_the_baseline_runs_if_nothing_varies(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"as written": 1.0}, sizes={"4": 2})
    monkeypatch.setattr(Measurement, "is_static", True)
    assert measured(world, monkeypatch).race.trials.keys() == {"as written"}
    assert world.runs == ["as written"]


def test_sizes_are_recorded_in_a_second_run_if_the_first_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(World(FOUR, fails_with_sizes=True), monkeypatch)
    assert [size.num_values for size in found.sizes or ()] == [2]


def test_the_rounds_end_with_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(FOUR)
    found = measured(world, monkeypatch, seconds=3.0)       # a round takes four seconds, by its estimate
    assert world.runs == ["as written", "dynamic=False", "dynamic=True", "marked"]
    assert not found.race.ranking(found.num_planned).settled()


def test_the_rounds_end_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(FOUR)
    measured(world, monkeypatch, rounds=1)
    assert world.runs.count("dynamic=True") == 1


def test_ctrl_c_keeps_the_measured_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(World({**FOUR, "dynamic=True": KeyboardInterrupt}), monkeypatch)
    assert found.is_interrupted
    assert list(found.race.compared()) == ["as written", "dynamic=False"]


def test_ctrl_c_in_the_first_run_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        measured(World({"as written": KeyboardInterrupt}), monkeypatch)


def test_policies_take_turns_and_one_round_eliminates_those_far_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({**FOUR, "as written": 0.24, "marked": 0.22})
    found = measured(world, monkeypatch, alone="")
    assert world.runs == ["as written"]
    assert world.in_turns == [
        ["as written", "dynamic=False", "dynamic=True", "marked"], ["dynamic=True", "marked", "as written"],
    ]
    assert found.race.ranking(found.num_planned).settled() == "dynamic=True"
    assert [t.round for t in found.race.trials["as written"]] == [1, 2]     # none of them the run that was alone
    assert found.why_alone == ""


def test_a_far_behind_baseline_runs_again_only_to_accompany_a_single_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({**FOUR, "marked": 0.201})
    found = measured(world, monkeypatch, alone="")
    assert world.in_turns[1:] == [["marked", "dynamic=True"]]
    assert found.race.ranking(found.num_planned).settled() == "dynamic=True"
    world = World(FOUR)
    measured(world, monkeypatch, alone="")
    assert world.in_turns[1:] == [["dynamic=True", "as written"]]


def test_runs_that_interfere_with_each_other_run_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(FOUR, fails_in_turns=("dynamic=True",))
    found = measured(world, monkeypatch, alone="")
    assert len(world.in_turns) == 1
    assert world.runs[1] == "dynamic=True"      # alone it does not fail
    assert world.runs[2:6] == ["as written", "dynamic=False", "dynamic=True", "marked"]
    assert "dynamic=True" in found.why_alone
    assert found.race.failures == {}


def test_a_policy_that_also_fails_alone_has_failed_and_the_others_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({**FOUR, "marked": None})
    found = measured(world, monkeypatch, alone="")
    assert list(found.race.failures) == ["marked"]
    assert world.runs == ["as written", "marked"]
    assert [("marked" in names) for names in world.in_turns] == [True, False]


def test_a_policy_suggested_by_the_first_round_runs_from_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {**FOUR, "dynamic=True": 1.05, "dynamic=False, recompile_limit=64": 0.1}
    world = World(rates, at_limit=("dynamic=False",))
    found = measured(world, monkeypatch, alone="")
    assert ["dynamic=False, recompile_limit=64" in names for names in world.in_turns] == [False, True, True]
    assert found.race.ranking(found.num_planned).settled() == "dynamic=False, recompile_limit=64"


def test_a_late_policy_runs_alongside_a_far_behind_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({**FOUR, "dynamic=False, recompile_limit=64": 0.1}, at_limit=("dynamic=False",))
    found = measured(world, monkeypatch, alone="")
    assert [sorted(names) for names in world.in_turns[1:]] == [
        ["as written", "dynamic=False, recompile_limit=64", "dynamic=True"],
        ["as written", "dynamic=False, recompile_limit=64"],
    ]
    assert found.race.ranking(found.num_planned).settled() == "dynamic=False, recompile_limit=64"


def test_ctrl_c_during_turns_keeps_the_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(World({**FOUR, "dynamic=True": KeyboardInterrupt}), monkeypatch, alone="")
    assert found.is_interrupted
    assert list(found.race.compared()) == ["as written"]


def test_runs_come_one_by_one_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(FOUR)
    found = measured(world, monkeypatch, alone="", one_by_one=True)
    assert (world.in_turns, found.why_alone) == ([], "--one-by-one")
