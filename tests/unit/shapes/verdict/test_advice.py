"""One recommendation, or a refusal that says what would settle it."""

from collections.abc import Sequence

from tests.unit.shapes.trial_samples import rounds
from torchtriage.findings.shape_study import Advice, Crossover, VaryingSize
from torchtriage.shapes.runs.trial import common_span
from torchtriage.shapes.verdict.advice import Plan, advise, decision_tree
from torchtriage.shapes.verdict.ranking import ranked

NAMES = {"w": "as written", "t": "dynamic=True", "f": "dynamic=False", "m": "marked"}


def advice(crossovers: Sequence[Crossover] = (), baseline: str = "as written", **totals: Sequence[float]) -> Advice:
    trials = {NAMES[key]: rounds(NAMES[key], values) for key, values in totals.items()}
    span = common_span([t for runs in trials.values() for t in runs])
    plan = Plan(
        unit="call", num_planned=10, settings={"dynamic=True": ["set it"]},
        round_seconds=60, spent_seconds=300,
    )
    return advise(ranked(trials, span, 10, baseline=baseline), crossovers, plan)


def test_a_winner_comes_with_its_gain_and_its_setting() -> None:
    found = advice(w=[10, 10, 10], t=[5, 5, 5])
    assert (found.policy, found.setting, found.needs) == ("dynamic=True", ["set it"], "")
    assert found.text == "dynamic=True: 5.00 s for 10 calls, 2.0x (2.0x to 2.0x) quicker than as written"


def test_as_written_is_kept_when_nothing_is_better() -> None:
    found = advice(w=[10, 10, 10], t=[10.1, 10, 10], f=[20, 20])
    assert (found.policy, found.setting) == ("as written", ())
    assert found.text == "keep it as written: 10.0 s for 10 calls, and nothing measured is quicker by more than 3%"


def test_overlapping_intervals_are_refused_with_the_way_to_settle_it() -> None:
    found = advice(w=[10, 12, 9], t=[9, 13, 7])
    assert found.policy == ""
    assert found.text == "not settled: dynamic=True was not told apart from as written; keep it until then"
    assert found.needs.startswith("about ")
    assert "more rounds" in found.needs
    assert "--budget" in found.needs


def test_after_one_round_another_is_needed() -> None:
    assert advice(w=[10], t=[5]).needs == "about 1 more round, 60s: --budget 8m"


def test_two_policies_that_both_beat_as_written_are_a_recommendation_with_a_doubt() -> None:
    found = advice(w=[30, 31, 30], t=[10, 11, 9], m=[9.9, 9.8, 10.4])
    assert found.policy == "dynamic=True"
    assert "marked may be better still" in found.text
    assert found.needs


def test_of_policies_that_are_not_told_apart_the_simplest_is_recommended_each_time() -> None:
    for f, m in ([9.9, 9.6, 8.4], [8.5, 9.5, 8.9]), ([8.5, 9.5, 8.9], [9.9, 9.6, 8.4]):
        found = advice(w=[14, 15.5, 14.8], t=[9.3, 8.7, 9.1], f=f, m=m)
        assert found.policy == "dynamic=True"
        assert "may be better still" in found.text
    assert advice(w=[30, 33, 30], t=[15, 14.8, 15.4], m=[10, 11.2, 9.5]).policy == "marked"


def test_a_simpler_policy_is_taken_where_the_best_is_not_told_apart_from_it_but_not_one_that_seems_far_behind() -> None:
    found = advice(w=[14, 15.5, 14.8], t=[8.7, 9.2, 9.0], f=[9.2, 9.6, 8.9], m=[8.3, 9.1, 8.6])
    assert found.policy == "dynamic=True"
    assert "; marked may be better still" in found.text
    assert found.needs
    found = advice(w=[14, 15.5, 14.8], t=[9.2, 9.8, 9.5], f=[9.2, 9.6, 8.9], m=[8.3, 9.1, 8.6])
    assert found.policy == "marked"


