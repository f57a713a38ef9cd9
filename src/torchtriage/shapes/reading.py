"""From the recording of a run to the trial that it was."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchtriage.diagnosis.totals import busy_seconds, totals
from torchtriage.recording.events import CompileEnd, CompileStart, LimitHit
from torchtriage.recording.recording import Process, Recording, Series
from torchtriage.shapes.trials import Lane, Stretch, Trial
from torchtriage.shapes.turns import NEVER, Pauses

_SAID = {"true": "dynamic=True", "false": "dynamic=False", "none": "dynamic=None"}     # else another argument that says the same


def read_trial(recording: Recording, policy: str, number: int, pauses: Pauses = NEVER, **outcome: Any) -> Trial:
    """The trial that a recording holds; `outcome`: how the process ended, in the fields of a Trial."""
    process, counts = main_process(recording), totals(recording)
    compiles, eager = counts["compiles"], counts["eager_calls"]
    return Trial(
        policy=policy, round=number, steps=step_lane(process), functions=call_lanes(process), sites=_sites(process),
        num_compiles=int(compiles or 0), num_recompiles=int(counts["recompiles"] or 0), num_eager_calls=int(eager or 0),
        hit_limit=any(True for _ in recording.of(LimitHit)), compile_seconds=compile_seconds(recording, pauses),
        first_call_seconds=process.facts.get("first_call_seconds"), peak_memory_bytes=peak_memory(process),
        overridden=overridden(process), **outcome,
    )


def main_process(recording: Recording) -> Process:
    """The process that called compiled functions most; an empty one if none did."""
    def num_calls(process: Process) -> int:
        return sum(function["num_calls"] for function in process.facts.get("functions") or ())

    return max(recording.processes, key=num_calls, default=Process())


def compile_seconds(recording: Recording, pauses: Pauses) -> float:
    """Of the process that compiled longest, without the time that it stood still: torch's own clock goes on then."""
    def active(end: CompileEnd) -> CompileEnd:
        began, ended = (pauses.active(moment) for moment in (end.time - (end.seconds or 0.0), end.time))
        return replace(end, time=ended, seconds=ended - began)

    return max((busy_seconds(list(map(active, process.of(CompileEnd)))) for process in recording.processes), default=0.0)


def peak_memory(process: Process) -> int | None:
    """On the device, if there is one; else of the process."""
    return process.facts.get("peak_device_memory_bytes") or process.facts.get("peak_memory_bytes")


def overridden(process: Process) -> tuple[str, ...]:
    """train.py:31 model: dynamic=False -> True."""
    def change(call: Mapping[str, Any]) -> str:
        place = f"{Path(call['path']).name}:{call['line']} {call['target']}"
        return f"{place}: {_SAID.get(call['written'], call['written'])} -> {_SAID[call['forced']].partition('=')[2]}"

    return tuple(dict.fromkeys(map(change, process.facts.get("overrides") or ())))


def step_lane(process: Process) -> Lane | None:
    """The steps from the first compiled call on: the first lasts from that call to its end."""
    series, num_steps, began = process.series.get("step_seconds"), process.num_steps, process.facts.get("first_call_time")
    if series is None or not num_steps or began is None:
        return None
    compiles = _compiles_by_step(process)
    stretches = _stretches(series, num_steps)
    stretches = [Stretch(n, s, sum(compiles.get(at + i, 0) for i in range(n))) for at, (n, s, _) in _numbered(stretches, first=2)]
    first = (process.facts.get("first_step_time") or 0.0) - began
    return Lane((*((Stretch(1, first, compiles.get(1, 0)),) if first > 0 else ()), *stretches))


def _compiles_by_step(process: Process) -> Mapping[int, int]:
    """Step -> compiles that began in it; an event carries the steps that had ended before it."""
    found: dict[int, int] = {}
    for event in process.of(CompileStart):
        step = (event.step or 0) + 1
        found[step] = found.get(step, 0) + 1
    return found


def call_lanes(process: Process) -> dict[str, Lane]:
    """The outermost calls of every compiled function."""
    lanes: dict[str, Lane] = {}
    for k, name in enumerate(_names(process)):
        seconds, compiles = process.series.get(f"call_seconds/{k}"), process.series.get(f"call_compiles/{k}")
        if seconds is None:
            continue
        num_calls = process.facts["functions"][k]["num_calls"]
        begun = [s.seconds for s in _stretches(compiles, num_calls)] if compiles is not None else []
        begun += [0.0] * (len(seconds.values) - len(begun))
        lanes[name] = Lane(tuple(Stretch(n, s, c) for (n, s, _), c in zip(_stretches(seconds, num_calls), begun, strict=False)))
    return lanes


def _names(process: Process) -> list[str]:
    return [f"{f['target']} ({Path(f['path']).name}:{f['line']})" for f in process.facts.get("functions") or ()]


def _sites(process: Process) -> dict[str, str]:
    functions = process.facts.get("functions") or ()
    return {name: f"{f['path']}:{f['line']}" for name, f in zip(_names(process), functions, strict=True)}


def _stretches(series: Series, last_unit: int) -> list[Stretch]:
    """Each point is the mean over the units up to the next point, the last one up to `last_unit`."""
    firsts = [int(step) for step in series.steps]
    ends = [*firsts[1:], max(last_unit + 1, firsts[-1] + 1 if firsts else 1)]
    return [Stretch(end - first, value * (end - first), 0) for first, end, value in zip(firsts, ends, series.values, strict=False)]


def _numbered(stretches: Sequence[Stretch], first: int) -> list[tuple[int, Stretch]]:
    found, at = [], first
    for stretch in stretches:
        found.append((at, stretch))
        at += stretch.num_units
    return found
