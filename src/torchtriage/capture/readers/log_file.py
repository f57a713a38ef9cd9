"""Reads a TORCH_LOGS text log from any machine, without torch.

The events are those of the trace, as far as a log holds them.
"""

import calendar
import re
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from torchtriage.capture.readers.break_text import parse_break, parse_stack
from torchtriage.capture.readers.log_lines import Message, Stream, messages
from torchtriage.capture.readers.reasons import KeptReasons, kept
from torchtriage.capture.readers.records import strip_launchers
from torchtriage.recording.events import Event, FrameSkipped, GraphBreak, LimitHit, Recompile, StackEntry, Unparsed
from torchtriage.recording.recording import Process, Recording
from torchtriage.text import original_function

MAX_UNPARSED_TEXT = 2000
NO_RANK = float("inf")  # sorts after every rank

_RECOMPILE = re.compile(r"Recompiling function (\S+)(?: in (.+):(\d+))?\s*$")
_REASON = re.compile(r"\s*- (.*)")
_REASON_ID = re.compile(r"(?:!?\d+(?:/\d+)*|None): ")
_LIMIT = re.compile(r"torch\._dynamo hit config\.(\w+) \((\d+)?")
_LIMIT_FUNCTION = re.compile(r"^\s*function: '(.*?)' \((.+):(\d+)\)\s*$", re.M)
_LAST_REASON = re.compile(r"^\s*last reason: (.*?)\s*(?=^To log all|^To diagnose|\Z)", re.M | re.S)
_NOT_CONVERTED = re.compile(r"WON'T CONVERT (\S+) (.+?) line (\d+)\s*$", re.M)
_LIMIT_RAISED = re.compile(
    r"^torch\._dynamo\.exc\.(?:Unsupported: Dynamo (?:recompile|cache) limit exceeded|RecompileLimitExceeded)", re.M)
_SKIPPED = re.compile(r"(?:Skipping frame )+(?:because )?(.*?)\s+(\S+) {8,}(.+) (\d+)\s*$", re.S)
_SKIPPED_IN_LOOP = re.compile(r"(?:Skipping frame )+(?:because )?(.*)\n<FrameSummary file (.+), line (\d+) in (.+?)>")
_SKIPPED_TRACING = re.compile(
    r"skipping: (\S+) \(reason: Dynamo decided to skip the frame while tracing: (.*), file: (.+)\)\s*$", re.S)
_NOTHING_TO_COMPILE = re.compile(r"no content in function call|No ops traced")
# A recompile storm repeats the same text; the cache parses it once, and its events share their strings.
_parse_break = lru_cache(maxsize=512)(parse_break)


def read_log(lines: Iterable[str], *, year: int | None = None) -> Recording:
    """The recording of a log, read line by line; a log does not name its year, so `year` or the current one is used."""
    year = year or time.gmtime().tm_year
    readers: dict[Stream, _Reader] = {}
    for message in messages(lines):
        if message.stream not in readers:
            readers[message.stream] = _reader_of(message.stream, readers)
        readers[message.stream].read(message, year)
    return Recording(processes=_processes(readers), origin="log")


def _reader_of(stream: Stream, readers: dict[Stream, "_Reader"]) -> "_Reader":
    """The reader for a new stream: that of the same process, which also logs before it has a rank, or a new one."""
    for other, reader in readers.items():
        is_same = stream.pid is not None and (other.pid, other.local_rank) == (stream.pid, stream.local_rank)
        if is_same and (reader.rank is None or stream.rank is None):
            reader.rank = stream.rank if reader.rank is None else reader.rank
            return reader
    return _Reader(stream)


