"""Assembles the messages of a TORCH_LOGS log from its lines, without their prefixes."""

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

TAGS = frozenset({"graph_breaks", "recompiles", "recompiles_verbose"})
MAX_OPEN = 16           # torch writes a message at once, so only other threads of the process write between its lines
MAX_LINE = 20_000       # characters; guards have some 1,000. The time to match a line grows with its square
MAX_BLOCK_LINES = 1000  # the end of a message without prefixes is uncertain; the longest user stacks are below this

_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_RANKS = r"((?:\[[A-Za-z_]{1,40}\d{1,6}\]: ?){0,4})"
_COMPILE_ID = r"\[(!\d+(?:/\d+)*|\d+/\d+)(?:_\d+)?\] ?"
_PREFIX = re.compile(
    _RANKS + r"[VDIWEC](\d{4} \d\d:\d\d:\d\d\.\d{6}) (\d{1,10}) ([^\]]{1,300}?:\d+)\] ?"
    r"(?:" + _COMPILE_ID + r")?(?:\[__(\w+)\] ?)?")
_TAG = re.compile(r"(?:" + _COMPILE_ID + r")?\[__(graph_breaks|recompiles|recompiles_verbose)\] ?")
_LEADING_ID = re.compile(_COMPILE_ID)
_LAST_ID = re.compile(_COMPILE_ID + r"$")
_LEADING_RANKS = re.compile(_RANKS)
_RANK = re.compile(r"\[([A-Za-z_]+)(\d+)\]:")
_DYNAMO = re.compile(r"torch[/\\]_dynamo[/\\]")
_BARE_HEAD = re.compile(
    r"Graph break(?: \([^)]{1,100}\))? in user code at |Graph break: (?:skip: from user code|torch\.compile cannot)|"
    r"Recompiling function \S|torch\._dynamo hit config\.")
_HEAD = re.compile(_BARE_HEAD.pattern + r"|Graph break from `|WON'T CONVERT |Skipping frame |skipping: ")
_RECOMPILE_LINE = re.compile(r"\s+triggered by the following|\s*- |\s+guard \d+ failures:|\s*$")
_LIMIT_LINE = re.compile(r"\s+\S|User stack trace:|To log all|To diagnose|\s*$")
_BREAK_LINE = re.compile(
    r"\s|$|(?:Graph Break )?Reason:|User code traceback:|Stack variable source attribution:|\*\*\* While handling|"
    r"torch\.compile will skip|The graph break occurred|Traceback \(|torch\._dynamo\.exc\.|"
    r"from user code:|Set TORCHDYNAMO")
_BEFORE_TYPE = re.compile(r"(?:Graph Break )?Reason: .*:$|\*\*\* .*\*\*\*$")


class Stream(NamedTuple):
    """The origin of a line: torch's own rank, the launcher's local rank, the process."""

    rank: int | None
    local_rank: int | None
    pid: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of torch's; `order` counts messages by their first line, `stamp` is the month, day and time."""

    stream: Stream
    order: int
    stamp: str = ""
    compile_id: str | None = None
    tag: str = ""
    lines: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def messages(lines: Iterable[str]) -> Iterator[Message]:
    """The messages about breaks, recompiles, limits and skipped frames; per process in the order they began."""
    assembler = _Assembler()
    blocks = assembler.blocks
    for long_line in lines:
        line = long_line[:MAX_LINE]
        if "_dynamo" in line or "break" in line or "ecompil" in line or blocks:
            yield from assembler.feed(line)
    yield from assembler.close()


