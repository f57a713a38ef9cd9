"""The reader of TORCH_TRACE files, on real traces (described in tests/recordings/traces) and on damaged ones."""

import json
import re
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchtriage.capture.readers import trace_file as trace_reader
from torchtriage.capture.readers.records import Translator
from torchtriage.capture.readers.trace_file import is_trace, read_trace, read_traces
from torchtriage.recording.events import CompileEnd, CompileStart, Event, GraphBreak, LimitHit, Recompile, Unparsed
from torchtriage.recording.recording import Process

TRACES = Path(__file__).parents[3] / "recordings" / "traces"
NAMES = ["train-torch2.13", "train-torch2.9"]
DATA = {name: (TRACES / f"{name}.log").read_bytes() for name in NAMES}
YEAR = 2026
HEAD = re.compile(rb"V(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6}) (\d+) \S+\] (\{.*)")
SMALL = b"".join(
    b'V1115 23:29:16.365000 7 torch/a.py:1] {"artifact": {"name": "recompile_reasons", "encoding": "json"}, '
    b'"frame_id": 0, "frame_compile_id": %d, "attempt": 0, "has_payload": "x"}\n\t"k == %d"\n\t\n' % (i, i)
    for i in range(1, 6)
)


def read(data: bytes) -> Process:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.log"
        path.write_bytes(data)
        with patch.object(
            trace_reader.time, "gmtime", return_value=trace_reader.time.struct_time((YEAR, 1, 1, 0, 0, 0, 0, 1, 0)),
        ):
            return read_trace(path)


def naive_records(data: bytes) -> Iterator[tuple[re.Match[bytes], str]]:
    """Every record of an undamaged trace, one line at a time."""
    head, payload = None, []
    for line in data.split(b"\n"):
        if line.startswith(b"\t"):
            payload.append(line[1:])
            continue
        if head is not None:
            yield head, b"\n".join(payload).decode()
        head, payload = HEAD.match(line), []
    if head is not None:
        yield head, b"\n".join(payload).decode()


def naive_events(data: bytes, finish: bool = True) -> list[Event]:
    translator = Translator()
    events: list[Event] = []
    for head, payload in naive_records(data):
        seconds = trace_reader._seconds(head, YEAR)
        events.extend(translator.feed(json.loads(head[8]), payload, time=seconds, pid=int(head[7])))
    return events + (list(translator.finish()) if finish else [])


def whole_before(data: bytes, damage: int) -> bytes:
    """The records that end before the damage: the next record's first byte is still intact."""
    starts = [m.end() for m in re.finditer(rb"\n(?=[^\t])", data[:damage])]
    return data[: starts[-1]] if starts else b""


EXPECTED = naive_events(DATA[NAMES[0]])


def readable(process: Process) -> list[Event]:
    return [e for e in process.events if not isinstance(e, Unparsed)]


@pytest.mark.parametrize("name", NAMES)
def test_the_events_are_those_of_a_reader_of_every_line(name: str) -> None:
    process = read(DATA[name])
    assert list(process.events) == naive_events(DATA[name])
    assert process.facts["num_unparsed"] == 0


@pytest.mark.parametrize("name", NAMES)
def test_the_events_are_those_of_the_program(name: str) -> None:
    process = read(DATA[name])
    (broken,) = process.of(GraphBreak)
    assert (broken.path, broken.line, broken.function) == ("/project/train.py", 13, "noisy")
    assert broken.stack[-1].code == 'print("naïve", x.shape)'
    assert [(r.compile_id, r.function) for r in process.of(Recompile)] == [("0/1", "scale")]
    assert [(h.compile_id, h.function, h.limit) for h in process.of(LimitHit)] == [("0/2", "scale", 2)]
    assert [e.compile_id for e in process.of(CompileStart)] == ["0/0", "0/1", "1/0", "2/0"]
    assert all(e.seconds is not None and e.seconds > 0 for e in process.of(CompileEnd))


def test_the_torch_version_is_a_fact_where_the_trace_has_it() -> None:
    assert [read(DATA[name]).facts["torch"] for name in NAMES] == ["2.13.0+cpu", None]


@settings(deadline=None, max_examples=60)
@given(name=st.sampled_from(NAMES), share=st.floats(0, 1))
def test_a_trace_cut_at_any_byte_keeps_every_record_before_it(name: str, share: float) -> None:
    data = DATA[name]
    cut = int(share * len(data))
    before = naive_events(whole_before(data, cut), finish=False)
    process = read(data[:cut])
    assert list(process.events[: len(before)]) == before
    assert process.facts["num_unparsed"] <= 1


@settings(deadline=None, max_examples=60)
@given(name=st.sampled_from(NAMES), share=st.floats(0, 1), garbage=st.binary(min_size=1, max_size=300))
def test_garbage_at_any_byte_loses_no_record_before_it(name: str, share: float, garbage: bytes) -> None:
    data = DATA[name]
    at = int(share * len(data))
    before = naive_events(whole_before(data, at), finish=False)
    assert list(read(data[:at] + garbage + data[at + len(garbage):]).events[: len(before)]) == before


