"""The settings of the torch.compile calls on one function: torch keeps separate variants for each of them."""

from dataclasses import replace

from torchtriage.diagnosis.compiles.frames import Compile, Frame
from torchtriage.diagnosis.compiles.targets import call_behind
from torchtriage.diagnosis.recompiles.guard_text import BACKEND, Kind, Reason, parse_reason
from torchtriage.recording.events import CompileCall
from torchtriage.recording.recording import Process

Settings = tuple[str, bool | None, str]     # backend, dynamic, mode and options


def settings_of(call: CompileCall) -> Settings:
    return call.backend, call.dynamic, call.options


def shown(call: CompileCall) -> str:
    """The settings of a call as arguments: "backend='eager', dynamic=False"."""
    dynamic = "" if call.dynamic is None else f"dynamic={call.dynamic}"
    return ", ".join(part for part in (f"backend={call.backend!r}", dynamic, call.options) if part)


def calls_behind(frame: Frame, process: Process) -> tuple[CompileCall, ...]:
    """The torch.compile calls that made the variants of a frame: the first for each place and settings."""
    calls: dict[tuple[object, ...], CompileCall] = {}
    for compile_ in frame.compiles:
        call = call_behind(process, compile_)
        if call is not None:
            calls.setdefault((call.path, call.line, *settings_of(call)), call)
    return tuple(calls.values())


def without_other_settings(compile_: Compile, frame: Frame, process: Process) -> Compile:
    """The compile without the reasons of variants that calls with other settings made.

    Such a variant never serves, whichever of its guards torch happened to check first.
    """
    own = _settings_seen(compile_, process)
    if own is None or compile_.recompile is None:
        return compile_
    made_by = {
        other.compile_id: _settings_seen(other, process) for other in frame.compiles
        if other.generation == compile_.generation and other.position < compile_.position
    }
    reasons = tuple(raw for raw in compile_.reasons if made_by.get(parse_reason(raw).entry) in (None, own))
    return replace(compile_, recompile=replace(compile_.recompile, reasons=reasons))


def other_settings(compile_: Compile) -> Reason:
    """The reason for a recompile none of whose variants has the settings of the call."""
    return Reason(kind=Kind.IDENTITY, raw=compile_.reasons[0], path=BACKEND, source=BACKEND)


def _settings_seen(compile_: Compile, process: Process) -> Settings | None:
    """The settings behind a compile; None if the call was not seen running."""
    call = call_behind(process, compile_)
    is_seen = call is not None and compile_.start is not None and compile_.start.call == call.number is not None
    return settings_of(call) if call is not None and is_seen else None