def test_a_few_percent_are_no_reason_for_more_than_the_simplest() -> None:
    found = advice(w=[30, 30.2, 29.9], t=[10.2, 10.21, 10.19, 10.2], m=[10, 10, 10.01, 10])
    assert (found.policy, found.needs) == ("dynamic=True", "")
    assert advice(w=[30, 30.2, 29.9], t=[10.8, 10.81, 10.79, 10.8], m=[10, 10, 10.01, 10]).policy == "marked"


def test_a_doubt_about_as_written_is_never_a_recommendation() -> None:
    assert advice(w=[10, 10.3, 10], t=[9, 10.4, 9.2], m=[9.1, 10.5, 9.3]).policy == ""


def test_a_crossover_says_up_to_where_it_holds() -> None:
    later = [Crossover(units=41_000, before="dynamic=True", after="dynamic=False")]
    assert advice(later, w=[10, 10, 10], t=[5, 5, 5]).text.endswith("; it wins up to about 41,000 calls, then dynamic=False")
    earlier = [Crossover(units=4, before="dynamic=False", after="dynamic=True")]
    assert advice(earlier, w=[10, 10, 10], t=[5, 5, 5]).text.endswith("; it wins from about 4 calls on, before that dynamic=False")


def test_without_a_baseline_the_runner_up_is_named() -> None:
    found = advice(baseline="", t=[5, 5, 5], f=[10, 10, 10])
    assert found.text == "dynamic=True: 5.00 s for 10 calls, 2.0x quicker than dynamic=False"


ADVICE = Advice(policy="dynamic=True", text="dynamic=True: 5 s")


def size(num_values: int, source: str = "L['x']", dim: int | None = 1, listed: int | None = None) -> VaryingSize:
    values = {str(16 * (n + 1)): 2 for n in range(listed if listed is not None else num_values)}
    return VaryingSize(
        path="m.py", line=1, function="f", source=source, dim=dim, values=values, num_values=num_values, num_calls=2 * num_values,
    )


def questions(sizes: list[VaryingSize] | None) -> dict[str, tuple[str, str]]:
    return {b.question: (b.answer, b.evidence) for b in decision_tree(sizes, 12, 40, ADVICE)}


def test_fixed_shapes_end_the_tree() -> None:
    found = questions([])
    assert found["Is the tensor shape fixed?"] == (
        "yes: one graph is enough, dynamic=False is safe", "12 sizes and numbers were seen over 40 calls, none took a second value",
    )
    assert list(found) == ["Is the tensor shape fixed?", "What did the measurement say?"]


def test_many_values_change_frequently() -> None:
    found = questions([size(20), size(3, "L['n']", None)])
    assert found["Is the tensor shape fixed?"] == ("no", "x.size(1) and n vary; sizes and numbers seen: 12")
    answer, evidence = found["Does it change frequently?"]
    assert answer.startswith("yes")
    assert evidence == "x.size(1) took 20 values in 40 calls"


def test_few_values_could_have_a_graph_each_or_buckets() -> None:
    found = questions([size(3)])
    assert found["Does it change frequently?"][0] == "no: 3 values, each could have a graph of its own"
    answer, evidence = found["Would padding or buckets do?"]
    assert answer in ("2 buckets at 16, 48: 2 compiles", "2 buckets at 32, 48: 2 compiles")
    assert "17% of the padded x.size(1) would be padding (estimated" in evidence or "14% of" in evidence


def test_no_buckets_for_numbers_and_for_sizes_that_are_not_known_in_full() -> None:
    assert "Would padding or buckets do?" not in questions([size(3, "L['n']", None)])
    assert "Would padding or buckets do?" not in questions([size(100, listed=64)])


def test_sizes_that_could_not_be_seen_are_said() -> None:
    assert questions(None)["Is the tensor shape fixed?"][0] == "not measured"


def test_the_measurement_has_the_last_word() -> None:
    assert questions([size(3)])["What did the measurement say?"] == ("dynamic=True", "5 s")
    open_ = decision_tree([], 1, 1, Advice(text="not settled: too close"))[-1]
    assert (open_.answer, open_.evidence) == ("not settled", "too close")
