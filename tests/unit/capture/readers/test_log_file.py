"""The reader of TORCH_LOGS logs, on real logs (described in tests/recordings/logs) and on changed ones."""

import itertools
import json
import random
import re
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchtriage.capture.readers.log_file import read_log
from torchtriage.recording.events import Event, FrameSkipped, GraphBreak, LimitHit, Recompile, Unparsed
from torchtriage.recording.recording import Recording

LOGS = Path(__file__).parents[3] / "recordings" / "logs"
TRUTH = json.loads((LOGS / "truth.json").read_text())
WITH_RECOMPILES = [name for name in TRUTH if not name.startswith("skips")]
WITH_BREAKS = [name for name in TRUTH if name.startswith(("breaks", "ranks", "autograd", "skips_debug"))]
PREFIX = "V1115 23:29:16.420000 7 torch/_dynamo/guards.py:5396] [0/1] [__recompiles] "
RECOMPILE = [
    "Recompiling function f in /p/a.py:3", "    triggered by the following guard failure(s):", "    - 0/0: k == 1",
]


def lines_of(name: str) -> list[str]:
    return (LOGS / f"{name}.log").read_text().splitlines(keepends=True)


def read(lines: Iterable[str]) -> Recording:
    return read_log(lines, year=2026)


def events_of(lines: Iterable[str]) -> list[Event]:
    return [event for process in read(lines).processes for event in process.events]


def by_rank(recording: Recording) -> dict[int | None, tuple[Event, ...]]:
    return {process.rank: process.events for process in recording.processes}


def ordered(rows: Iterable[object]) -> list[object]:
    return sorted(rows, key=str)


@pytest.mark.parametrize("name", WITH_RECOMPILES)
def test_recompiles_and_their_reasons_are_those_of_the_trace(name: str) -> None:
    found = [[e.rank, e.compile_id, list(e.reasons)] for e in read(lines_of(name)).of(Recompile)]
    assert ordered(found) == ordered(TRUTH[name]["recompiles"])


@pytest.mark.parametrize("name", WITH_RECOMPILES)
def test_a_refused_recompile_is_only_a_limit(name: str) -> None:
    found = [[e.rank, e.compile_id, list(e.reasons)] for e in read(lines_of(name)).of(LimitHit)]
    assert ordered(found) == ordered(TRUTH[name]["refused"])


@pytest.mark.parametrize("name", WITH_BREAKS)
def test_breaks_are_those_of_the_trace(name: str) -> None:
    found = list(read(lines_of(name)).of(GraphBreak))
    expected = TRUTH[name]["graph_breaks"]
    ids = [(rank, compile_id) for rank, compile_id, _ in expected]
    assert ordered((e.rank, e.compile_id) for e in found) == ordered(ids)
    headers = {f"Graph break in user code at {e.path}:{e.line}" for e in found}
    assert {header for _, _, header in expected if header.startswith("Graph break in user code")} <= headers


@pytest.mark.parametrize("name", TRUTH)
def test_nothing_in_a_real_log_is_unparsed(name: str) -> None:
    assert list(read(lines_of(name)).of(Unparsed)) == []


def break_fields(event: GraphBreak) -> tuple[object, ...]:
    return event.compile_id, event.line, event.function, event.gb_id, event.whole_frame, len(event.hints)


def test_fields_of_breaks_of_torch_2_13() -> None:
    found = [break_fields(e) for e in read(lines_of("breaks-torch2.13")).of(GraphBreak)]
    assert found == [
        ("0/0", 5, "noisy", "GB0059", False, 3), ("1/0", 5, "noisy", "GB0059", False, 3),
        ("3/0", 5, "noisy", "GB0059", False, 3),
        ("5/0", 16, "branches", "GB0170", False, 3), ("7/0", 23, "item", "GB0124", False, 1),
        ("9/0", 30, "loop", "GB0025", True, 1), ("10/0", 37, "within_try", "GB0059", True, 3),
        ("11/0", 50, "<lambda>", None, True, 0), ("11/0", 50, "<module>", "GB0219", True, 1),
    ]


def test_fields_of_breaks_of_torch_2_9() -> None:
    found = [break_fields(e) for e in read(lines_of("breaks-torch2.9")).of(GraphBreak)]
    assert found == [
        ("0/0", 5, "noisy", "GB0059", False, 3), ("1/0", 5, "noisy", "GB0059", False, 3),
        ("3/0", 5, "noisy", "GB0059", False, 3),
        ("5/0", 16, "branches", None, False, 2), ("7/0", 23, "item", "GB0124", False, 1),
        ("9/0", 30, "loop", "GB0025", False, 1),
        ("10/0", 37, "within_try", "GB0059", True, 3), ("11/0", 50, "<lambda>", None, True, 0),
        ("11/0", None, "", "GB0219", True, 1),
    ]


