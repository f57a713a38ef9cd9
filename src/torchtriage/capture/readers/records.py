"""Translates PyTorch's structured trace records, from a file or a live process, into events."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torchtriage.capture.readers.break_text import parse_break, parse_failure
from torchtriage.capture.readers.reasons import parse_reasons
from torchtriage.errors import pass_on_signals
from torchtriage.recording.events import (
    CacheUse,
    CompileEnd,
    CompileStart,
    Event,
    GraphBreak,
    GuardValue,
    LimitHit,
    Recompile,
    StackEntry,
    Unparsed,
)

Metadata = Mapping[str, Any]

KINDS = frozenset({
    "str", "artifact", "dynamo_start", "compilation_metrics", "bwd_compilation_metrics", "create_symbol",
    "dynamo_cpp_guards_str",
})
ARTIFACTS = frozenset({
    "dynamo_error", "dynamo_graph_break_reason", "recompile_reasons", "fx_graph_cache_hit", "fx_graph_cache_miss",
    "fx_graph_cache_bypass", "aotautograd_cache_hit", "aotautograd_cache_miss", "aotautograd_cache_bypass",
})
NO_PAYLOAD = frozenset(name for name in ARTIFACTS if name.endswith(("_hit", "_miss")))

_LIMIT = re.compile(r"recompile[_ ]limit|cache_size_limit", re.I)
_LIMIT_NAME = re.compile(r"(accumulated_recompile_limit|accumulated_cache_size_limit|recompile_limit|cache_size_limit)")
_LIMIT_VALUE = re.compile(r"currently set to (\d+)")
_EQUALS = re.compile(r"EQUALS_MATCH: (.+?) == (.+?)(?:\s+#.*)?$", re.M)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OUR_FOLDERS = tuple(os.path.join(_PACKAGE, name, "") for name in ("capture", "integrations", "launch", "recording"))
_RUNPY = re.compile(r"<frozen runpy>$|[/\\]runpy\.py$")
MAX_GUARD_VALUES = 32
MAX_VALUE = 2000           # characters
MAX_FAIL_REASON = 2000     # characters


class Translator:
    """Translates records one by one.

    It keeps those parts of earlier records that a later one needs: interned file names, the frame of each compile id,
    recompiles in progress, and the lines at which a compile failed.
    """

    def __init__(self, lookup_string: Callable[[int], str | None] = lambda _: None) -> None:
        self._strings: dict[int, str] = {}
        self._lookup_string = lookup_string
        self._frames: dict[str, CompileStart] = {}
        self._pending: dict[str, Recompile] = {}
        self._failures: dict[str, tuple[StackEntry, ...]] = {}

    def feed(
        self, metadata: Metadata, payload: str | None, callers: tuple[StackEntry, ...] = (), **columns: Any,
    ) -> Iterator[Event]:
        """The events of one record; a record that cannot be read becomes an Unparsed event.

        `callers` are the innermost lines above the frame that is being compiled; torch leaves them out of its stack.
        """
        try:
            yield from self._feed(metadata, payload, callers, columns)
        except Exception as error:      # a record from a file may have any form
            pass_on_signals(error)
            yield Unparsed(origin="trace", text=f"{type(error).__name__}: {error}: {str(metadata)[:500]}", **columns)

    def finish(self) -> Iterator[Event]:
        """Recompiles whose outcome is not in the trace."""
        yield from self._pending.values()
        self._pending.clear()

    def _feed(
        self, metadata: Metadata, payload: str | None, callers: tuple[StackEntry, ...], columns: dict[str, Any],
    ) -> Iterator[Event]:
        if "str" in metadata:
            text, index = metadata["str"]
            self._strings[index] = text
            return
        columns["compile_id"] = compile_id_of(metadata)
        if isinstance(metadata.get("rank"), int):
            columns["rank"] = metadata["rank"]
        if "artifact" in metadata:
            yield from self._artifact(metadata["artifact"]["name"], payload or "", columns)
        elif "dynamo_start" in metadata:
            yield from self._start(metadata["dynamo_start"], callers, columns)
        elif "compilation_metrics" in metadata:
            yield from self._metrics(metadata["compilation_metrics"], columns)
        elif "bwd_compilation_metrics" in metadata:
            yield self._end(metadata["bwd_compilation_metrics"], columns, is_backward=True)
        elif "create_symbol" in metadata:
            symbol = metadata["create_symbol"]
            yield GuardValue(source=symbol["source"], value=str(symbol["val"]), is_dynamic=True, **columns)
        elif "dynamo_cpp_guards_str" in metadata:
            yield from self._guards(payload or "", columns)

    def _artifact(self, name: str, payload: str, columns: dict[str, Any]) -> Iterator[Event]:
        if name == "dynamo_graph_break_reason":
            yield self._break(payload, columns)
        elif name == "recompile_reasons":
            frame = self._frames.get(_frame_part(columns["compile_id"]))
            place = _place_of(frame)
            reasons = parse_reasons(payload)
            self._pending[columns["compile_id"]] = Recompile(
                reasons=reasons.texts, num_omitted=reasons.num_omitted, **place, **columns)
        elif name == "dynamo_error":
            self._failures[columns["compile_id"]] = parse_failure(payload)
        elif name in ARTIFACTS:
            cache, _, outcome = name.rpartition("_cache_")
            reason = _bypass_reason(payload) if outcome == "bypass" else ""
            yield CacheUse(cache=cache, outcome=outcome, reason=reason, **columns)

    def _break(self, payload: str, columns: dict[str, Any]) -> GraphBreak:
        text = parse_break(payload)
        stack = strip_launchers(text.stack)
        place: dict[str, Any] = {"path": text.path, "line": text.line, "function": text.function, "stack": stack}
        # For a break that skips its frame, torch 2.9 leaves out the callers of the frame, and also the place if the
        # last line had been traced.
        frame = self._frames.get(_frame_part(columns["compile_id"]))
        if text.line is None:
            place |= _place_of(frame)
        elif frame is not None and text.stack:
            outermost = text.stack[0]
            if (outermost.path, outermost.function) == (frame.path, frame.function):
                place["stack"] = frame.stack[:-1] + stack
        return GraphBreak(
            gb_id=text.gb_id, type=text.type, explanation=text.explanation, hints=text.hints, context=text.context,
            whole_frame=text.whole_frame, **place, **columns,
        )

    def _start(self, start: Metadata, callers: tuple[StackEntry, ...], columns: dict[str, Any]) -> Iterator[Event]:
        stack = strip_launchers(tuple(self._stack_entry(entry) for entry in start.get("stack", ())))
        if stack:
            lines = {(entry.path, entry.line) for entry in stack}
            left_out = [caller for caller in strip_launchers(callers) if (caller.path, caller.line) not in lines]
            stack = (*stack[:-1], *left_out, stack[-1])
        place: dict[str, Any] = {}
        if stack:
            place = {"path": stack[-1].path, "line": stack[-1].line, "function": stack[-1].function, "stack": stack}
        event = CompileStart(**place, **columns)
        compile_id = columns["compile_id"]
        self._frames[_frame_part(compile_id)] = event
        pending = self._pending.pop(compile_id, None)
        if pending is not None:
            yield Recompile(
                reasons=pending.reasons, num_omitted=pending.num_omitted, knows_caller=bool(callers), **place,
                **columns)
        yield event

    def _stack_entry(self, entry: Metadata) -> StackEntry:
        name = entry["filename"]
        if isinstance(name, int):
            name = self._strings.get(name) or self._lookup_string(name) or f"<string {name}>"
        code = str(entry.get("loc") or "")
        return StackEntry(path=str(name), line=int(entry["line"]), function=str(entry["name"]), code=code)

    def _metrics(self, metrics: Metadata, columns: dict[str, Any]) -> Iterator[Event]:
        reason = str(metrics.get("fail_reason") or "")
        pending = self._pending.pop(columns["compile_id"], None)
        failed_at = self._failures.pop(columns["compile_id"], ())
        if metrics.get("fail_type") and _LIMIT.search(reason.split("\n", 1)[0] + str(metrics["fail_type"])):
            place = _place_of(self._frames.get(_frame_part(columns["compile_id"])))
            reasons, num_omitted = (pending.reasons, pending.num_omitted) if pending else ((), 0)
            yield LimitHit(reasons=reasons, num_omitted=num_omitted, **_limit(reason, metrics), **place, **columns)
            return
        if pending is not None:
            yield pending
        yield self._end(metrics, columns, failed_at)

    def _end(
        self, metrics: Metadata, columns: dict[str, Any], failed_at: tuple[StackEntry, ...] = (),
        is_backward: bool = False,
    ) -> CompileEnd:
        frame = self._frames.get(_frame_part(columns["compile_id"]))
        place = _place_of(frame)
        if not place and metrics.get("co_filename"):
            line = metrics.get("co_firstlineno")
            place = {"path": str(metrics["co_filename"]), "line": None if line is None else int(line),
                     "function": str(metrics.get("co_name") or "")}
        place["stack"] = _failure_stack(metrics, failed_at)
        fail_reason = metrics.get("fail_reason")
        return CompileEnd(
            seconds=_seconds(metrics, "duration_us"), is_backward=is_backward,
            backend_seconds=_seconds(metrics, "aot_autograd_cumulative_compile_time_us"),
            inductor_seconds=_seconds(metrics, "inductor_cumulative_compile_time_us"),
            fail_type=metrics.get("fail_type"), fail_reason=str(fail_reason)[:MAX_FAIL_REASON] if fail_reason else None,
            produced_code=metrics.get("has_guarded_code"), num_graph_ops=metrics.get("graph_op_count"),
            num_guards=metrics.get("guard_count"), suppress_errors=metrics.get("config_suppress_errors"),
            **place, **columns,
        )

    def _guards(self, payload: str, columns: dict[str, Any]) -> Iterator[Event]:
        compile_id = columns["compile_id"]
        if compile_id is None or compile_id.endswith("/0"):
            return  # a first compile has no recompile reason to complete
        for source, value in _EQUALS.findall(payload)[:MAX_GUARD_VALUES]:
            yield GuardValue(source=source, value=value.strip()[:MAX_VALUE], **columns)


def _failure_stack(metrics: Metadata, traced: tuple[StackEntry, ...]) -> tuple[StackEntry, ...]:
    """The line that was being traced when the compile failed, below its callers if the traceback has them.

    Empty if torch does not give the line.
    """
    path, line = metrics.get("fail_user_frame_filename"), metrics.get("fail_user_frame_lineno")
    if not path or not line:
        return ()
    if traced and (traced[-1].path, traced[-1].line) == (str(path), int(line)):
        return traced
    return (StackEntry(path=str(path), line=int(line), function=""),)


def compile_id_of(metadata: Metadata) -> str | None:
    """The compile id as torch prints it, `0/1`, with the prefix of compiled autograd if there is one."""
    frame, number = metadata.get("frame_id"), metadata.get("frame_compile_id")
    autograd = metadata.get("compiled_autograd_id")
    if frame is None:
        return None if autograd is None else f"!{autograd}"
    return f"{frame}/{number}" if autograd is None else f"!{autograd}/{frame}/{number}"


def strip_launchers(stack: tuple[StackEntry, ...]) -> tuple[StackEntry, ...]:
    """The stack without the frames of torchtriage and of runpy."""
    return tuple(e for e in stack if not e.path.startswith(OUR_FOLDERS) and not _RUNPY.search(e.path))


def _bypass_reason(payload: str) -> str:
    """The reason in a cache's payload, which also holds a traceback and more; the payload itself if it has none."""
    try:
        fields = json.loads(payload)
        reason = fields.get("cache_bypass_reason") if isinstance(fields, dict) else None
    except ValueError:
        reason = None
    return str(reason or payload)[:500]


def _frame_part(compile_id: str | None) -> str:
    return (compile_id or "").rpartition("/")[0]


def _place_of(frame: CompileStart | None) -> dict[str, Any]:
    if frame is None:
        return {}
    return {"path": frame.path, "line": frame.line, "function": frame.function, "stack": frame.stack}


def _limit(reason: str, metrics: Metadata) -> dict[str, Any]:
    match = _LIMIT_NAME.search(reason.rsplit("Limit type:", 1)[-1]) or _LIMIT_NAME.search(reason)
    name = match[1] if match else "recompile_limit"
    value = _LIMIT_VALUE.search(reason)
    if value:
        return {"limit_name": name, "limit": int(value[1])}
    try:
        return {"limit_name": name, "limit": json.loads(metrics["dynamo_config"])[name]}
    except (KeyError, TypeError, ValueError):
        return {"limit_name": name}


def _seconds(metrics: Metadata, key: str) -> float | None:
    """A metric that torch gives in microseconds."""
    value = metrics.get(key)
    return value / 1e6 if isinstance(value, (int, float)) else None