class _Reader:
    """Turns the messages of one process into events; keeps those parts of a message that a later one needs."""

    def __init__(self, stream: Stream) -> None:
        self.rank, self.local_rank, self.pid = stream
        self.events: dict[int, Event] = {}  # by the order in which their messages began
        self._stacks: dict[tuple[object, ...], tuple[StackEntry, ...]] = {}
        self._last_break: int | None = None
        self._attempts: dict[tuple[object, ...], int] = {}
        self._limits: dict[tuple[object, ...], int] = {}
        self._item_warnings: dict[str | None, int] = {}

    def read(self, message: Message, year: int) -> None:
        columns: dict[str, Any] = {
            "time": _seconds(message.stamp, year), "rank": message.stream.rank, "pid": message.stream.pid,
            "compile_id": message.compile_id,
        }
        try:
            is_read = self._read(message, columns)
        except ValueError:  # a garbled number
            is_read = False
        if not is_read:
            self.events[message.order] = Unparsed(origin="log", text=message.text[:MAX_UNPARSED_TEXT], **columns)

    def _read(self, message: Message, columns: dict[str, Any]) -> bool:
        """Whether the message could be read; a message that repeats an earlier one adds no event."""
        head, text = message.lines[0], message.text
        if head.startswith("Recompiling"):
            return self._recompile(message, columns)
        if head.startswith("torch._dynamo hit"):
            return self._limit(text, message.order, columns)
        if head.startswith("Graph break from"):
            return self._item_warning(text, message.order, columns)
        if message.tag == "graph_breaks" or head.startswith("Graph break"):
            return self._break(text, message.order, columns)
        if head.startswith("WON'T CONVERT"):
            return self._not_converted(text, message.order, columns)
        return head.startswith(("Skipping", "skipping")) and self._skipped(text, message.order, columns)

    def _break(self, text: str, order: int, columns: dict[str, Any]) -> bool:
        if not text.startswith(("Graph break", "WON'T CONVERT")):
            return False
        parsed = _parse_break(text)
        place = (parsed.path, parsed.line)
        stack = strip_launchers(parsed.stack)
        if stack:
            self._stacks[place] = self._stacks[(*place, parsed.type)] = stack
        elif "stack suppressed" in text[:100]:
            stack = self._stacks.get((*place, parsed.type)) or self._stacks.get(place, ())
        self.events[order] = GraphBreak(
            path=parsed.path, line=parsed.line, function=stack[-1].function if stack else "", stack=stack,
            gb_id=parsed.gb_id, type=parsed.type, explanation=parsed.explanation, hints=parsed.hints,
            context=parsed.context, whole_frame=parsed.whole_frame, **columns,
        )
        self._last_break = order
        warning = self._item_warnings.pop(columns["compile_id"], None)
        if warning is not None:
            del self.events[warning]
        return True

    def _item_warning(self, text: str, order: int, columns: dict[str, Any]) -> bool:
        """torch warns of the first .item() in any log; if breaks are logged too, the break replaces the warning."""
        stack = strip_launchers(parse_stack(text))
        if not stack:
            return False
        self.events[order] = GraphBreak(
            path=stack[-1].path, line=stack[-1].line, function=stack[-1].function, stack=stack,
            type="Graph break from `Tensor.item()`", **columns)
        self._item_warnings[columns["compile_id"]] = order
        return True

    def _recompile(self, message: Message, columns: dict[str, Any]) -> bool:
        head = _RECOMPILE.match(message.lines[0])
        reasons = _reasons(message.lines[1:])
        if head is None or not (head[2] or reasons.texts):
            return False
        place: dict[str, Any] = {"path": head[2], "line": int(head[3])} if head[2] else {}
        attempt = (columns["compile_id"], head[1], head[2])
        limit = self._limits.pop(attempt, None)
        if limit is not None:
            hit = self.events[limit]
            assert isinstance(hit, LimitHit)
            if reasons.texts:
                self.events[limit] = replace(hit, reasons=reasons.texts, num_omitted=reasons.num_omitted)
            return True
        self.events[message.order] = Recompile(
            reasons=reasons.texts, num_omitted=reasons.num_omitted, function=head[1], **place, **columns)
        self._attempts[attempt] = message.order
        return True

    def _limit(self, text: str, order: int, columns: dict[str, Any]) -> bool:
        """A refused recompile is logged before or after its limit; the limit event takes its reasons."""
        head = _LIMIT.match(text)
        if head is None:
            return False
        function = _LIMIT_FUNCTION.search(text)
        last_reason = _LAST_REASON.search(text)
        reasons = kept([last_reason[1]] if last_reason and last_reason[1] else [])
        place: dict[str, Any] = {}
        if function:
            place = {"function": function[1], "path": function[2], "line": int(function[3])}
        attempt = (columns["compile_id"], place.get("function"), place.get("path"))
        refused = self._attempts.pop(attempt, None)
        if refused is not None:
            recompile = self.events.pop(refused)
            assert isinstance(recompile, Recompile)
            if recompile.reasons:
                reasons = KeptReasons(texts=recompile.reasons, num_omitted=recompile.num_omitted)
        else:
            self._limits[attempt] = order
        limit = int(head[2]) if head[2] else None
        self.events[order] = LimitHit(
            limit_name=head[1], limit=limit, reasons=reasons.texts, num_omitted=reasons.num_omitted, **place, **columns)
        return True

    def _not_converted(self, text: str, order: int, columns: dict[str, Any]) -> bool:
        head = _NOT_CONVERTED.match(text.split("\n", 1)[0])
        if head is None:
            return False
        if _LIMIT_RAISED.search(text):
            return True  # the limit has a separate warning
        reason = _parse_break(text).type
        if not self._is_skipped_by_break(head[1], head[2], columns["compile_id"], reason):
            self.events[order] = FrameSkipped(
                function=head[1], path=head[2], line=int(head[3]), reason=reason, **columns)
        return True

    def _skipped(self, text: str, order: int, columns: dict[str, Any]) -> bool:
        place: dict[str, Any]
        if match := _SKIPPED_IN_LOOP.match(text):
            reason, place = match[1], {"path": match[2], "line": int(match[3]), "function": match[4]}
        elif match := _SKIPPED.match(text):
            reason, place = match[1], {"function": match[2], "path": match[3], "line": int(match[4])}
        elif match := _SKIPPED_TRACING.match(text):
            reason, place = match[2], {"function": match[1], "path": match[3]}
        else:
            return text.startswith("skipping: ")  # a frame of torch or of the standard library
        is_reported = self._is_skipped_by_break(place["function"], place["path"], columns["compile_id"], None)
        if not is_reported and not _NOTHING_TO_COMPILE.search(reason):
            self.events[order] = FrameSkipped(reason=reason, **place, **columns)
        return True

    def _is_skipped_by_break(self, function: str, path: str, compile_id: str | None, reason: str | None) -> bool:
        """Whether the last break is why this frame was skipped; the break is then marked as one of an entire frame."""
        if self._last_break is None:
            return False
        event = self.events.get(self._last_break)
        if not isinstance(event, GraphBreak):
            return False
        if compile_id not in (None, event.compile_id) or reason not in (None, event.type):
            return False
        if event.whole_frame:
            return True
        frame = (original_function(function), path)
        if frame not in [(original_function(entry.function), entry.path) for entry in event.stack]:
            return False
        self.events[self._last_break] = replace(event, whole_frame=True)
        return True