def test_the_text_of_a_break_is_split_into_fields() -> None:
    loop = next(e for e in read(lines_of("breaks-torch2.13")).of(GraphBreak) if e.function == "loop")
    assert loop.type == "Call to `torch._dynamo.graph_break()`"
    assert loop.explanation == "User-inserted graph break. Message: None"
    assert loop.hints == ("Remove the `torch._dynamo.graph_break()` call.",)
    assert loop.context == "Called `torch._dynamo.graph_break()` with args `[]`, kwargs `{}`"
    assert [(e.path, e.line, e.function, e.code) for e in loop.stack][1:] == [
        ("/project/breaks.py", 30, "loop", "torch._dynamo.graph_break()")]
    assert loop.pid == read(lines_of("breaks-torch2.13")).processes[0].facts["pid"]


PREFACES = [
    "Encountered graph break that we cannot resume from. Compiling up to the previous resumable state, "
    "then skipping the rest of the function. Graph break encountered:",
    "Failed to handle graph break gracefully. Skipping the function and falling back to eager. "
    "Graph break encountered:",
]


@pytest.mark.parametrize("preface", PREFACES)
def test_the_type_of_a_break_follows_any_preface(preface: str) -> None:
    lines = [re.sub(r"Encountered graph break when .*", preface, line) for line in lines_of("breaks-torch2.13")]
    first = next(read(lines).of(GraphBreak))
    assert ("Failed to trace builtin operator", "Failed to" in preface) == (first.type, first.whole_frame)


@pytest.mark.parametrize("version", ["2.9", "2.13"])
def test_a_duplicate_break_gets_the_stack_of_the_first(version: str) -> None:
    first, second, third, *_ = read(lines_of(f"breaks-torch{version}")).of(GraphBreak)
    assert [e.function for e in first.stack] == ["<module>", "twice", "noisy"]
    assert first.stack == second.stack == third.stack


@pytest.mark.parametrize("name", ["recompiles-torch2.9", "recompiles-torch2.13", "recompiles_verbose-torch2.13"])
def test_a_limit_names_itself_and_its_frame(name: str) -> None:
    limits = read(lines_of(name)).of(LimitHit)
    assert [(e.limit_name, e.limit, e.compile_id, e.path, e.line, e.function) for e in limits] == [
        ("recompile_limit", 4, "0/4", "/project/recompiles.py", 6, "sizes"),
        ("recompile_limit", 4, "2/4", "/project/recompiles.py", 22, "forward"),
        ("accumulated_recompile_limit", 2, "4/2", "/project/recompiles.py", 42, "<lambda>"),
    ]


def test_a_recompile_names_the_first_line_of_its_function() -> None:
    first = next(read(lines_of("recompiles-torch2.13")).of(Recompile))
    assert (first.path, first.line, first.function) == ("/project/recompiles.py", 6, "sizes")


def test_a_refused_recompile_may_follow_its_warning() -> None:
    lines = lines_of("recompiles-torch2.13")
    recompiles = [line for line in lines if "[__recompiles]" in line]
    others = [line for line in lines if "[__recompiles]" not in line]
    swapped = read(others + recompiles)
    expected = read(lines)
    assert list(swapped.of(Recompile)) == list(expected.of(Recompile))
    assert list(swapped.of(LimitHit)) == list(expected.of(LimitHit))


def test_a_limit_without_logged_recompiles_keeps_its_last_reason() -> None:
    lines = [line for line in lines_of("recompiles-torch2.13") if "[__recompiles]" not in line]
    reasons = [e.reasons for e in read(lines).of(LimitHit)]
    assert reasons == [tuple(reasons[:1]) for _, _, reasons in TRUTH["recompiles-torch2.13"]["refused"]]


@pytest.mark.parametrize("limit", ["cache_size_limit", "accumulated_cache_size_limit"])
def test_limits_have_other_names_in_older_versions(limit: str) -> None:
    lines = [line.replace("config.recompile_limit", f"config.{limit}") for line in lines_of("recompiles-torch2.9")]
    assert limit in {e.limit_name for e in read(lines).of(LimitHit)}


