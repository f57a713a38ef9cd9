"""Durations, counts, lists and paths read the same everywhere."""

import math
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchtriage import text

UNIT_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
WORDS = st.lists(st.text(alphabet="abc", min_size=1, max_size=3), max_size=8)


@pytest.mark.parametrize(("seconds", "expected"), [
    (0.347, "347 ms"), (754, "12.6 min"), (61.23, "61.2 s"), (10.0, "10.0 s"), (1.24, "1.24 s"), (1.0, "1.00 s"),
    (0.999, "999 ms"), (0.0742, "74.2 ms"), (0.0012, "1.20 ms"), (0.000012, "12.0 us"), (599.4, "599 s"),
    (600, "10.0 min"), (7199.9, "2.00 h"), (9000, "2.50 h"), (36_000_000, "10,000 h"), (-0.5, "-500 ms"),
])
def test_duration_has_three_significant_digits(seconds: float, expected: str) -> None:
    assert text.duration(seconds) == expected


@pytest.mark.parametrize(("seconds", "expected"), [
    (0, "0 s"), (-0.0, "0 s"), (math.nan, "unknown"), (math.inf, "unknown"), (-math.inf, "unknown"),
])
def test_duration_of_zero_nan_and_infinity(seconds: float, expected: str) -> None:
    assert text.duration(seconds) == expected


@pytest.mark.parametrize(("seconds", "expected"), [(0.99999, "1.00 s"), (0.00099999, "1.00 ms"), (599.9, "10.0 min")])
def test_duration_rounds_up_into_the_next_unit(seconds: float, expected: str) -> None:
    assert text.duration(seconds) == expected


@given(st.floats(min_value=1e-5, max_value=1e7))
def test_duration_is_within_half_a_percent(seconds: float) -> None:
    number, unit = text.duration(seconds).split()
    assert float(number.replace(",", "")) * UNIT_SECONDS[unit] == pytest.approx(seconds, rel=5.01e-3)


@given(st.floats(min_value=1e-5, max_value=1e7), st.floats(min_value=1e-5, max_value=1e7))
def test_a_longer_duration_never_reads_as_a_shorter_one(one: float, other: float) -> None:
    shorter, longer = sorted((one, other))

    def read_back(seconds: float) -> float:
        number, unit = text.duration(seconds).split()
        return float(number.replace(",", "")) * UNIT_SECONDS[unit]

    assert read_back(shorter) <= read_back(longer) * (1 + 1e-9)


def test_both_ends_of_an_interval_have_one_unit() -> None:
    unit = text.time_unit(1.04)
    assert text.duration_in(unit, 0.98) == "0.98 s"
    assert text.duration_in(unit, 1.1, with_unit=False) == "1.10"


@pytest.mark.parametrize(("number", "expected"), [
    (0, "0 steps"), (1, "1 step"), (2, "2 steps"), (None, "0 steps"), (12_345, "12,345 steps"),
])
def test_count_agrees_with_its_noun(number: int | None, expected: str) -> None:
    assert text.counted(number, "step") == expected


def test_irregular_plural() -> None:
    assert [text.counted(n, "entry", "entries") for n in (0, 1, 2)] == ["0 entries", "1 entry", "2 entries"]


@pytest.mark.parametrize(
    ("number", "expected"), [(0, "0 times"), (1, "once"), (2, "twice"), (3, "3 times"), (1000, "1,000 times")],
)
def test_times_is_a_word_or_a_number(number: int, expected: str) -> None:
    assert text.times(number) == expected


@pytest.mark.parametrize(("items", "most", "expected"), [
    ([], None, ""), (["a"], None, "a"), (["a", "b"], None, "a and b"), (["a", "b", "c"], None, "a, b and c"),
    (["a", "b", "c"], 3, "a, b and c"), (["a", "b", "c", "d", "e"], 2, "a, b and 3 more"), ([1, 2], 1, "1 and 1 more"),
])
def test_list_in_a_sentence(items: list[object], most: int | None, expected: str) -> None:
    assert text.listed(items, most) == expected


@pytest.mark.parametrize(("items", "most", "expected"), [
    ([], None, ""), ([1], 1, "1"), ([1, 2, 3], None, "1, 2, 3"), ([1, 2, 3], 3, "1, 2, 3"),
    ([1, 2, 3, 4, 5], 2, "1, 2 and 3 more"),
])
def test_list_of_values(items: list[object], most: int | None, expected: str) -> None:
    assert text.row(items, most) == expected


