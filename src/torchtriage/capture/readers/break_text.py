"""Parses PyTorch's text for a graph break, which a trace has in the same form as a log."""

import re
from dataclasses import dataclass

from torchtriage.recording.events import StackEntry

_HEADER = re.compile(
    r"Graph [Bb]reak(?: \(user stack suppressed due to duplicate graph break\))? in user code at (.+?):(\d+)\s*$", re.M)
_REASON = re.compile(r"^Graph Break Reason: ?(.*)$", re.M)
_PREFACE = re.compile(
    r"Encountered graph break (?:when attempting to|that we cannot resume)|Failed to handle graph break gracefully")
_GB_ID = re.compile(r"/(gb\d{4})\.html", re.I)
_FRAME = re.compile(r'^\s*File "(.+?)", line (\d+)(?:, in (.+?))?\s*$')
_SECTION = re.compile(r"^ {0,2}(Explanation|Hint|Developer debug context): ?", re.M)
_USER_STACK = re.compile(
    r"^(?:User code traceback|Graph break: skip: from user code at|"
    r"The graph break occurred in the following user code):\s*$", re.M)
_SECOND_PART = re.compile(r"^(?:\*\*\* While handling this graph break|Stack variable source attribution:)", re.M)
# The frame that runs eager: the only place in the text of a break that came after the last line was traced.
_NOT_CONVERTED = re.compile(
    r"(?:WON'T CONVERT|torch\.compile will skip tracing the frame) (\S+) \(?(.+?) line (\d+)(?:\s*$|\))", re.M)
_RAISED = re.compile(r"^[A-Za-z_][\w.]*: ", re.M)
_STACK_END = re.compile(
    r"^(?:Traceback \(most recent call last\):|The above exception|During handling|Set TORCHDYNAMO_VERBOSE|"
    r"from user code:|NoneType: None)", re.M)
_WHOLE_FRAME = re.compile(
    r"WON'T CONVERT|results in a skip|skipping the (?:whole )?(?:frame|function)|skipping frame|"
    r"graph break in (?:a )?(?:for/while )?loop", re.I)
_GB_LINK = re.compile(r"For more details about this graph break, please visit: \S+")


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakText:
    """The fields of a graph break's text; a field that the text lacks is empty."""

    path: str
    line: int | None
    type: str
    explanation: str
    hints: tuple[str, ...]
    context: str
    gb_id: str | None
    stack: tuple[StackEntry, ...]
    whole_frame: bool

    @property
    def function(self) -> str:
        return self.stack[-1].function if self.stack else ""


def parse_break(text: str) -> BreakText:
    """Read every field that the text holds; never raises."""
    reason_text, stack = _split_stack(text)
    header = _HEADER.search(text)
    path, line = (header[1], int(header[2])) if header else ("unknown", None)
    if header is None and stack:
        path, line = stack[-1].path, stack[-1].line
    body = _body(reason_text) if header else _raised(text) or _body(reason_text)
    gb = _GB_ID.search(body)
    parts = _SECTION.split(_SECOND_PART.split(body, maxsplit=1)[0])
    sections: dict[str, list[str]] = {}
    for name, value in zip(parts[1::2], parts[2::2], strict=False):
        sections.setdefault(name, []).append(_GB_LINK.sub("", value).strip())
    return BreakText(
        path=path, line=line, type=_type(parts[0]), gb_id=gb[1].upper() if gb else None, stack=stack,
        explanation=" ".join(sections.get("Explanation", [])), hints=tuple(sections.get("Hint", [])),
        context=" ".join(sections.get("Developer debug context", [])),
        whole_frame=text.startswith("Graph break: skip") or bool(_WHOLE_FRAME.search(reason_text)),
    )


def _split_stack(text: str) -> tuple[str, tuple[StackEntry, ...]]:
    """(the text before the user stack, the stack)."""
    marker = _USER_STACK.search(text)
    if marker is None:
        end = _STACK_END.search(text)
        return (text[: end.start()] if end else text), _skipped_frame(text)
    stack_text = text[marker.end():]
    end = _STACK_END.search(stack_text)
    stack = parse_stack(stack_text[: end.start()] if end else stack_text)
    return text[: marker.start()], stack or _skipped_frame(text)


def _skipped_frame(text: str) -> tuple[StackEntry, ...]:
    frame = _NOT_CONVERTED.search(text)
    return (StackEntry(path=frame[2], line=int(frame[3]), function=frame[1]),) if frame else ()


def parse_stack(text: str) -> tuple[StackEntry, ...]:
    """The entries of a Python traceback, outermost first, each with its source line."""
    entries: list[StackEntry] = []
    for raw in text.splitlines():
        frame = _FRAME.match(raw)
        if frame:
            entries.append(StackEntry(path=frame[1], line=int(frame[2]), function=frame[3] or ""))
        elif entries and not entries[-1].code and raw.strip() and not set(raw.strip()) <= set("^~"):
            last = entries[-1]
            entries[-1] = StackEntry(path=last.path, line=last.line, function=last.function, code=raw.strip())
    return tuple(entries)


def parse_failure(text: str) -> tuple[StackEntry, ...]:
    """The user's lines in the traceback of a failed compile, from the compiled frame inwards; empty if it has none."""
    _, found, after = text.rpartition("\nfrom user code:\n")
    if not found:
        return ()
    end = _STACK_END.search(after)
    return parse_stack(after[: end.start()] if end else after)


def _body(reason_text: str) -> str:
    reason = _REASON.search(reason_text)
    if reason:
        return reason_text[reason.start(1):]
    header = _HEADER.search(reason_text)
    return reason_text[header.end():] if header else reason_text


def _raised(text: str) -> str:
    """The message of the last exception, which alone describes a break that sends its entire frame to eager."""
    starts = [match.start() for match in _RAISED.finditer(text)]
    if not starts:
        return ""
    message = text[starts[-1]:]
    end = _STACK_END.search(message)
    return (message[: end.start()] if end else message).removeprefix("torch._dynamo.exc.Unsupported: ")


def _type(head: str) -> str:
    """The first line of the reason, after the preface that newer versions put before it."""
    for line in head.splitlines():
        line = line.strip()
        if line and not _PREFACE.match(line):
            return line.removeprefix("Graph break: ").removeprefix("Reason: ")
    return head.strip().partition("\n")[0].strip()