@pytest.mark.parametrize("version", ["2.9", "2.13"])
def test_skipped_frames_are_events_with_their_place(version: str) -> None:
    recording = read(lines_of(f"skips-torch{version}"))
    found = {(e.function, e.path, e.reason) for e in recording.of(FrameSkipped)}
    in_loop = "Call to `torch._dynamo.graph_break()`"
    if version == "2.9":
        in_loop = "there is a graph break in a for/while loop"
    assert found == {
        ("loop", "/project/skips.py", in_loop),
        ("generator", "/project/skips.py", "Attempt to trace generator"),
        ("<lambda>", "/project/skips.py", "RuntimeError: no such device"),
    }
    assert [e.reasons for e in recording.of(LimitHit)] == [tuple(TRUTH[f"skips-torch{version}"]["refused"][0][2][:1])]


def test_a_frame_skipped_for_a_logged_break_marks_the_break() -> None:
    recording = read(lines_of("skips_debug-torch2.9"))
    assert [(e.function, e.whole_frame) for e in recording.of(GraphBreak)] == [("loop", True)]
    assert [e.function for e in recording.of(FrameSkipped)] == ["generator", "<lambda>"]


def test_the_item_warning_is_a_break_where_breaks_are_not_logged() -> None:
    lines = [line for line in lines_of("breaks-torch2.13") if "[__graph_breaks]" not in line]
    assert [
        (e.function, e.line, e.compile_id) for e in read(lines).of(GraphBreak) if e.line == 23
    ] == [("item", 23, "7/0")]


def test_compiled_autograd_ids_are_read() -> None:
    recording = read(lines_of("autograd-torch2.13"))
    assert {"0/0", "!0/1/0", "!1/8/0"} <= {e.compile_id for e in recording.of(GraphBreak)}
    assert {"!1/2/1", "!1/3/1"} <= {e.compile_id for e in recording.of(Recompile)}
    assert all(reason.startswith(("0/", "!0/")) for e in recording.of(Recompile) for reason in e.reasons)


def test_an_attempt_number_is_not_part_of_the_compile_id() -> None:
    assert events_of(PREFIX.replace("[0/1]", "[0/1_2]") + line for line in RECOMPILE)[0].compile_id == "0/1"


# The forms in which logs come

SEED = """\
[__recompiles] Recompiling function flex_attention
    triggered by the following guard failure(s):
    - tensor 'key' size mismatch at index 2. expected 100, actual 101
"""


def test_a_fragment_may_lack_place_and_compile_id() -> None:
    reason = "tensor 'key' size mismatch at index 2. expected 100, actual 101"
    assert [
        Recompile(path="unknown", line=None, function="flex_attention", reasons=(reason,))
    ] == events_of(SEED.splitlines())
    assert [process.rank for process in read(SEED.splitlines()).processes] == [None]


def test_a_fragment_is_found_inside_other_text() -> None:
    text = f"My training is slow:\n```\n{SEED}```\n- I tried dynamic=True\n    - no luck\n"
    assert events_of(text.splitlines()) == events_of(SEED.splitlines())


FULL_PREFIX = re.compile(r"^[VIW]\d{4} \S+ \d+ torch/_dynamo/\S+\] (\[\S+?\] )?(\[__\w+\] ?)?")


def bare(name: str, keep: str = "") -> list[str]:
    """The log as a custom formatter or a paste leaves it: without prefixes, or with the compile id and tag only."""
    return [FULL_PREFIX.sub(keep, line) for line in lines_of(name)]


def until_backend_fails(lines: list[str]) -> Iterable[str]:
    return itertools.takewhile(lambda line: "WON'T CONVERT" not in line, lines)


@pytest.mark.parametrize(
    "name", ["breaks-torch2.13", "breaks-torch2.9", "recompiles-torch2.9", "recompiles_verbose-torch2.13"],
)
def test_a_log_without_prefixes_has_the_same_events(name: str) -> None:
    expected = [replace(e, pid=None, time=0.0) for e in events_of(until_backend_fails(lines_of(name)))]
    assert events_of(until_backend_fails(bare(name))) == [replace(e, compile_id=None) for e in expected]
    assert events_of(until_backend_fails(bare(name, keep=r"\1\2"))) == expected


