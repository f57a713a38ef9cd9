"""PyTorch's structured trace records, from a file or from a live process, become events."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torchtriage.capture.readers.break_text import parse_break
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
    "str", "artifact", "dynamo_start", "compilation_metrics", "bwd_compilation_metrics", "create_symbol", "dynamo_cpp_guards_str",
})
ARTIFACTS = frozenset({
    "dynamo_graph_break_reason", "recompile_reasons", "fx_graph_cache_hit", "fx_graph_cache_miss", "fx_graph_cache_bypass",
    "aotautograd_cache_hit", "aotautograd_cache_miss", "aotautograd_cache_bypass",
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


class Translator:
    """Keeps what one record needs from earlier ones: interned file names, the frame behind a compile id, the recompile under way."""

    def __init__(self, lookup_string: Callable[[int], str | None] = lambda _: None) -> None:
        self._strings: dict[int, str] = {}
        self._lookup_string = lookup_string
        self._frames: dict[str, CompileStart] = {}
        self._pending: dict[str, Recompile] = {}

    def feed(self, metadata: Metadata, payload: str | None, callers: tuple[StackEntry, ...] = (), **columns: Any) -> Iterator[Event]:
        """The events of one record; a record that we cannot read becomes an Unparsed event.

        `callers` are the innermost lines above the frame now being compiled, which torch leaves out of the stack it records.
        """
        try:
            yield from self._feed(metadata, payload, callers, columns)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            pass_on_signals(error)
            yield Unparsed(origin="trace", text=f"{type(error).__name__}: {error}: {str(metadata)[:500]}", **columns)

    def finish(self) -> Iterator[Event]:
        """Recompiles whose outcome the trace does not tell."""
        yield from self._pending.values()
        self._pending.clear()

    def _feed(self, metadata: Metadata, payload: str | None, callers: tuple[StackEntry, ...], columns: dict[str, Any]) -> Iterator[Event]:
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
            yield GuardValue(source=symbol["source"], value=str(symbol["val"]), **columns)
        elif "dynamo_cpp_guards_str" in metadata:
            yield from self._guards(payload or "", columns)

    def _artifact(self, name: str, payload: str, columns: dict[str, Any]) -> Iterator[Event]:
        if name == "dynamo_graph_break_reason":
            yield self._break(payload, columns)
        elif name == "recompile_reasons":
            frame = self._frames.get(_frame_part(columns["compile_id"]))
            place = _place_of(frame)
            self._pending[columns["compile_id"]] = Recompile(reasons=parse_reasons(payload), **place, **columns)
        elif name in ARTIFACTS:
            cache, _, outcome = name.rpartition("_cache_")
            yield CacheUse(cache=cache, outcome=outcome, reason=_bypass_reason(payload) if outcome == "bypass" else "", **columns)

    def _break(self, payload: str, columns: dict[str, Any]) -> GraphBreak:
        text = parse_break(payload)
        place: dict[str, Any] = {"path": text.path, "line": text.line, "function": text.function, "stack": strip_launchers(text.stack)}
        # A break that skips its frame: 2.9 leaves out the callers of the frame, and the place if the last line had been traced.
        frame = self._frames.get(_frame_part(columns["compile_id"]))
        if text.line is None:
            place |= _place_of(frame)
        elif frame is not None and text.stack and (text.stack[0].path, text.stack[0].function) == (frame.path, frame.function):
            place["stack"] = frame.stack[:-1] + place["stack"]
        return GraphBreak(
            gb_id=text.gb_id, type=text.type, explanation=text.explanation, hints=text.hints, context=text.context,
            whole_frame=text.whole_frame, **place, **columns,
        )

    def _start(self, start: Metadata, callers: tuple[StackEntry, ...], columns: dict[str, Any]) -> Iterator[Event]:
        stack = strip_launchers(tuple(self._stack_entry(entry) for entry in start.get("stack", ())))
        known = {(e.path, e.line) for e in stack}
        if stack:
            left_out = (caller for caller in strip_launchers(callers) if (caller.path, caller.line) not in known)
            stack = (*stack[:-1], *left_out, stack[-1])
        place: dict[str, Any] = {}
        if stack:
            place = {"path": stack[-1].path, "line": stack[-1].line, "function": stack[-1].function, "stack": stack}
        event = CompileStart(**place, **columns)
        compile_id = columns["compile_id"]
        self._frames[_frame_part(compile_id)] = event
        pending = self._pending.pop(compile_id, None)
        if pending is not None:
            yield Recompile(reasons=pending.reasons, knows_caller=bool(callers), **place, **columns)
        yield event

    def _stack_entry(self, entry: Metadata) -> StackEntry:
        name = entry["filename"]
        if isinstance(name, int):
            name = self._strings.get(name) or self._lookup_string(name) or f"<string {name}>"
        return StackEntry(path=str(name), line=int(entry["line"]), function=str(entry["name"]), code=str(entry.get("loc") or ""))

    def _metrics(self, metrics: Metadata, columns: dict[str, Any]) -> Iterator[Event]:
        reason = str(metrics.get("fail_reason") or "")
        pending = self._pending.pop(columns["compile_id"], None)
        if metrics.get("fail_type") and _LIMIT.search(reason.split("\n", 1)[0] + str(metrics["fail_type"])):
            frame = self._frames.get(_frame_part(columns["compile_id"]))
            yield LimitHit(reasons=pending.reasons if pending else (), **_limit(reason, metrics), **_place_of(frame), **columns)
            return
        if pending is not None:
            yield pending
        yield self._end(metrics, columns)

    def _end(self, metrics: Metadata, columns: dict[str, Any], is_backward: bool = False) -> CompileEnd:
        frame = self._frames.get(_frame_part(columns["compile_id"]))
        place = _place_of(frame)
        if not place and metrics.get("co_filename"):
            line = metrics.get("co_firstlineno")
            place = {"path": str(metrics["co_filename"]), "line": None if line is None else int(line),
                     "function": str(metrics.get("co_name") or "")}
        place["stack"] = _failed_at(metrics)
        return CompileEnd(
            seconds=_microseconds(metrics, "duration_us"), is_backward=is_backward,
            backend_seconds=_microseconds(metrics, "aot_autograd_cumulative_compile_time_us"),
            inductor_seconds=_microseconds(metrics, "inductor_cumulative_compile_time_us"),
            fail_type=metrics.get("fail_type"), fail_reason=(str(metrics["fail_reason"])[:2000] if metrics.get("fail_reason") else None),
            produced_code=metrics.get("has_guarded_code"), num_graph_ops=metrics.get("graph_op_count"),
            num_guards=metrics.get("guard_count"), suppress_errors=metrics.get("config_suppress_errors"), **place, **columns,
        )

    def _guards(self, payload: str, columns: dict[str, Any]) -> Iterator[Event]:
        compile_id = columns["compile_id"]
        if compile_id is None or compile_id.endswith("/0"):
            return  # a first compile has no recompile reason to complete
        for source, value in _EQUALS.findall(payload)[:MAX_GUARD_VALUES]:
            yield GuardValue(source=source, value=value.strip(), **columns)


def _failed_at(metrics: Metadata) -> tuple[StackEntry, ...]:
    """The line of the program that was being traced when the compile failed, where torch tells it."""
    path, line = metrics.get("fail_user_frame_filename"), metrics.get("fail_user_frame_lineno")
    return (StackEntry(path=str(path), line=int(line), function=""),) if path and line else ()


def compile_id_of(metadata: Metadata) -> str | None:
    """The compile id as torch prints it, `0/1`, with the compiled-autograd prefix where there is one."""
    frame, number, autograd = (metadata.get(k) for k in ("frame_id", "frame_compile_id", "compiled_autograd_id"))
    if frame is None:
        return None if autograd is None else f"!{autograd}"
    return f"{frame}/{number}" if autograd is None else f"!{autograd}/{frame}/{number}"


def parse_reasons(payload: str) -> tuple[str, ...]:
    """One reason per cache entry: torch writes a JSON list, a JSON string or a bare string."""
    text = payload.strip()
    try:
        reasons = json.loads(text)
    except ValueError:
        reasons = text
    if isinstance(reasons, list):
        return tuple(str(reason).strip() for reason in reasons)
    return (str(reasons),) if reasons else ()


def strip_launchers(stack: tuple[StackEntry, ...]) -> tuple[StackEntry, ...]:
    """The stack without frames of ours and of runpy."""
    return tuple(e for e in stack if not e.path.startswith(OUR_FOLDERS) and not _RUNPY.search(e.path))


def _bypass_reason(payload: str) -> str:
    """What a cache says of itself has the reason among other things, a traceback with it."""
    try:
        told = json.loads(payload)
        reason = told.get("cache_bypass_reason") if isinstance(told, dict) else None
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
    named = _LIMIT_NAME.search(reason.rsplit("Limit type:", 1)[-1]) or _LIMIT_NAME.search(reason)
    name = named[1] if named else "recompile_limit"
    value = _LIMIT_VALUE.search(reason)
    if value:
        return {"limit_name": name, "limit": int(value[1])}
    try:
        return {"limit_name": name, "limit": json.loads(metrics["dynamo_config"])[name]}
    except (KeyError, TypeError, ValueError):
        return {"limit_name": name}


def _microseconds(metrics: Metadata, key: str) -> float | None:
    value = metrics.get(key)
    return value / 1e6 if isinstance(value, (int, float)) else None
