"""The course of a study, with runs that are made up: which are made, in which order, and when it ends."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from torchtriage.recording.events import CompileCall
from torchtriage.recording.recording import Process, Recording
from torchtriage.shapes import experiment as measuring
from torchtriage.shapes.budget import Budget
from torchtriage.shapes.experiment import Experiment, Measurement
from torchtriage.shapes.policies import Policy
from torchtriage.shapes.runs.process import Outcome, Program
from torchtriage.shapes.runs.trial import Lane, Trial

NOTHING = Path(os.devnull)
SITES = {"f": "m.py:3", "g": "m.py:4"}


class World:
    """A program that takes so long a call under each policy; what it was asked for is noted."""

    def __init__(self, rates: Mapping[str, Any], sizes: Mapping[str, int] | None = None, **more: Any) -> None:
        self.rates, self.sizes, self.more = rates, {"4": 1, "5": 1} if sizes is None else sizes, more
        self.runs: list[str] = []
        self.in_turns: list[list[str]] = []
        self.forced: dict[str, Any] = {}

    def run_in_turns(self, program: Program, policies: Sequence[Policy], limit: float, together: float) -> list[Outcome]:
        names = [policy.name for policy in policies]
        self.in_turns.append(names)
        self.forced |= {policy.name: policy.forced for policy in policies}
        if KeyboardInterrupt in map(self.rates.get, names):
            raise KeyboardInterrupt
        return [self.outcome(name in self.more.get("fails_in_turns", ()) or self.rates[name] is None) for name in names]

    def outcome(self, failed: bool) -> Outcome:
        return Outcome(recording=Path(), exit_status=int(failed), seconds=1.0, was_stopped=False, stdout=NOTHING, stderr=NOTHING)

    def run_once(self, program: Program, policy: Policy, limit: float, extra: Mapping[str, Any] | None = None) -> Outcome:
        if extra is None:
            self.runs.append(policy.name)
            self.forced[policy.name] = policy.forced
        if self.rates.get(policy.name) is KeyboardInterrupt:
            raise KeyboardInterrupt
        look_fails = "look_fails" in self.more and (extra or {}).get("dynamic") == "true"
        return self.outcome(look_fails if extra else self.rates[policy.name] is None)

    def read_recording(self, path: Path) -> Recording:
        size = {"path": "m.py", "line": 3, "function": "f", "source": "L['x']", "dim": 0, "values": self.sizes,
                "num_values": len(self.sizes), "num_calls": 2}
        calls = tuple(CompileCall(path="m.py", line=line, target=name) for name, line in (("f", 3), ("g", 4)))
        functions = [{"path": "m.py", "line": 3, "target": "f", "num_calls": 9}]
        return Recording(processes=(Process(events=calls, facts={"sizes": [size], "functions": functions, "torch": "x"}),))

    def trial_of(self, outcome: Outcome, policy: str, number: int) -> Trial:
        rate = self.rates[policy]
        rates = rate if isinstance(rate, dict) else {"f": rate}
        lanes = {name: Lane.of([one or 1.0] * 10) for name, one in rates.items()}
        return Trial(policy=policy, round=number, functions=lanes, sites=SITES, exit_status=int(rate is None), seconds=1.0,
                     hit_limit=policy in self.more.get("at_limit", ()), num_recompiles=1,
                     code=frozenset(self.more.get("code", {}).get(policy, ())))


def measured(
    world: World, monkeypatch: pytest.MonkeyPatch, *, seconds: float = 600.0, rounds: int = 9, alone: str = "it must",
    one_by_one: bool = False,
) -> Measurement:
    for name in ("run_once", "run_in_turns", "read_recording", "trial_of"):
        monkeypatch.setattr(measuring, name, getattr(world, name))
    monkeypatch.setattr(measuring, "why_alone", lambda *of: alone)
    monkeypatch.setattr(measuring, "takes_dimensions", lambda version: True)
    program = Program(command=["m.py"], folder=Path())
    budget = Budget(seconds=seconds)
    experiment = Experiment(
        program, budget, max_rounds=rounds, num_planned=None, users_sources="", tell=lambda text: None, one_by_one=one_by_one,
    )
    return experiment.measure()


FOUR = {"as written": 1.0, "dynamic=False": 1.1, "dynamic=True": 0.2, "marked": 0.9}


def test_a_warm_up_then_rounds_that_each_begin_with_another_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(FOUR)
    found = measured(world, monkeypatch)
    assert world.runs == [
        "as written",
        "as written", "dynamic=False", "dynamic=True", "marked",
        "dynamic=False", "dynamic=True", "marked", "as written",
    ]
    assert found.race.ranking(found.num_planned).settled() == "dynamic=True"
    assert found.num_planned == 10


def test_a_policy_that_fails_is_not_run_again_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({**FOUR, "marked": None})
    found = measured(world, monkeypatch)
    assert list(found.race.failures) == ["marked"]
    assert world.runs.count("marked") == 1
    assert world.runs.count("dynamic=True") == 2


def test_a_policy_with_the_code_of_a_simpler_one_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(FOUR, code={"dynamic=True": "ab", "marked": "ab", "as written": "c"})
    found = measured(world, monkeypatch)
    assert world.runs.count("marked") == 1
    assert found.same_code == {"marked": "dynamic=True"}
    assert "marked" not in found.race.policies


def test_a_limit_that_was_hit_is_raised_as_written_and_static(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {**FOUR, "recompile_limit=64": 1.0, "dynamic=False, recompile_limit=64": 0.1}
    world = World(rates, at_limit=("as written", "dynamic=False"))
    found = measured(world, monkeypatch)
    assert world.forced["dynamic=False, recompile_limit=64"] == {"dynamic": "false", "recompile_limit": 64}
    assert found.race.ranking(found.num_planned).leader == "dynamic=False, recompile_limit=64"


def test_functions_that_want_different_policies_are_mixed_in_the_first_round(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({
        "as written": {"f": 1.0, "g": 1.0}, "dynamic=False": {"f": 0.1, "g": 2.0}, "dynamic=True": {"f": 2.0, "g": 0.1},
        "marked": {"f": 1.0, "g": 1.0}, "mixed": {"f": 0.1, "g": 0.1},
    })
    found = measured(world, monkeypatch)
    assert world.runs.index("mixed") == 5
    assert world.forced["mixed"] == {"at": {"m.py:3": "false", "m.py:4": "true"}}
    assert found.race.ranking(found.num_planned).settled() == "mixed"


def test_where_nothing_varies_only_what_is_written_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"as written": 1.0}, sizes={"4": 2})
    monkeypatch.setattr(Measurement, "is_static", True)
    assert measured(world, monkeypatch).race.trials.keys() == {"as written"}
    assert world.runs == ["as written"]


def test_sizes_are_seen_in_a_second_look_if_the_first_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(World(FOUR, look_fails=True), monkeypatch)
    assert [size.num_values for size in found.sizes or ()] == [2]


def test_the_rounds_end_with_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(FOUR)
    found = measured(world, monkeypatch, seconds=3.0)       # a round is said to take four seconds
    assert world.runs == ["as written", "dynamic=False", "dynamic=True", "marked"]
    assert not found.race.ranking(found.num_planned).settled()


def test_the_rounds_end_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(FOUR)
    measured(world, monkeypatch, rounds=1)
    assert world.runs.count("dynamic=True") == 1


def test_ctrl_c_keeps_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(World({**FOUR, "dynamic=True": KeyboardInterrupt}), monkeypatch)
    assert found.is_interrupted
    assert list(found.race.compared()) == ["as written", "dynamic=False"]


def test_ctrl_c_in_the_first_run_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        measured(World({"as written": KeyboardInterrupt}), monkeypatch)


def test_the_policies_of_a_round_take_turns_and_who_is_far_behind_leaves_after_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({**FOUR, "as written": 0.24, "marked": 0.22})
    found = measured(world, monkeypatch, alone="")
    assert world.runs == ["as written"]
    assert world.in_turns == [["as written", "dynamic=False", "dynamic=True", "marked"], ["dynamic=True", "marked", "as written"]]
    assert found.race.ranking(found.num_planned).settled() == "dynamic=True"
    assert [t.round for t in found.race.trials["as written"]] == [1, 2]     # none of them the run that was alone
    assert found.why_alone == ""


def test_as_written_is_not_run_again_once_it_is_far_behind_unless_it_would_leave_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({**FOUR, "marked": 0.201})
    found = measured(world, monkeypatch, alone="")
    assert world.in_turns[1:] == [["marked", "dynamic=True"]]
    assert found.race.ranking(found.num_planned).settled() == "dynamic=True"
    world = World(FOUR)
    measured(world, monkeypatch, alone="")
    assert world.in_turns[1:] == [["dynamic=True", "as written"]]


def test_runs_that_get_into_each_others_way_come_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(FOUR, fails_in_turns=("dynamic=True",))
    found = measured(world, monkeypatch, alone="")
    assert len(world.in_turns) == 1
    assert world.runs[1] == "dynamic=True"      # alone it does not fail
    assert world.runs[2:6] == ["as written", "dynamic=False", "dynamic=True", "marked"]
    assert "dynamic=True" in found.why_alone
    assert found.race.failures == {}


def test_a_policy_that_fails_alone_too_has_failed_and_the_others_go_on_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({**FOUR, "marked": None})
    found = measured(world, monkeypatch, alone="")
    assert list(found.race.failures) == ["marked"]
    assert world.runs == ["as written", "marked"]
    assert [("marked" in names) for names in world.in_turns] == [True, False]


def test_a_policy_that_the_first_round_brings_up_takes_its_turns_from_the_second_on(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {**FOUR, "dynamic=True": 1.05, "dynamic=False, recompile_limit=64": 0.1}
    world = World(rates, at_limit=("dynamic=False",))
    found = measured(world, monkeypatch, alone="")
    assert ["dynamic=False, recompile_limit=64" in names for names in world.in_turns] == [False, True, True]
    assert found.race.ranking(found.num_planned).settled() == "dynamic=False, recompile_limit=64"


def test_a_policy_that_comes_later_meets_as_written_however_far_that_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({**FOUR, "dynamic=False, recompile_limit=64": 0.1}, at_limit=("dynamic=False",))
    found = measured(world, monkeypatch, alone="")
    assert [sorted(names) for names in world.in_turns[1:]] == [
        ["as written", "dynamic=False, recompile_limit=64", "dynamic=True"], ["as written", "dynamic=False, recompile_limit=64"],
    ]
    assert found.race.ranking(found.num_planned).settled() == "dynamic=False, recompile_limit=64"


def test_ctrl_c_while_they_take_turns_keeps_the_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(World({**FOUR, "dynamic=True": KeyboardInterrupt}), monkeypatch, alone="")
    assert found.is_interrupted
    assert list(found.race.compared()) == ["as written"]


def test_who_asks_for_it_has_them_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(FOUR)
    found = measured(world, monkeypatch, alone="", one_by_one=True)
    assert (world.in_turns, found.why_alone) == ([], "--one-by-one")