BEFORE = ["stderr: ", "2026-11-15T23:29:16.4201{n:03}Z stderr F ", "[pod/train-0/worker] ", "trainer-1  | ", "> "]


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("name", ["breaks-torch2.13", "recompiles-torch2.13"])
def test_prefixes_of_other_tools_are_removed(name: str, before: str) -> None:
    expected = events_of(lines_of(name))
    assert expected == events_of(before.format(n=n % 1000) + line for n, line in enumerate(lines_of(name)))
    assert events_of(bare(name)) == events_of(before.format(n=n % 1000) + line for n, line in enumerate(bare(name)))


CHANGES: dict[str, Callable[[str], str]] = {
    "crlf": lambda line: line.rstrip("\n") + "\r\n",
    "no line ends": lambda line: line.rstrip("\n"),
    "colour": lambda line: f"\x1b[32m{line[:1]}\x1b[0m{line[1:]}",
    "coloured tag": lambda line: line.replace("[__recompiles]", "\x1b[1;36m[__recompiles]\x1b[0m"),
    "progress bar": lambda line: f" 50%|█████     | 5/10 [00:01<00:01]\r{line}",
    "output between": lambda line: f"{line}loss 0.5\n    - an indented line of output\nwithout break\n",
    "bad bytes": lambda line: f"{line}\ufffd\x00\ufffd\n",
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["breaks-torch2.13", "recompiles-torch2.9", "ranks-torch2.13"])
def test_a_log_changed_by_terminals_and_tools_has_the_same_events(name: str, change: str) -> None:
    changed = "".join(CHANGES[change](line) + ("\n" if change == "no line ends" else "") for line in lines_of(name))
    assert events_of(lines_of(name)) == events_of(changed.split("\n"))


# Ranks and processes


@pytest.mark.parametrize("name", ["ranks-torch2.9", "ranks-torch2.13", "ranks_tee-torch2.13"])
def test_each_rank_is_a_process_from_its_first_line(name: str) -> None:
    ranks = by_rank(read(lines_of(name)))
    assert list(ranks) == [0, 1]
    for rank, events in ranks.items():
        assert {rank} == {e.rank for e in events}
        assert events[0].compile_id == "0/0"      # logged before the process had a rank
        assert all(e.stack for e in events if isinstance(e, GraphBreak))


def test_a_break_logged_before_the_rank_gives_its_stack_to_later_ones() -> None:
    lines = lines_of("breaks-torch2.13")
    first = [line for line in lines if "[0/0] [__graph_breaks]" in line]
    duplicate = [f"[rank3]:{line}" for line in lines if "[1/0] [__graph_breaks]" in line]
    prefix = "[rank3]:" + PREFIX.replace(" 7 ", f" {first[0].split()[2]} ")
    many = [prefix.replace("[0/1]", f"[0/{n}]") + RECOMPILE[0] for n in range(40)]
    original, *later = read(first + duplicate + many).of(GraphBreak)
    assert [original.stack] == [e.stack for e in later]


def test_text_without_prefixes_belongs_to_the_only_process() -> None:
    recording = read([*(f"[rank2]:{PREFIX}{line}" for line in RECOMPILE), *RECOMPILE])
    assert [(process.rank, len(process.events)) for process in recording.processes] == [(2, 2)]


def test_a_launcher_prefix_gives_the_rank_where_torch_does_not() -> None:
    lines = [f"[default1]:{PREFIX}{line}" for line in RECOMPILE] + [f"[default0]:{line}" for line in RECOMPILE]
    found = {rank: [type(e) for e in events] for rank, events in by_rank(read(lines)).items()}
    assert found == {0: [Recompile], 1: [Recompile]}


def test_the_rank_of_torch_takes_precedence_over_the_launchers() -> None:
    assert list(by_rank(read(f"[default1]:[rank9]:{PREFIX}{line}" for line in RECOMPILE))) == [9]
    assert list(by_rank(read(f"[rank1]:[rank1]:{PREFIX}{line}" for line in RECOMPILE))) == [1]


def test_ranks_with_the_same_process_id_stay_apart() -> None:
    lines = [f"[rank{rank}]:{PREFIX}{line}" for line in RECOMPILE for rank in (0, 8)]
    assert list(by_rank(read(lines))) == [0, 8]


def test_two_processes_without_rank_have_separate_compile_ids() -> None:
    lines = [PREFIX.replace(" 7 ", f" {pid} ") + line for line in RECOMPILE for pid in (7, 8)]
    assert [process.facts["pid"] for process in read(lines).processes] == [7, 8]


def test_joined_lines_of_two_ranks_are_split() -> None:
    zero, one = ([f"[rank{rank}]:{PREFIX}{line}" for line in RECOMPILE] for rank in (0, 1))
    glued = [zero[0] + one[0], zero[1] + one[1] + zero[2], one[2]]
    assert by_rank(read(glued)) == by_rank(read(zero + one))