@settings(deadline=None, max_examples=200)
@given(at=st.integers(0, len(SMALL)), garbage=st.binary(max_size=40), chunk=st.integers(1, 60))
def test_damage_and_chunks_of_any_size_never_raise(at: int, garbage: bytes, chunk: int) -> None:
    data = SMALL[:at] + garbage + SMALL[at:]
    before = whole_before(data, at)
    whole = {e.compile_id: e for e in naive_events(before)}
    with patch.object(trace_reader, "CHUNK", chunk):
        found = {e.compile_id: e for e in read(data).of(Recompile)}
    assert all(found[cid].reasons == e.reasons for cid, e in whole.items() if isinstance(e, Recompile))


@settings(deadline=None, max_examples=30)
@given(chunk=st.integers(3000, 200_000))
def test_chunk_borders_do_not_change_the_events(chunk: int) -> None:
    with patch.object(trace_reader, "CHUNK", chunk):
        assert list(read(DATA[NAMES[0]]).events) == EXPECTED


@settings(deadline=None, max_examples=100)
@given(chunk=st.integers(1, 80), size=st.integers(0, 900), line=st.integers(1, 90))
def test_a_record_that_is_too_long_loses_only_its_middle(chunk: int, size: int, line: int) -> None:
    long = b"".join(b"\tV" + b"V" * line + b"\n" for _ in range(size // line))
    with patch.object(trace_reader, "CHUNK", chunk), patch.object(trace_reader, "MAX_RECORD", 250):
        process = read(SMALL + long + SMALL.replace(b"compile_id\": ", b"compile_id\": 1"))
    assert [e.compile_id for e in process.events] == [f"0/{i}" for i in (1, 2, 3, 4, 5, 11, 12, 13, 14, 15)]


@pytest.mark.parametrize("garbage", [
    b"\xff\xfe\x00\n", b"Traceback (most recent call last):\n",
    b'V1115 23:29:16.365000 7 torch/a.py:1] {"str": [\n', b'V9999 99:99:99.999999 7 torch/a.py:1] {"str": ["a", 0]}\n',
    b'V1115 23:29:16.365000 7 torch/a.py:1] {"str": ' + b"[" * 100_000 + b"\n",
], ids=["binary", "traceback", "cut head", "no such date", "too deep"])
def test_a_line_that_cannot_be_read_is_counted_and_the_rest_is_read(garbage: bytes) -> None:
    data = DATA[NAMES[0]]
    middle = next(m.end() for m in re.finditer(rb"\n(?=[^\t])", data) if m.end() > len(data) // 2)
    process = read(data[:middle] + garbage + data[middle:])
    assert readable(process) == EXPECTED
    assert process.facts["num_unparsed"] == 1


def test_only_the_first_unreadable_lines_are_kept() -> None:
    process = read(b"what is this\n" * 1000)
    assert process.facts["num_unparsed"] == 1000
    assert len(process.events) == trace_reader.MAX_UNPARSED


def test_carriage_returns_make_no_difference() -> None:
    assert list(read(DATA[NAMES[0]].replace(b"\n", b"\r\n")).events) == EXPECTED


def test_text_that_is_not_utf_8_is_read() -> None:
    (broken,) = read(DATA[NAMES[0]].replace("naïve".encode(), b"na\xefve")).of(GraphBreak)
    assert (broken.line, broken.stack[-1].code) == (13, 'print("na�ve", x.shape)')


def test_a_trace_that_begins_within_a_payload_is_read() -> None:
    payload_at = DATA[NAMES[0]].index(b"\n\t") + 1
    process = read(DATA[NAMES[0]][payload_at:])
    assert process.events[-1] == EXPECTED[-1]
    assert process.facts["num_unparsed"] == 0


def test_an_empty_trace_has_no_events() -> None:
    assert read(b"").events == ()


def test_several_files_are_several_processes(tmp_path: Path) -> None:
    paths = []
    for rank in (0, 1):
        paths.append(tmp_path / f"dedicated_log_torch_trace_rank_{rank}_x.log")
        paths[-1].write_bytes(DATA[NAMES[1 - rank]])
    recording = read_traces(paths)
    assert [p.rank for p in recording.processes] == [0, 1]
    assert recording.facts["torch"] == "2.13.0+cpu"


@pytest.mark.parametrize("filler", [b"x" * 1000, b"\n\tx" * 300, b"\t" * 1000], ids=["one line", "payload", "tabs"])
def test_memory_is_bounded_and_later_records_are_read(filler: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trace.log"
    with path.open("wb") as file:
        file.write(b'V1115 23:29:16.365000 7 torch/a.py:1] {"artifact": {"name": "dynamo_graph_break_reason"}}')
        for _ in range(48):
            file.write(filler * 1024)
        file.write(b"\n" + SMALL)
    assert path.stat().st_size > 40 << 20
    tracemalloc.start()
    process = read_trace(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20
    assert sum(1 for _ in process.of(Recompile)) == 5


def test_a_trace_is_distinguished_from_a_log() -> None:
    assert is_trace(DATA[NAMES[0]][: 1 << 16])
    assert is_trace(SMALL.replace(b"\n", b"\r\n"))
    assert is_trace(b"\tend of a payload\n" * 500 + SMALL)
    assert not is_trace(b"")
    prefix = b"V1115 23:29:16.420000 7 torch/_dynamo/guards.py:5396] [0/1] [__recompiles] "
    assert not is_trace(prefix + b"Recompiling function f in /p/a.py:3\n")
