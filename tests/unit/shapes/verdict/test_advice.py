"""One recommendation, or a refusal with what would settle the question."""

from collections.abc import Sequence

import pytest

from tests.unit.shapes.trial_samples import rounds
from torchtriage.findings.shape_study import (
    Advice,
    Basis,
    Branch,
    Crossover,
    Interval,
    Need,
    Question,
    ShapeStudy,
    VaryingSize,
)
from torchtriage.reporters import shape_text
from torchtriage.shapes.runs.trial import common_span
from torchtriage.shapes.verdict.advice import advise, decision_tree
from torchtriage.shapes.verdict.ranking import ranked

NAMES = {"w": "as written", "t": "dynamic=True", "f": "dynamic=False", "m": "marked"}


def advice(crossovers: Sequence[Crossover] = (), baseline: str = "as written", **totals: Sequence[float]) -> Advice:
    trials = {NAMES[key]: rounds(NAMES[key], values) for key, values in totals.items()}
    span = common_span([t for runs in trials.values() for t in runs])
    ranking = ranked(trials, span, 10, baseline=baseline)
    settings = {"dynamic=True": ["set it"]}
    return advise(ranking, crossovers, 10, settings, round_seconds=60, spent_seconds=300)


def study(given: Advice) -> ShapeStudy:
    return ShapeStudy(command=(), unit="call", num_units=10, num_planned=10, policies=(), advice=given)


def reason(given: Advice) -> str:
    return shape_text.reason(study(given))


def needs(given: Advice) -> str:
    return shape_text.needs(study(given))


def test_a_winner_comes_with_its_gain_and_its_setting() -> None:
    found = advice(w=[10, 10, 10], t=[5, 5, 5])
    assert (found.policy, found.setting, found.requirement) == ("dynamic=True", ["set it"], None)
    assert (found.basis, found.total_seconds, found.num_rounds, found.rivals) == (Basis.MEASURED, 5.0, 3, ())
    assert found.compared_with == "as written"
    assert found.gain == Interval(middle=2.0, low=pytest.approx(2.0), high=pytest.approx(2.0))
    assert reason(found) == "5.00 s for 10 calls, 2.0x (2.0x to 2.0x) faster than the unmodified program"
    assert needs(found) == ""


def test_the_baseline_is_kept_when_nothing_is_better() -> None:
    found = advice(w=[10, 10, 10], t=[10.1, 10, 10], f=[20, 20])
    assert (found.policy, found.setting) == ("as written", ())
    assert reason(found) == "10.0 s for 10 calls, and no other policy is faster by more than 3%"


def test_overlapping_intervals_are_refused_with_the_way_to_settle_it() -> None:
    found = advice(w=[10, 12, 9], t=[9, 13, 7])
    assert (found.policy, found.rivals, found.compared_with) == ("", ("dynamic=True",), "as written")
    assert reason(found) == (
        "dynamic=True is neither clearly faster nor slower than the unmodified program; keep your code unchanged"
    )
    assert found.requirement is not None
    assert found.requirement.kind == Need.ROUNDS
    assert found.requirement.num_rounds > 1
    assert needs(found).startswith("about ")
    assert "more rounds" in needs(found)
    assert "--budget" in needs(found)


def test_several_undecided_policies_are_all_named() -> None:
    found = advice(w=[10, 12, 9], t=[9, 13, 7], m=[9, 12, 8])
    assert reason(found).startswith("dynamic=True and marked are neither clearly faster nor slower")


def test_a_difference_below_the_noise_asks_for_no_more_rounds() -> None:
    found = advice(w=[10, 14, 7, 10], t=[10.3, 7.21, 14.42, 10.3])
    assert found.requirement is not None
    assert found.requirement.kind == Need.LESS_NOISE
    assert needs(found) == "more rounds will not decide it: the difference is smaller than this machine's timing noise"


def test_after_one_round_another_is_needed() -> None:
    assert needs(advice(w=[10], t=[5])) == "about 1 more round, 60s: --budget 8m"


def test_an_undecided_winner_over_the_baseline_is_recommended_with_a_doubt() -> None:
    found = advice(w=[30, 31, 30], t=[10, 11, 9], m=[9.9, 9.8, 10.4])
    assert (found.policy, found.rivals) == ("dynamic=True", ("marked",))
    assert reason(found).endswith("; marked may be faster still, which 3 rounds cannot decide")
    assert needs(found)


