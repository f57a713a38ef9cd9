"""Who runs in which round, and when a function goes its own way."""

from typing import Any

import pytest

from tests.unit.shapes.trial_samples import rounds, trial
from torchtriage.errors import CommandError
from torchtriage.shapes.budget import Budget, enough_seconds, num_runs_to_come, parse_duration
from torchtriage.shapes.policies import Policy, as_written
from torchtriage.shapes.race import Race, best_by_function, divided_sites, mixed_choice
from torchtriage.shapes.trials import Lane, Trial


def race(**totals: list[float]) -> Race:
    found = Race()
    found.enter(as_written())
    for name, values in {"as written": totals.pop("w"), **totals}.items():
        found.enter(Policy(name=name))
        for one in rounds(name, values):
            found.add(one)
    return found


def test_each_round_begins_with_another_policy() -> None:
    one = race(w=[10], a=[9], b=[11])
    assert [one.order(n, 10, written_last=False)[0] for n in (1, 2, 3, 4)] == ["as written", "a", "b", "as written"]


def test_as_written_is_last_where_runs_write_files() -> None:
    one = race(w=[10, 10, 10], a=[2, 2.3, 1.9], b=[2.2, 1.9, 2.1])
    assert one.order(4, 10, written_last=True)[-1] == "as written"
    assert "as written" not in one.order(4, 10, written_last=False)


def test_a_policy_that_lost_does_not_run_again_and_one_that_never_ran_does() -> None:
    one = race(w=[10, 10], a=[2, 2], b=[9, 9])
    one.enter(Policy(name="c"))
    assert sorted(one.order(2, 10, written_last=False)) == ["a", "as written", "c"]
    assert sorted(one.order(3, 10, written_last=False)) == ["a", "c"]       # that as written lost is known by then


def test_of_policies_with_the_same_code_the_simplest_stays() -> None:
    one = Race()
    code = {"as written": "a b", "dynamic=None": "a", "dynamic=True": "c", "dynamic=False": "a b", "marked": "c", "mixed": "", "late": ""}
    for name, names in code.items():
        one.enter(Policy(name=name))
        one.add(trial(name, code=frozenset(names.split()), num_compiles=1))
    one.add(trial("late", code=frozenset("c"), num_compiles=2))
    assert one.drop_same_code() == {"dynamic=False": "as written", "marked": "dynamic=True"}
    assert list(one.policies) == ["as written", "dynamic=None", "dynamic=True", "mixed", "late"]
    assert one.drop_same_code() == {}


def test_a_policy_that_failed_is_out_and_a_failed_run_as_written_is_only_left_out() -> None:
    one = race(w=[10], a=[2])
    assert one.add(trial("a", 2, exit_status=1))
    assert one.add(trial("as written", 2, exit_status=1))
    assert list(one.compared()) == ["as written"]
    assert list(one.failures) == ["a"]


def test_an_early_end_comes_to_light_with_the_second_run_as_written() -> None:
    one = race(w=[10])
    one.enter(Policy(name="a"))
    one.add(trial("a", 1, units=3))
    one.judge_again()
    assert one.failures == {}
    one.add(trial("as written", 2))
    one.judge_again()
    assert one.failures == {"a": "ended early: 3 calls instead of 10"}


def test_a_second_run_in_a_round_takes_the_place_of_the_first() -> None:
    one = race(w=[10, 10])
    one.add(trial("as written", 1, rate=0.2))
    assert [t.round for t in one.trials["as written"]] == [2, 1]


def two_functions(name: str, prefill: float, decode: float) -> Trial:
    lanes = {"prefill": Lane.of([prefill] * 3), "decode": Lane.of([decode] * 30)}
    return Trial(policy=name, round=1, functions=lanes, sites={"prefill": "m.py:3", "decode": "m.py:4"})


def test_functions_that_want_different_policies_are_mixed() -> None:
    trials = {n: [two_functions(n, p, d)] for n, p, d in (
        ("as written", 5.0, 0.5), ("dynamic=False", 1.0, 0.9), ("dynamic=True", 4.0, 0.1), ("marked", 0.1, 0.01),
    )}
    assert best_by_function(trials) == {"prefill": "dynamic=False", "decode": "dynamic=True"}
    assert mixed_choice(trials) == {"m.py:3": "dynamic=False", "m.py:4": "dynamic=True"}
    assert divided_sites(trials) == {}


def test_functions_that_one_policy_suits_as_well_are_not() -> None:
    trials = {n: [two_functions(n, p, d)] for n, p, d in (("as written", 5.0, 0.5), ("dynamic=True", 1.0, 0.49))}
    assert best_by_function(trials) == {"prefill": "dynamic=True", "decode": "as written"}
    assert mixed_choice(trials) == {}


def test_two_functions_of_one_call_must_agree() -> None:
    def at_one_site(one: Trial) -> Trial:
        return Trial(policy=one.policy, round=1, functions=one.functions, sites=dict.fromkeys(one.functions, "m.py:3"))

    trials = {n: [at_one_site(two_functions(n, p, d))] for n, p, d in (
        ("as written", 5.0, 0.5), ("dynamic=False", 1.0, 0.9), ("dynamic=True", 4.0, 0.1),
    )}
    assert mixed_choice(trials) == {}
    assert divided_sites(trials) == {"m.py:3": ["prefill", "decode"]}


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400)])
def test_a_budget_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-3m", "0", "10 minutes"])
def test_a_budget_that_is_none_is_refused(text: str) -> None:
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


def test_runs_in_turns_are_whole_if_they_fit_into_the_time_left() -> None:
    one = race(w=[10])      # a process of 5 s
    names = ["as written", "a", "b"]
    assert budget(90, 60).in_turns(one, names, 6) == 10                     # three of 5 s fit: each may take twice that
    assert budget(600, 0).in_turns(one, names, 6) == pytest.approx(100, abs=1)
    long = Race()
    long.enter(as_written())
    long.add(trial("as written", startup=10.0, rate=1.0, units=500, seconds=530.0))
    assert budget(600, 0).in_turns(long, names, 6) == pytest.approx(100, abs=1)     # they do not: a share


def test_a_round_in_turns_takes_what_is_left_but_enough_for_a_few_units_of_each() -> None:
    one = race(w=[10])      # a process of 5 s
    assert budget(600, 100).of_round(one, ["as written", "a"]) == pytest.approx(600, abs=1)
    assert budget(600, 599).of_round(one, ["as written", "a"]) == 20


def test_a_quick_first_run_is_only_a_warm_up() -> None:
    one = race(w=[10])      # a process of 5 s
    assert budget(600, 0).allows_warm_up(one)
    assert not budget(60, 0).allows_warm_up(one)


def test_a_round_is_begun_only_if_it_is_likely_to_end_in_time() -> None:
    one = race(w=[10], a=[9])       # two processes of 5 s
    assert budget(60, 40).fits(one, ["as written", "a"], 2)
    assert not budget(60, 55).fits(one, ["as written", "a"], 2)
    assert budget(60, 55).fits(one, ["as written", "a"], 1)


def test_runs_up_to_the_first_verdict() -> None:
    assert num_runs_to_come(4, 1, 0) == 8
    assert num_runs_to_come(4, 2, 1) == 3
    assert num_runs_to_come(4, 9, 4) == 1
