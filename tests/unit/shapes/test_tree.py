"""The decision tree gives the measured fact with every answer."""

from torchtriage.findings.shape_study import Advice, VaryingSize
from torchtriage.shapes.tree import decision_tree

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
