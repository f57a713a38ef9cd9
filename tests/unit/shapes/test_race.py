"""Who runs in which round, and when a function goes its own way."""

from tests.unit.shapes.trial_samples import race, trial
from torchtriage.shapes.policies import Policy
from torchtriage.shapes.race import Race, best_by_function, divided_sites, mixed_choice
from torchtriage.shapes.trials import Lane, Trial


def test_each_round_begins_with_another_policy() -> None:
    one = race(w=[10], a=[9], b=[11])
    assert [one.order(n, 10, written_last=False)[0] for n in (1, 2, 3, 4)] == ["as written", "a", "b", "as written"]


def test_as_written_is_last_where_runs_write_files() -> None:
    one = race(w=[10, 10, 10], a=[2, 2.3, 1.9], b=[2.2, 1.9, 2.1])
    assert one.order(4, 10, written_last=True)[-1] == "as written"
    assert "as written" not in one.order(4, 10, written_last=False)


def test_a_policy_that_lost_does_not_run_again_and_one_that_never_ran_does_beside_as_written() -> None:
    one = race(w=[10, 10], a=[2, 2.3], b=[9, 9], c=[2.2, 1.9])
    assert sorted(one.order(2, 10, written_last=False)) == ["a", "as written", "c"]
    assert sorted(one.order(3, 10, written_last=False)) == ["a", "c"]       # that as written lost is known by then
    one.enter(Policy(name="d"))
    assert sorted(one.order(3, 10, written_last=False)) == ["a", "as written", "c", "d"]


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


def test_of_policies_that_suit_a_function_alike_it_wants_the_simplest() -> None:
    trials = {n: [two_functions(n, p, d)] for n, p, d in (
        ("as written", 5.0, 0.1), ("dynamic=False", 1.0, 0.9), ("dynamic=None", 1.02, 0.3),
    )}
    assert best_by_function(trials) == {"prefill": "dynamic=None", "decode": "as written"}


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
