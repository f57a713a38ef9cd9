"""The edges of buckets are the best there are, and come from a histogram that was recorded."""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchtriage.errors import TriageError
from torchtriage.findings.shape_study import STUDY_FILE, Advice, ShapeStudy, VaryingSize
from torchtriage.shapes.functions.edges import best_edges, histogram_of, next_edge, read_study, waste_share


def padded(histogram: dict[int, int], edges: tuple[int, ...]) -> int:
    return sum((min(e for e in edges if e >= size) - size) * calls for size, calls in histogram.items())


def least_padded(histogram: dict[int, int], num_buckets: int) -> int:
    """By trying every choice of edges, also those off the sizes that occur."""
    others = range(max(histogram))
    return min(
        padded(histogram, (*chosen, max(histogram)))
        for num in range(num_buckets) for chosen in itertools.combinations(others, num)
    )


@given(st.dictionaries(st.integers(0, 12), st.integers(1, 30), min_size=1, max_size=8), st.integers(1, 4))
def test_no_other_edges_pad_less(histogram: dict[int, int], num_buckets: int) -> None:
    edges, share = best_edges(histogram, num_buckets)
    waste = padded(histogram, edges)
    real = sum(size * calls for size, calls in histogram.items())
    assert waste == least_padded(histogram, num_buckets)
    assert edges == tuple(sorted(set(edges)))
    assert edges[-1] == max(histogram)
    assert len(edges) == min(num_buckets, len(histogram))
    assert share == pytest.approx(waste / (waste + real) if waste else 0.0)


def test_the_edges_follow_the_calls_and_not_the_sizes() -> None:
    assert best_edges({10: 50, 11: 1, 100: 1000}, 2) == ((11, 100), pytest.approx(50 / (50 + 500 + 11 + 100_000)))
    assert best_edges({10: 1000, 11: 1, 100: 1000}, 2)[0] == (10, 100)
    assert best_edges({10: 1, 60: 3, 100: 100}, 2)[0] == (60, 100)


def test_a_size_without_calls_is_not_an_edge() -> None:
    assert best_edges({16: 3, 500: 0}, 2) == ((16,), 0.0)


def test_thousands_of_sizes_are_fast() -> None:
    edges, share = best_edges({size: 1 for size in range(1, 4097)}, 8)
    assert len(edges) == 8
    assert share == pytest.approx(256 / 2304.5, abs=0.001)


def test_waste_ignores_sizes_above_the_last_edge() -> None:
    assert waste_share({3: 1, 4: 1, 9: 1}, (4,)) == pytest.approx(1 / 17)


@pytest.mark.parametrize(("histogram", "num_buckets", "said"), [
    ({4: 1}, 0, "num_buckets=0"), ({}, 2, "without calls"), ({4: 0}, 2, "without calls"), ({-1: 2}, 2, "got -1"),
])
def test_an_invalid_histogram_is_refused(histogram: dict[int, int], num_buckets: int, said: str) -> None:
    with pytest.raises(TriageError, match=said):
        best_edges(histogram, num_buckets)


def test_the_next_edge_is_not_below_the_size() -> None:
    assert [next_edge(size, (4, 8)) for size in (0, 4, 5, 8, 9)] == [4, 4, 8, 8, None]


def varying(
    source: str,
    dim: int | None = 1,
    *,
    line: int = 3,
    function: str = "forward",
    num_calls: int = 5,
    num_values: int = 2,
) -> VaryingSize:
    return VaryingSize(path="/m.py", line=line, function=function, source=source, dim=dim,
                       values={"16": num_calls - 1, "20": 1}, num_values=num_values, num_calls=num_calls)


def study_of(*sizes: VaryingSize) -> ShapeStudy:
    return ShapeStudy(
        command=("m.py",), unit="call", num_units=5, num_planned=5, policies=(), advice=Advice(), sizes=sizes
    )


def test_the_histogram_belongs_to_the_argument_and_dimension() -> None:
    study = study_of(
        varying("L['y']"), varying("L['x']", 0, num_calls=9), varying("L['x']", num_calls=7), varying("L['x']", None)
    )
    assert histogram_of(study, "x", 1) == {16: 6, 20: 1}


def test_a_keyword_of_a_wrapper_is_the_argument() -> None:
    assert histogram_of(study_of(varying("L['kwargs']['input_ids']")), "input_ids", 1) == {16: 4, 20: 1}


def test_the_frame_of_the_function_takes_precedence() -> None:
    study = study_of(
        varying("L['x']", num_calls=90, line=9, function="loss"),
        varying("L['x']", num_calls=7),
        varying("L['x']", line=8),
    )
    assert histogram_of(study, "x", 1, ("/m.py", 3)) == {16: 6, 20: 1}
    assert histogram_of(study, "x", 1, ("/other.py", 3), "loss") == {16: 89, 20: 1}
    assert histogram_of(study, "x", 1, ("/other.py", 3), "other") == {16: 89, 20: 1}


def test_an_incomplete_histogram_causes_a_warning() -> None:
    with pytest.warns(UserWarning, match="took 70 sizes and the study lists the 2 most frequent"):
        histogram_of(study_of(varying("L['x']", num_values=70)), "x", 1)


def test_an_unknown_argument_is_refused_with_the_known_ones() -> None:
    with pytest.raises(TriageError, match=r"no varying size of 'z' in dim 1; it has x dim 1$"):
        histogram_of(study_of(varying("L['x']")), "z", 1)


def test_a_study_is_read_from_its_recording(tmp_path: Path) -> None:
    with pytest.raises(TriageError, match="torchtriage shapes"):
        read_study(tmp_path)
    study = study_of(varying("L['x']"))
    (tmp_path / STUDY_FILE).write_text(json.dumps(study.to_dict()))
    assert histogram_of(read_study(tmp_path), "x", 1) == {16: 4, 20: 1}