@pytest.mark.parametrize(("numbers", "expected"), [
    ([], ""), ([4], "4"), ([1, 2], "1, 2"), ([1, 2, 3, 4], "1 to 4"), ([1, 2, 3, 7, 9, 10], "1 to 3, 7, 9, 10"),
    ([1, 2, 3, 5, 7, 9, 11, 12, 13, 20], "1 to 3, 5, 7, 9 and 4 more"),
])
def test_numbers_in_a_row_are_a_range(numbers: list[int], expected: str) -> None:
    assert text.ranges(numbers, 4) == expected


@given(WORDS, st.integers(min_value=1, max_value=10))
def test_a_cut_list_accounts_for_every_item(words: list[str], most: int) -> None:
    for write in (text.listed, text.row):
        shown = write(words, most)
        more = re.search(r" and (\d+) more$", shown)
        named = [word for word in re.split(r", | and ", shown[: more.start()] if more else shown) if word]
        assert named == words[:most]
        assert len(named) + (int(more[1]) if more else 0) == len(words)


@pytest.mark.parametrize(("path", "expected"), [
    ("/app/net/model.py:3", "net/model.py:3"), ("/app", "/app"), ("/application/model.py", "/application/model.py"),
    ("/v/lib/python3.11/site-packages/timm/x.py", "timm/x.py"),
    ("/usr/lib/python3/dist-packages/timm/x.py", "timm/x.py"),
    ("/app/.venv/lib/python3.11/site-packages/timm/x.py", "timm/x.py"), ("unknown", "unknown"),
    ("/usr/lib/python3.11/logging/__init__.py:12", "logging/__init__.py:12"),
    ("C:\\other\\a.py", "C:\\other\\a.py"),
    ("/app/my-site-packages/x.py", "my-site-packages/x.py"),
])
def test_short_path(path: str, expected: str) -> None:
    assert text.short_path(path, ("/app/",)) == expected


def test_short_path_without_a_root_is_unchanged() -> None:
    assert text.short_path("/app/a.py") == "/app/a.py"
    assert text.short_path("/app/a.py", ("",)) == "/app/a.py"


def test_short_path_is_below_the_first_root_that_contains_it() -> None:
    assert text.short_path("C:\\app\\net\\a.py", ("C:\\other", "C:\\app", "C:\\app\\net")) == "net/a.py"


@pytest.mark.parametrize(("path", "expected"), [
    ("/app/net/model.py", "net/model.py"), ("net/model.py", "net/model.py"),
    ("/app/.venv/lib/python3.11/site-packages/timm/x.py", None), ("/usr/lib/python3.11/contextlib.py", None),
    ("/application/model.py", None), ("../model.py", None), ("<string>", None),
    ("/app/venv/Lib/site-packages/timm/x.py", None),
    ("C:\\app\\model.py", None), ("", None),
])
def test_project_path_is_how_the_repository_names_the_file(path: str, expected: str | None) -> None:
    assert text.project_path(path, "/app") == expected


def test_the_project_may_be_at_the_root_or_on_windows() -> None:
    assert text.project_path("/train.py", "/") == "train.py"
    assert text.project_path("C:\\app\\net\\model.py", "C:\\app\\") == "net/model.py"


def test_path_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert text.path_from_here(tmp_path / "a" / "b.py") == os.path.join("a", "b.py")
    assert text.path_from_here(str(tmp_path.parent / "c.py")) == str(tmp_path.parent / "c.py")
    assert text.path_from_here("a.py") == "a.py"


@pytest.mark.parametrize(("path", "line", "expected"), [
    ("/app/net/model.py", 3, "model.py:3"), ("C:\\app\\model.py", None, "model.py"), ("model.py", 0, "model.py"),
])
def test_short_place(path: str, line: int | None, expected: str) -> None:
    assert text.short_place(path, line) == expected


@pytest.mark.parametrize(("function", "expected"), [
    ("torch_dynamo_resume_in_f_at_12", "f"), ("torch_dynamo_resume_in_a_at_3_at_12", "a_at_3"), ("f", "f"), ("", ""),
])
def test_a_resume_function_is_named_after_its_original(function: str, expected: str) -> None:
    assert text.original_function(function) == expected
    assert (text.resume_of(function) is None) == (expected == function)


def test_control_characters_are_written_as_escapes() -> None:
    assert text.printable("a\x1b[31m\u202eb\n") == "a\\x1b[31m\\u202eb\\n"
    assert text.printable("plain \u00e9") == "plain \u00e9"


@pytest.mark.parametrize(("given_text", "limit", "expected"), [
    ("short", 10, "short"), ("two words here", 12, "two words..."), ("rows = torch.tensor([1])", 14, "rows = torc..."),
    ("onelongwordwithoutspaces", 12, "onelongwo..."), ("", 5, ""),
])
def test_a_long_text_is_cut_at_the_end_of_a_word(given_text: str, limit: int, expected: str) -> None:
    assert text.shortened(given_text, limit) == expected
    assert len(text.shortened(given_text, limit)) <= limit
