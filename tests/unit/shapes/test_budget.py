"""How long a study, a round and a run may take."""

from typing import Any

import pytest

from tests.unit.shapes.trial_samples import race, trial
from torchtriage.errors import CommandError
from torchtriage.proof.budget import parse_duration
from torchtriage.shapes.budget import Budget, enough_seconds, num_runs_to_come
from torchtriage.shapes.policies import baseline_policy
from torchtriage.shapes.verdict.race import Race


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400)])
def test_a_budget_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-3m", "0", "10 minutes"])
def test_an_invalid_budget_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="give seconds, minutes or hours"):
        parse_duration(text)


def budget(seconds: float, spent: float) -> Any:
    found = Budget(seconds=seconds)
    found.began -= spent
    return found


def test_a_run_gets_its_share_but_enough_for_a_few_units() -> None:
    one = race(w=[10])      # a process of 5 s, of which the calls took 10 by hand-made clocks
    assert budget(600, 0).of_run(one, 6) == pytest.approx(100, abs=1)
    assert budget(600, 599).of_run(one, 6) == 10
    long = trial("as written", startup=10.0, rate=1.0, units=500, seconds=530.0)
    assert enough_seconds(long) == pytest.approx(20 + 1.5 * 30)


def test_runs_in_turns_are_complete_if_they_fit_into_the_time_left() -> None:
    one = race(w=[10])      # a process of 5 s
    names = ["as written", "a", "b"]
    assert budget(90, 60).in_turns(one, names, 6) == 10                     # three of 5 s fit: each may take twice that
    assert budget(600, 0).in_turns(one, names, 6) == pytest.approx(100, abs=1)
    long = Race()
    long.enter(baseline_policy())
    long.add(trial("as written", startup=10.0, rate=1.0, units=500, seconds=530.0))
    assert budget(600, 0).in_turns(long, names, 6) == pytest.approx(100, abs=1)     # they do not: a share


def test_a_round_in_turns_gets_the_time_left_but_enough_for_a_few_units() -> None:
    one = race(w=[10])      # a process of 5 s
    assert budget(600, 100).of_round(one, ["as written", "a"]) == pytest.approx(600, abs=1)
    assert budget(600, 599).of_round(one, ["as written", "a"]) == 20


def test_the_budget_of_a_verdict_is_estimated_from_the_first_run() -> None:
    complete = trial("as written", startup=10.0, rate=1.0, units=500, seconds=530.0)
    assert budget(600, 530).needed(complete, 4) == pytest.approx(530 + 9 * 65, abs=1)     # runs may be stopped early
    short = trial("as written", seconds=5.0)
    assert budget(600, 5).needed(short, 4) == pytest.approx(5 + 9 * 5, abs=1)


def test_a_short_first_run_is_only_a_warm_up() -> None:
    one = race(w=[10])      # a process of 5 s
    assert budget(600, 0).allows_warm_up(one)
    assert not budget(60, 0).allows_warm_up(one)


def test_a_round_starts_only_if_it_is_likely_to_end_in_time() -> None:
    one = race(w=[10], a=[9])       # two processes of 5 s
    assert budget(60, 40).fits(one, ["as written", "a"], 2)
    assert not budget(60, 55).fits(one, ["as written", "a"], 2)
    assert budget(60, 55).fits(one, ["as written", "a"], 1)


def test_number_of_runs_until_the_first_verdict() -> None:
    assert num_runs_to_come(4, 1, 0) == 8
    assert num_runs_to_come(4, 2, 1) == 3
    assert num_runs_to_come(4, 9, 4) == 1
