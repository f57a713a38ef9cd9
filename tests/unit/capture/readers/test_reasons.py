"""The reasons of a recompile are bounded: the newest entries, and one of each other form."""

import json

import pytest

from torchtriage.capture.readers.log_file import read_log
from torchtriage.capture.readers.reasons import MAX_REASONS, MAX_TEXT, NUM_NEWEST, kept
from torchtriage.capture.readers.records import Translator
from torchtriage.recording.events import Recompile, to_payload


def size_reason(entry: int, new: int, dim: int = 0) -> str:
    return f"0/{entry}: tensor 'x' size mismatch at index {dim}. expected {entry + 2}, actual {new}"


def storm(num_recompiles: int) -> list[Recompile]:
    """The recompiles of a frame that is compiled for one size after the other, as torch's trace gives them."""
    translator = Translator()
    events = []
    for number in range(1, num_recompiles + 1):
        ids = {"frame_id": 0, "frame_compile_id": number}
        reasons = json.dumps([size_reason(entry, number + 2) for entry in reversed(range(number))])
        list(translator.feed({"artifact": {"name": "recompile_reasons"}, **ids}, reasons))
        events += translator.feed({"dynamo_start": {"stack": []}, **ids}, None)
    return [event for event in events if isinstance(event, Recompile)]


def test_few_reasons_are_all_kept() -> None:
    reasons = [size_reason(entry, 99) for entry in reversed(range(MAX_REASONS))]
    assert (kept(reasons).texts, kept(reasons).num_omitted) == (tuple(reasons), 0)


def test_of_many_reasons_the_newest_are_kept_and_the_others_counted() -> None:
    reasons = [size_reason(entry, 99) for entry in reversed(range(1_000))]
    assert kept(reasons).texts == tuple(reasons[:NUM_NEWEST])
    assert kept(reasons).num_omitted == 1_000 - NUM_NEWEST


@pytest.mark.parametrize("rare", [
    size_reason(7, 99, dim=1), "0/7: tensor 'x' dtype mismatch. expected Float, actual Double", "0/7: L['n'] == 3",
    "0/7: tensor 'y' size mismatch at index 0. expected 1, actual 2", "0/7: ___check_obj_id(L['y'], 140001234567890)",
])
def test_a_rare_reason_among_thousands_is_kept(rare: str) -> None:
    reasons = [size_reason(entry, 99) for entry in reversed(range(3_000))]
    reasons[2_000] = rare
    assert kept(reasons).texts == (*reasons[:NUM_NEWEST], rare)


def test_reasons_that_differ_only_in_their_values_are_one_form() -> None:
    reasons = [f"0/{n}: ___check_obj_id(L['y'], {140001234567890 + n}), type=<class 'C'>" for n in range(100)]
    assert len(kept(reasons).texts) == NUM_NEWEST


def test_a_reason_of_every_form_is_still_bounded() -> None:
    assert len(kept([f"0/{n}: L['n'] < {n} and L['m']" for n in range(1_000)]).texts) == MAX_REASONS


def test_a_long_reason_keeps_its_guard_and_its_line() -> None:
    [text] = kept([f"0/0: L['x'] == [{'1, ' * 50_000}]  # f(x)  # a.py:3 in f"]).texts
    assert len(text) < MAX_TEXT + 10
    assert (text[:12], text[-13:]) == ("0/0: L['x'] ", "# a.py:3 in f")


def test_the_events_of_a_storm_grow_with_the_number_of_recompiles() -> None:
    sizes = [len(to_payload(event)) for event in storm(300)]
    assert max(sizes[100:]) < 1.1 * sizes[100]
    assert sum(sizes) < 300 * 1_300


def test_a_log_is_bounded_in_the_same_way() -> None:
    head = "V0101 00:00:00.000000 1 torch/_dynamo/guards.py:1] [0/500] [__recompiles] "
    lines = [f"{head}Recompiling function f in a.py:3", f"{head}    triggered by the following guard failure(s):"]
    lines += [f"{head}    - {size_reason(entry, 600)}" for entry in reversed(range(500))]
    [event] = read_log(lines).of(Recompile)
    assert (len(event.reasons), event.num_omitted) == (NUM_NEWEST, 500 - NUM_NEWEST)