def split_by_rank(name: str) -> list[list[str]]:
    lines = [line for line in lines_of(name) if "torch/_dynamo" in line]
    pids = sorted({line.split()[2] for line in lines})
    return [[line for line in lines if line.split()[2] == pid] for pid in pids]


@settings(deadline=None, max_examples=60)
@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_any_interleaving_of_two_ranks_gives_the_same_events(choose: random.Random, run_length: int) -> None:
    streams = split_by_rank("ranks-torch2.13")
    expected = by_rank(read(streams[0] + streams[1]))
    mixed: list[str] = []
    rest = [list(stream) for stream in streams]
    while any(rest):
        stream = choose.choice([stream for stream in rest if stream])
        num_lines = choose.randint(1, run_length)
        mixed += stream[:num_lines]
        del stream[:num_lines]
    assert by_rank(read(mixed)) == expected


def test_interleaved_messages_of_two_threads_are_assembled() -> None:
    other = PREFIX.replace("[0/1]", "[3/1]")
    lines = [prefix + line for line in RECOMPILE for prefix in (PREFIX, other)]
    found = [(e.compile_id, e.reasons) for e in read(lines).of(Recompile)]
    assert found == [("0/1", ("0/0: k == 1",)), ("3/1", ("0/0: k == 1",))]


# Damage


def test_a_message_without_its_first_line_is_unparsed() -> None:
    assert [e.text for e in events_of([PREFIX + RECOMPILE[2]]) if isinstance(e, Unparsed)] == ["    - 0/0: k == 1"]
    assert [e.text for e in events_of(["[__recompiles]     - k == 1"]) if isinstance(e, Unparsed)] == ["    - k == 1"]


def test_prose_about_recompiling_is_unparsed() -> None:
    assert [Unparsed] == [type(e) for e in events_of(["Recompiling function names is what this tool is about"])]


def test_garbled_numbers_do_not_raise() -> None:
    assert [Unparsed] == [type(e) for e in events_of([PREFIX + "Recompiling function f in a.py:" + "9" * 5000])]


def test_lines_of_other_programs_are_not_skipped_frames() -> None:
    other = "W1115 23:29:16.420000 7 video/decoder.cc:33] Skipping frame 12 after a break"
    assert events_of([other, "break: WON'T CONVERT x y line 3"]) == []


@pytest.mark.parametrize(
    "name", ["breaks-torch2.13", "breaks-torch2.9", "recompiles_verbose-torch2.13", "skips-torch2.9"],
)
def test_a_log_cut_at_any_line_loses_no_event_before_the_cut(name: str) -> None:
    lines = lines_of(name)
    num_events = len(events_of(lines))
    for cut in range(len(lines)):
        assert len(
            events_of(lines[:cut])
        ) <= num_events + 2     # an attempt without its limit, a warning without its break
        events_of(lines[cut:])
        events_of([*lines[:cut], lines[cut][: len(lines[cut]) // 2]])


REAL_LINES = [line for name in TRUTH for line in lines_of(name)]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.text() | st.sampled_from(REAL_LINES), max_size=30), st.randoms(use_true_random=False))
def test_garbage_never_raises(lines: list[str], choose: random.Random) -> None:
    damaged = []
    for line in lines:
        at = choose.randint(0, len(line))
        damaged.append(
            choose.choice([line, line[:at], line[at:], line[:at] + line[at + 3:], line + choose.choice(REAL_LINES)])
        )
    read(damaged)


# Time and size


def test_times_are_in_the_given_year() -> None:
    prefix = PREFIX.replace("1115 23:29:16.420000", "0229 00:00:01.500000")
    assert next(iter(read_log((prefix + line for line in RECOMPILE), year=2024).of(Recompile))).time == 1709164801.5
    assert events_of(PREFIX.replace("V1115", "V1315") + line for line in RECOMPILE)[0].time == 0.0


def test_events_are_in_the_order_of_the_log() -> None:
    times = [e.time for e in events_of(lines_of("breaks-torch2.13"))]
    assert times == sorted(times)


@pytest.mark.thorough
def test_memory_does_not_grow_with_other_lines() -> None:
    others = (
        f"2026-11-15 23:29:16,420 INFO step={n} loss=0.{n} we converted and break nothing\n" for n in range(100_000)
    )
    tracemalloc.start()
    try:
        assert events_of(others) == []
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
