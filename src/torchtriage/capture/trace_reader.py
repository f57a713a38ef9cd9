"""Reads TORCH_TRACE files from any machine, without torch; only the records we need are parsed."""

import calendar
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

from torchtriage.capture.translate import ARTIFACTS, KINDS, NO_PAYLOAD, Translator
from torchtriage.recording.events import Event, Unparsed
from torchtriage.recording.recording import Process, Recording

CHUNK = 8 << 20
MAX_UNPARSED = 20       # enough to see what is wrong with a file; the rest is counted
MAX_PAYLOAD = 4 << 20   # a payload we keep is a few kilobytes; this bounds a garbled file
_RECORD = re.compile(rb'[VIDWEC](\d{2})(\d{2}) (\d{2}):(\d{2}):(\d{2})\.(\d{6}) (\d+) [^\]\n]*\] (\{.*)')
_KIND = re.compile(rb'\{"(\w+)"(?:: \{"name": "([^"]*)")?')
_KEPT = frozenset(kind.encode() for kind in KINDS)
_KEPT_ARTIFACTS = frozenset(name.encode() for name in ARTIFACTS)
_WITHOUT_PAYLOAD = frozenset(name.encode() for name in NO_PAYLOAD)


def is_trace(head: bytes) -> bool:
    """Whether a file that begins like this is a structured trace."""
    return any(_RECORD.match(line) and line.rstrip().endswith((b"}", b"]")) for line in head.split(b"\n")[:50])


def read_traces(paths: list[Path]) -> Recording:
    """One recording of several trace files, one process a file."""
    processes = tuple(read_trace(path) for path in paths)
    return Recording(processes=processes, origin="trace", facts={"torch": next((p.facts["torch"] for p in processes if p.facts), None)})


def read_trace(path: Path) -> Process:
    """The events of one trace file; lines that cannot be read are counted and the first few kept."""
    translator = Translator()
    events: list[Event] = []
    facts: dict[str, object] = {"trace_file": str(path), "torch": None}
    year = time.gmtime(path.stat().st_mtime).tm_year
    num_unparsed = 0
    for head, body in _records(path):
        if body is None:
            num_unparsed += 1
            if num_unparsed <= MAX_UNPARSED:
                events.append(Unparsed(origin=str(path), text=head[:200].decode("utf-8", "replace")))
            continue
        match = _RECORD.match(head)
        assert match is not None
        try:
            metadata = json.loads(match[8])
        except ValueError:
            num_unparsed += 1
            if num_unparsed <= MAX_UNPARSED:
                events.append(Unparsed(origin=str(path), text=head[:200].decode("utf-8", "replace")))
            continue
        payload = body.decode("utf-8", "replace")
        if b'"torch_version"' in head:
            facts["torch"] = _torch_version(payload)
            continue
        events.extend(translator.feed(metadata, payload, time=_seconds(match, year), pid=int(match[7])))
    events.extend(translator.finish())
    facts["num_unparsed"] = num_unparsed
    ranks = {e.rank for e in events if e.rank is not None}
    rank = ranks.pop() if len(ranks) == 1 else _rank_in_name(path.name)
    return Process(events=tuple(events), facts=facts | {"rank": rank})


def _records(path: Path) -> Iterator[tuple[bytes, bytes | None]]:
    """(head line, payload) of each record that matters; (line, None) for a line that is no record."""
    head: bytes | None = None
    body: list[bytes] = []
    body_size = 0
    keep_body = False
    for line in _lines(path):
        if line.startswith(b"\t"):
            if keep_body and body_size < MAX_PAYLOAD:
                body.append(line[1:])
                body_size += len(line)
            continue
        if head is not None:
            yield head, b"\n".join(body)
            head = None
        if not line.strip():
            continue
        wanted = _wanted(line)
        if wanted is None:
            yield line, None
        elif wanted:
            head, body, body_size = line, [], 0
            keep_body = wanted == "payload"
        if not wanted:
            keep_body = False
    if head is not None:
        yield head, b"\n".join(body)


def _wanted(line: bytes) -> str | None:
    """'payload', 'head', '' for a record that is not needed, None for a line that is no record."""
    start = line.find(b"] {", 0, 400)
    if start < 0 or not _RECORD.match(line):
        return None
    kind = _KIND.match(line, start + 2)
    if kind is None:
        return "head"
    if kind[1] == b"artifact":
        if kind[2] in _WITHOUT_PAYLOAD:
            return "head"
        return "payload" if kind[2] in _KEPT_ARTIFACTS or kind[2] == b"torch_version" else ""
    if kind[1] == b"dynamo_cpp_guards_str":
        return "" if b'"frame_compile_id": 0' in line else "payload"
    return "head" if kind[1] in _KEPT else ""


def _lines(path: Path) -> Iterator[bytes]:
    """Lines that are not payload of a record nobody wants, read in chunks: a payload line costs no Python object unless it may be kept."""
    with path.open("rb") as file:
        rest = b""
        while chunk := file.read(CHUNK):
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            yield from lines
        if rest:
            yield rest


def _seconds(match: re.Match[bytes], year: int) -> float:
    month, day, hour, minute, second, micro = (int(match[i]) for i in range(1, 7))
    if not 1 <= month <= 12:
        return 0.0  # garbled
    return calendar.timegm((year, month, day, hour, minute, second, 0, 0, 0)) + micro / 1e6


def _torch_version(payload: str) -> str | None:
    try:
        version = json.loads(payload).get("pytorch_version")
    except (ValueError, AttributeError):
        return None
    return version if isinstance(version, str) else None


def _rank_in_name(name: str) -> int | None:
    match = re.search(r"rank_(\d+)", name)
    return int(match[1]) if match else None
