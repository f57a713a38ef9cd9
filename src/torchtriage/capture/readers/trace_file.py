"""Reads TORCH_TRACE files from any machine, without torch; only the records that torchtriage needs are parsed."""

import calendar
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

from torchtriage.capture.readers.records import ARTIFACTS, KINDS, NO_PAYLOAD, Translator
from torchtriage.recording.events import Event, Unparsed
from torchtriage.recording.recording import Process, Recording

CHUNK = 4 << 20
MAX_UNPARSED = 20       # enough to see what is wrong with a file; the rest is counted
MAX_PAYLOAD = 4 << 20   # a payload that we need is a few kilobytes; this bounds a garbled file
MAX_RECORD = 8 << 20    # a head line has at most about 40 kB; of a longer record the middle is dropped
_RECORD = re.compile(
    rb"[VIDWEC](\d{2})(\d{2}) (\d{2}):(\d{2}):(\d{2})\.(\d{6}) (\d{1,18}) [^\]\n]{,400}\] "
    rb'(?P<json>\{)(?:"(?P<kind>\w+)"(?:: \{"name": "(?P<artifact>[^"\n]*)")?)?'
)
_NEXT_RECORD = re.compile(rb"\n(?=[^\t])")   # payload lines, and only those, begin with a tab
_WANTED = frozenset(kind.encode() for kind in KINDS)
_WANTED_ARTIFACTS = frozenset(name.encode() for name in (*ARTIFACTS, "torch_version"))
_WITHOUT_PAYLOAD = frozenset(name.encode() for name in NO_PAYLOAD)


def is_trace(head: bytes) -> bool:
    """Whether a file that begins like this is a structured trace."""
    return any(_RECORD.match(line) and line.rstrip().endswith((b"}", b"]")) for line in head.split(b"\n"))


def read_traces(paths: list[Path]) -> Recording:
    """One recording of several trace files, one process per file."""
    processes = tuple(read_trace(path) for path in paths)
    torch = next((p.program.torch for p in processes if p.program.torch), None)
    return Recording(processes=processes, origin="trace", facts={"torch": torch})


def read_trace(path: Path) -> Process:
    """The events of one trace file; lines that cannot be read are counted, and the first few are kept."""
    translator = Translator()
    events: list[Event] = []
    facts: dict[str, object] = {"trace_file": str(path), "torch": None}
    year = time.gmtime(path.stat().st_mtime).tm_year
    num_unparsed = 0
    for match, head, payload in _wanted_records(path):
        try:
            if match is None:
                raise ValueError("no record")
            metadata = json.loads(head)
            seconds, pid = _seconds(match, year), int(match[7])
        except (ValueError, RecursionError):
            num_unparsed += 1
            if num_unparsed <= MAX_UNPARSED:
                events.append(Unparsed(origin=str(path), text=head[:200]))
            continue
        if match["artifact"] == b"torch_version":
            facts["torch"] = _torch_version(payload)
            continue
        events.extend(translator.feed(metadata, payload, time=seconds, pid=pid))
    events.extend(translator.finish())
    facts["num_unparsed"] = num_unparsed
    ranks = {e.rank for e in events if isinstance(e.rank, int)}
    rank = ranks.pop() if len(ranks) == 1 else _rank_in_name(path.name)
    return Process(events=tuple(events), facts=facts | {"rank": rank})


def _wanted_records(path: Path) -> Iterator[tuple[re.Match[bytes] | None, str, str]]:
    """(match, metadata, payload) of each record that matters; (None, line, "") for a line that is not a record."""
    for buffer, start, end in _spans(path):
        match = _RECORD.match(buffer, start, end)
        if match is not None and not _is_wanted(match, buffer):
            continue
        head_end = buffer.find(b"\n", start, end)
        head_end = end if head_end < 0 else head_end
        if match is None:
            line = buffer[start:head_end]
            if line.strip() and not line.startswith(b"\t"):     # a file may begin within a payload
                yield None, _text(line), ""
            continue
        payload = b""
        if match["artifact"] not in _WITHOUT_PAYLOAD:
            payload = buffer[head_end + 2: min(end, head_end + 2 + MAX_PAYLOAD)].replace(b"\n\t", b"\n")
        if buffer[head_end - 1: head_end] == b"\r":             # a Windows editor or transfer changed all line ends
            payload = payload.replace(b"\r\n", b"\n").removesuffix(b"\r")
        yield match, _text(buffer[match.start("json"):head_end]), _text(payload)


def _is_wanted(match: re.Match[bytes], buffer: bytes) -> bool:
    """Whether the translator needs this record; it does not need graphs and timings, which are most of a trace."""
    kind, artifact = match["kind"], match["artifact"]
    if kind == b"artifact":
        return artifact is None or artifact in _WANTED_ARTIFACTS
    if kind == b"dynamo_cpp_guards_str":    # a first compile has no recompile reason to complete
        return buffer.find(b'"frame_compile_id": 0', match.end(), match.end() + 200) < 0
    return kind is None or kind in _WANTED


def _spans(path: Path) -> Iterator[tuple[bytes, int, int]]:
    """(buffer, start, end) of each record in the file, without an object per line; memory is bounded."""
    with path.open("rb") as file:
        buffer = b""
        while chunk := file.read(CHUNK):
            buffer += chunk
            start = 0
            for border in _NEXT_RECORD.finditer(buffer):
                yield buffer, start, border.start()
                start = border.end()
            buffer = buffer[start:]
            if len(buffer) > MAX_RECORD:    # its last byte shows whether the next chunk begins a line
                buffer = buffer[:MAX_RECORD].rstrip(b"\n") + buffer[-1:]
        yield buffer, 0, len(buffer)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _seconds(match: re.Match[bytes], year: int) -> float:
    month, day, hour, minute, second, micro = (int(match[i]) for i in range(1, 7))
    return calendar.timegm((year, month, day, hour, minute, second, 0, 0, 0)) + micro / 1e6


def _torch_version(payload: str) -> str | None:
    try:
        version = json.loads(payload).get("pytorch_version")
    except (ValueError, AttributeError, RecursionError):
        return None
    return version if isinstance(version, str) else None


def _rank_in_name(name: str) -> int | None:
    match = re.search(r"rank_(\d+)", name)
    return int(match[1]) if match else None