def _reasons(lines: list[str]) -> KeptReasons:
    """One reason per cache entry. A reason may have several lines with dashes; the first begins with a compile id."""
    items = [match[1] for line in lines if (match := _REASON.match(line))]
    have_ids = any(_REASON_ID.match(item) for item in items)
    reasons: list[str] = []
    for item in items:
        is_first = _REASON_ID.match(item) if have_ids else not item.startswith((" ", "User stack trace:"))
        if is_first or not reasons:
            reasons.append(item)
        else:
            reasons[-1] += "\n" + item
    return kept([reason.rstrip() for reason in reasons])


def _seconds(stamp: str, year: int) -> float:
    """Seconds since the epoch; a log does not name its time zone, so UTC is assumed, as for a trace."""
    if not stamp:
        return 0.0
    month, day = int(stamp[:2]), int(stamp[2:4])
    hour, minute, second = int(stamp[5:7]), int(stamp[8:10]), int(stamp[11:13])
    if not 1 <= month <= 12:
        return 0.0
    return calendar.timegm((year, month, day, hour, minute, second, 0, 0, 0)) + int(stamp[14:]) / 1e6


def _processes(readers: dict[Stream, _Reader]) -> tuple[Process, ...]:
    """One process per rank and process id; text without prefixes belongs to the process if there is only one."""
    distinct = {id(reader): reader for reader in readers.values()}.values()
    named = [reader for reader in distinct if reader.pid is not None]
    groups: dict[tuple[float, int], dict[int, Event]] = {}
    for reader in distinct:
        is_unnamed = (reader.rank, reader.local_rank, reader.pid) == (None, None, None)
        owner = named[0] if is_unnamed and len(named) == 1 else reader
        rank = owner.rank if owner.rank is not None else owner.local_rank
        groups.setdefault((NO_RANK if rank is None else rank, owner.pid or 0), {}).update(reader.events)
    ordered = sorted(groups.items(), key=lambda item: item[0])
    processes = []
    for (number, pid), events in ordered:
        processes.append(_process(None if number == NO_RANK else int(number), pid or None, events))
    return tuple(processes)


def _process(rank: int | None, pid: int | None, by_order: dict[int, Event]) -> Process:
    events = (event for _, event in sorted(by_order.items(), key=lambda item: item[0]))
    return Process(
        events=tuple(event if event.rank == rank else replace(event, rank=rank) for event in events),
        facts={"rank": rank, "pid": pid},
    )