def test_of_undecided_policies_the_simplest_is_recommended_each_time() -> None:
    for f, m in ([9.9, 9.6, 8.4], [8.5, 9.5, 8.9]), ([8.5, 9.5, 8.9], [9.9, 9.6, 8.4]):
        found = advice(w=[14, 15.5, 14.8], t=[9.3, 8.7, 9.1], f=f, m=m)
        assert found.policy == "dynamic=True"
        assert "may be faster still" in reason(found)
    assert advice(w=[30, 33, 30], t=[15, 14.8, 15.4], m=[10, 11.2, 9.5]).policy == "marked"


def test_a_simpler_policy_wins_a_tie_but_not_if_it_seems_far_behind() -> None:
    found = advice(w=[14, 15.5, 14.8], t=[8.7, 9.2, 9.0], f=[9.2, 9.6, 8.9], m=[8.3, 9.1, 8.6])
    assert found.policy == "dynamic=True"
    assert "; marked may be faster still" in reason(found)
    assert needs(found)
    found = advice(w=[14, 15.5, 14.8], t=[9.2, 9.8, 9.5], f=[9.2, 9.6, 8.9], m=[8.3, 9.1, 8.6])
    assert found.policy == "marked"


def test_a_few_percent_do_not_justify_more_than_the_simplest() -> None:
    found = advice(w=[30, 30.2, 29.9], t=[10.2, 10.21, 10.19, 10.2], m=[10, 10, 10.01, 10])
    assert (found.policy, found.requirement) == ("dynamic=True", None)
    assert advice(w=[30, 30.2, 29.9], t=[10.8, 10.81, 10.79, 10.8], m=[10, 10, 10.01, 10]).policy == "marked"


def test_a_doubt_about_the_baseline_is_never_a_recommendation() -> None:
    assert advice(w=[10, 10.3, 10], t=[9, 10.4, 9.2], m=[9.1, 10.5, 9.3]).policy == ""


def test_a_crossover_limits_the_advice() -> None:
    later = [Crossover(units=41_000, before="dynamic=True", after="dynamic=False")]
    found = reason(advice(later, w=[10, 10, 10], t=[5, 5, 5]))
    assert found.endswith("; it is the fastest up to about 41,000 calls, then dynamic=False")
    earlier = [Crossover(units=4, before="as written", after="dynamic=True")]
    found = reason(advice(earlier, w=[10, 10, 10], t=[5, 5, 5]))
    assert found.endswith("; it is the fastest from about 4 calls on, before that the unmodified program")


@pytest.mark.parametrize(("units", "is_horizon"), [(10, False), (11, True)])
def test_only_a_crossover_beyond_the_planned_units_is_an_end(units: int, is_horizon: bool) -> None:
    crossover = Crossover(units=units, before="dynamic=True", after="dynamic=False")
    assert (advice([crossover], w=[10, 10, 10], t=[5, 5, 5]).horizon == crossover) is is_horizon


def test_without_a_baseline_the_runner_up_is_named() -> None:
    found = advice(baseline="", t=[5, 5, 5], f=[10, 10, 10])
    assert reason(found) == "5.00 s for 10 calls, 2.0x faster than dynamic=False"


def test_without_a_baseline_undecided_policies_are_named() -> None:
    assert reason(advice(baseline="", t=[9, 13, 7], f=[10, 12, 9])) == (
        "none of dynamic=True and dynamic=False is clearly faster"
    )


def size(num_values: int, source: str = "L['x']", dim: int | None = 1, listed: int | None = None) -> VaryingSize:
    values = {str(16 * (n + 1)): 2 for n in range(listed if listed is not None else num_values)}
    return VaryingSize(
        path="m.py", line=1, function="f", source=source, dim=dim, values=values, num_values=num_values,
        num_calls=2 * num_values,
    )


def branches(sizes: list[VaryingSize] | None) -> dict[str, Branch]:
    return {b.kind: b for b in decision_tree(sizes, 12, 40)}


def questions(sizes: list[VaryingSize] | None) -> dict[str, tuple[str, str]]:
    given = study(advice(w=[10, 10, 10], t=[5, 5, 5]))
    cells = [shape_text.branch_cells(given, b) for b in decision_tree(sizes, 12, 40)]
    return {question: (answer, evidence) for question, answer, evidence in cells}


