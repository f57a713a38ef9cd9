"""A policy is recommended only if the rounds show that it is as good as any."""

from collections.abc import Sequence

from tests.unit.shapes.trial_samples import rounds
from torchtriage.shapes.runs.trial import common_span
from torchtriage.shapes.verdict.ranking import FAR_BEHIND_IN_TURNS, Ranking, ranked


def ranking(baseline: str = "as written", **totals: Sequence[float]) -> Ranking:
    """w: as written, t: dynamic=True, f: dynamic=False, m: marked."""
    names = {"w": "as written", "t": "dynamic=True", "f": "dynamic=False", "m": "marked"}
    trials = {names[key]: rounds(names[key], values) for key, values in totals.items()}
    span = common_span([t for runs in trials.values() for t in runs])
    return ranked(trials, span, span.num_units, baseline=baseline)


def test_a_clear_winner_is_settled_after_three_rounds() -> None:
    assert ranking(w=[10, 11, 10], t=[5, 5.2, 5.1]).settled() == "dynamic=True"


def test_two_rounds_settle_large_differences_between_enough_policies() -> None:
    assert ranking(w=[10], t=[5], m=[9], f=[9]).settled() == ""
    assert ranking(w=[10, 11], t=[8, 8.1]).settled() == ""
    assert ranking(w=[10, 11], t=[5, 5.1], m=[9, 9.5], f=[9, 9.1]).settled() == "dynamic=True"
    assert ranking(w=[10, 10.1], t=[9, 9.9], m=[9.5, 9.9], f=[10, 10.1]).settled() == ""


def test_a_gain_below_three_percent_keeps_the_baseline() -> None:
    assert ranking(w=[10, 10, 10], t=[9.9, 9.95, 9.9]).settled() == "as written"


def test_overlapping_intervals_settle_nothing() -> None:
    assert ranking(w=[10, 12, 9], t=[9, 13, 7]).settled() == ""


def test_of_equal_winners_the_simplest_is_chosen() -> None:
    found = ranking(w=[10, 10, 10], t=[5.02, 5.03, 5.01], m=[5, 5, 5])
    assert found.leader == "marked"
    assert found.settled() == "dynamic=True"


def test_a_leader_that_does_not_clearly_beat_the_baseline_is_not_a_winner() -> None:
    found = ranking(w=[10, 10, 10], t=[8, 11, 8])
    assert found.leader == "dynamic=True"
    assert (found.settled(), found.guess()) == ("", "")


def test_one_outlier_does_not_make_a_leader() -> None:
    assert ranking(w=[10, 10, 10], t=[11, 2, 11]).leader == "as written"


def test_a_policy_that_ran_only_in_a_slow_round_may_lead() -> None:
    found = ranking(w=[20, 10, 10.1, 9.9], f=[18, 9.2, 9.1, 9.1], m=[16])
    assert found.leader == "marked"
    assert 1.1 < found.over("dynamic=False", "marked") < 1.16


def test_a_policy_far_behind_in_two_rounds_is_eliminated_but_not_the_baseline() -> None:
    found = ranking(w=[10, 11], t=[4, 4], f=[9, 9])
    assert found.is_far_behind("dynamic=False")
    assert not found.is_far_behind("as written")
    assert not found.is_far_behind("dynamic=True")
    assert "dynamic=False" not in found.running()


def test_policy_is_eliminated_through_shared_opponents() -> None:
    totals = {"as written": {1: 10.0, 2: 20.0}, "dynamic=False": {1: 9.0}, "marked": {1: 6.0}, "mixed": {2: 10.0}}
    found = Ranking(totals=totals, baseline="as written", far_behind=FAR_BEHIND_IN_TURNS)
    assert [name for name in totals if found.is_far_behind(name)] == ["as written", "dynamic=False"]
    assert not Ranking(totals=totals, baseline="as written").is_far_behind("dynamic=False")


def test_an_eliminated_policy_does_not_delay_the_verdict() -> None:
    assert ranking(w=[10, 10, 10], t=[4, 4, 4], f=[9, 9]).settled() == "dynamic=True"


def test_a_late_policy_delays_the_verdict() -> None:
    assert ranking(w=[10, 10, 10], t=[4, 4, 4], m=[4]).settled() == ""


def test_a_clearly_slower_policy_does_not_run_again() -> None:
    assert ranking(w=[12, 12.1, 12], t=[9, 9.4, 9], f=[9.3, 9, 9.3]).running() == ["dynamic=True", "dynamic=False"]


def test_a_policy_with_a_simpler_equal_does_not_run_again() -> None:
    found = ranking(w=[12, 12.1, 12], t=[9.04, 9.05, 9.04], f=[9, 9.01, 9], m=[9.02, 9.02, 9.03])
    assert found.running() == ["dynamic=True", "dynamic=False"]
    assert found.settled() == "dynamic=True"


def test_a_simpler_policy_runs_until_it_is_decided_whether_it_is_equal() -> None:
    found = ranking(
        w=[12, 12.1, 12], t=[9.2, 9.35, 9.3], m=[9, 9, 9.1]
    )  # marked is the best, and 3 % before dynamic=True
    assert (found.settled(), found.running()) == ("", ["dynamic=True", "marked"])
    found = ranking(w=[12, 12.1, 12], t=[9.6, 9.65, 9.6], m=[9, 9, 9.02])
    assert found.settled() == "marked"


def test_a_far_behind_baseline_is_beaten_only_once_the_interval_shows_it() -> None:
    totals = {"as written": {1: 13.0, 2: 15.0}, "dynamic=None": {1: 10.0, 2: 10.3}, "marked": {1: 13.5}}
    assert (
        Ranking(totals=totals, baseline="as written", far_behind=FAR_BEHIND_IN_TURNS).settled() == ""
    )  # one degree of freedom
    totals = {name: {**rounds, 3: 1.01 * rounds[1]} for name, rounds in totals.items()}
    assert Ranking(totals=totals, baseline="as written", far_behind=FAR_BEHIND_IN_TURNS).settled() == "dynamic=None"


def test_a_narrow_interval_at_the_edge_is_judged_by_its_middle() -> None:
    assert ranking(w=[12, 12, 12], t=[9.26, 9.261, 9.26], m=[9, 9, 9]).settled() == "dynamic=True"  # behind by 2.9 %
    assert ranking(w=[12, 12, 12], t=[9.28, 9.281, 9.28], m=[9, 9, 9]).settled() == "marked"


def test_without_a_baseline_the_best_wins_by_itself() -> None:
    assert ranking("", t=[5, 5, 5], f=[10, 10, 10]).settled() == "dynamic=True"


def test_a_wider_interval_needs_more_rounds() -> None:
    few, many = ranking(w=[10, 10.2, 9.9], t=[9.6, 9.9, 9.4]), ranking(w=[10, 12, 9], t=[9, 13, 7])
    assert 1 <= (few.more_rounds() or 0) < (many.more_rounds() or 0)


def test_too_few_rounds_with_the_leader_need_as_many_more() -> None:
    totals = {"as written": {1: 10.0, 2: 10.1}, "marked": {1: 9.0, 2: 9.1}, "mixed": {2: 8.5}}
    assert Ranking(totals=totals, baseline="as written").more_rounds() == 1
    assert Ranking(totals={"as written": {1: 10.0}, "marked": {1: 9.0}}, baseline="as written").more_rounds() == 1