class _Assembler:
    """Incomplete messages: by their full prefix, and at most one per stream without prefixes."""

    def __init__(self) -> None:
        self.blocks: dict[Stream, _Block] = {}
        self._orders = itertools.count()
        self._open: dict[Stream, dict[tuple[str | None, ...], Message]] = {}

    def feed(self, line: str) -> list[Message]:
        """The messages that this line completes. It may hold several lines, joined by processes that share a pipe."""
        line = line.rstrip("\r\n")
        if "\x1b" in line:
            line = _COLOUR.sub("", line)
        prefix = _PREFIX.search(line)
        if prefix is None:
            return self._feed_bare(line)
        done: list[Message] = []
        while line.find("_dynamo", prefix.end()) >= 0 and (following := _PREFIX.search(line, prefix.end())):
            done += self._feed_prefixed(prefix, line[prefix.end(): following.start()])
            prefix = following
        return done + self._feed_prefixed(prefix, line[prefix.end():])

    def close(self) -> Iterator[Message]:
        for block in self.blocks.values():
            yield block.message
        for incomplete in self._open.values():
            yield from incomplete.values()

    def _feed_prefixed(self, prefix: re.Match[str], text: str) -> list[Message]:
        ranks, stamp, pid, place, compile_id, tag = prefix.groups()
        is_tagged = tag in TAGS
        if not is_tagged and (tag or not _DYNAMO.search(place)):
            return []
        stream = _stream(ranks, pid)
        key = (stamp, place, compile_id, tag)
        incomplete = self._open.get(stream)
        message = incomplete.get(key) if incomplete else None
        is_head = _HEAD.match(text) is not None
        if message is not None and not is_head:
            message.lines.append(text)
            return []
        if not is_tagged and not is_head:
            return []
        done: list[Message] = []
        if incomplete is None:
            incomplete = self._open[stream] = {}
            if stream.rank is not None:     # the process had no rank before
                done = list(self._open.pop(stream._replace(rank=None), {}).values())
        elif message is not None:
            done = list(incomplete.values())
            incomplete.clear()
        elif len(incomplete) >= MAX_OPEN:
            done = [incomplete.pop(next(iter(incomplete)))]
        incomplete[key] = Message(
            stream=stream, order=next(self._orders), stamp=stamp, compile_id=compile_id, tag=tag or "", lines=[text])
        return done

    def _feed_bare(self, line: str) -> list[Message]:
        """A line without torch's prefix: pasted text, another log format, or the program's own output."""
        ranks = _LEADING_RANKS.match(line)
        stream = _stream(ranks[1] if ranks else "", None)
        tag = _TAG.search(line)
        head = _BARE_HEAD.search(line, tag.end() if tag else 0)
        block = self.blocks.get(stream)
        if block is not None and head is None and block.take(line):
            return []
        done = [self.blocks.pop(stream).message] if block is not None else []
        if head is None and tag is None:
            return done
        if head is not None:
            text_at = head.start()
        else:
            text_at = tag.end() if tag else 0
        marks = tag or _LAST_ID.search(line, 0, text_at)
        message = Message(
            stream=stream, order=next(self._orders), compile_id=marks[1] if marks else None,
            tag=tag[2] if tag else "", lines=[line[text_at:]])
        self.blocks[stream] = _Block(before=_shape(line[: marks.start() if marks else text_at]), message=message)
        return done


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """A message without prefixes: its lines are recognised by form. `before` is the shape of another tool's prefix."""

    before: str
    message: Message

    def take(self, line: str) -> bool:
        """Add the line if it belongs to the message; returns whether it does."""
        lines = self.message.lines
        if self.before and _shape(line[: len(self.before)]) == self.before:
            line = line[len(self.before):]
        tag = _TAG.match(line)
        marks = tag or _LEADING_ID.match(line)
        if marks:
            line = line[marks.end():]
            if (marks[1], tag[2] if tag else "") != (self.message.compile_id, self.message.tag):
                return False
        if len(lines) >= MAX_BLOCK_LINES or not (tag or self._continues(line)):
            return False
        lines.append(line)
        return True

    def _continues(self, line: str) -> bool:
        head = self.message.lines[0]
        if head.startswith("Recompiling"):
            return _RECOMPILE_LINE.match(line) is not None
        if head.startswith("torch._dynamo"):
            return _LIMIT_LINE.match(line) is not None
        if head.startswith("Graph break"):
            last = next((text for text in reversed(self.message.lines) if text.strip()), "")
            return _BREAK_LINE.match(line) is not None or _BEFORE_TYPE.match(last) is not None
        return False


def _shape(before: str) -> str:
    """The text with every digit replaced by 0, so that the timestamps of two lines are equal."""
    return re.sub(r"\d", "0", before)


@lru_cache(maxsize=1024)
def _stream(ranks: str, pid: str | None) -> Stream:
    """The stream of a line that begins with these ranks, as in "[default0]:[rank8]:"."""
    rank = local_rank = None
    for role, number in _RANK.findall(ranks):
        if role == "rank":
            rank = int(number)
        else:
            local_rank = int(number)
    return Stream(rank, local_rank, int(pid) if pid else None)