def test_fixed_shapes_end_the_tree() -> None:
    found = questions([])
    assert found["Is the tensor shape fixed?"] == (
        "yes: one graph is enough, dynamic=False is safe",
        "12 sizes and numbers over 40 calls, none took a second value",
    )
    assert list(found) == ["Is the tensor shape fixed?", "What did the measurement show?"]


def test_many_values_change_frequently() -> None:
    found = questions([size(20), size(3, "L['n']", None)])
    assert found["Is the tensor shape fixed?"] == ("no", "x.size(1) and n vary; sizes and numbers recorded: 12")
    answer, evidence = found["Does it change frequently?"]
    assert answer == "yes: use dynamic shapes, a graph for each of 20 values does not pay off"
    assert evidence == "x.size(1) took 20 values in 40 calls"


@pytest.mark.parametrize(("num_values", "is_frequent"), [(2, False), (7, False), (8, False), (9, True)])
def test_a_shape_is_frequent_above_the_default_limit_of_eight_graphs(num_values: int, is_frequent: bool) -> None:
    assert branches([size(num_values)])[Question.IS_FREQUENT].is_yes is is_frequent


def test_the_most_varied_size_answers_the_questions() -> None:
    found = branches([size(3), size(9, "L['y']"), size(4, "L['z']")])
    assert found[Question.IS_FREQUENT].names == ["y.size(1)"]
    assert found[Question.IS_FIXED].names == ["y.size(1)", "z.size(1)", "x.size(1)"]
    assert found[Question.IS_BUCKETED].names == ["y.size(1)"]


@pytest.mark.parametrize(("num_sizes", "text"), [
    (1, "a.size(1) varies; "), (3, "a.size(1), b.size(1) and c.size(1) vary; "),
    (4, "a.size(1), b.size(1), c.size(1) and 1 more vary; "),
])
def test_three_varying_sizes_are_named_and_the_rest_counted(num_sizes: int, text: str) -> None:
    sizes = [size(9 - n, f"L['{name}']") for n, name in enumerate("abcd"[:num_sizes])]
    assert questions(sizes)["Is the tensor shape fixed?"][1].startswith(text)


def test_few_values_could_have_a_graph_each_or_buckets() -> None:
    found = questions([size(3)])
    assert found["Does it change frequently?"][0] == "no: 3 values, each could have its own graph"
    answer, evidence = found["Would padding or buckets work?"]
    assert answer in ("2 buckets at 16, 48: 2 compiles", "2 buckets at 32, 48: 2 compiles")
    assert "17% of the padded x.size(1) would be padding (estimated" in evidence or "14% of" in evidence


@pytest.mark.parametrize(("num_values", "num_buckets"), [(2, 1), (3, 2), (4, 3), (5, 4), (6, 4)])
def test_there_are_fewer_buckets_than_values_and_at_most_four(num_values: int, num_buckets: int) -> None:
    assert len(branches([size(num_values)])[Question.IS_BUCKETED].edges) == num_buckets


def test_one_bucket_is_not_plural() -> None:
    assert questions([size(2)])["Would padding or buckets work?"][0] == "1 bucket at 32: 1 compile"


def test_no_buckets_for_numbers_and_for_incomplete_sizes() -> None:
    assert Question.IS_BUCKETED not in branches([size(3, "L['n']", None)])
    assert Question.IS_BUCKETED not in branches([size(100, listed=64)])
    assert Question.IS_BUCKETED not in branches([size(5, listed=4)])


def test_sizes_that_could_not_be_recorded_are_not_measured() -> None:
    assert questions(None)["Is the tensor shape fixed?"][0] == "not measured"


def test_the_measurement_has_the_last_word() -> None:
    answer, evidence = questions([size(3)])["What did the measurement show?"]
    assert answer == "dynamic=True"
    assert evidence.startswith("5.00 s for 10 calls")
    undecided = study(advice(w=[10, 12, 9], t=[9, 13, 7]))
    _, answer, evidence = shape_text.branch_cells(undecided, decision_tree([], 1, 1)[-1])
    assert answer == "inconclusive"
    assert evidence.startswith("dynamic=True is neither clearly faster nor slower")
