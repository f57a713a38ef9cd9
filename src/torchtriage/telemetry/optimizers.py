"""The optimizers of a program that knows nothing of telemetry, followed as they come and go."""

import os
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch

from torchtriage.recording.events import Event, Tap
from torchtriage.telemetry.claims import is_claimed
from torchtriage.telemetry.levels import TelemetryConfig
from torchtriage.telemetry.names import Namer
from torchtriage.telemetry.pace import Pace
from torchtriage.telemetry.program import parameter_groups
from torchtriage.telemetry.scaling import Scaling
from torchtriage.telemetry.taken import Track
from torchtriage.telemetry.writer import Writer

MAX_OPTIMIZERS = 16     # a program that makes a new one for each task is followed this far
MAX_REFUSED = 3         # tensors that are named; the rest are counted


class Entry:
    """One optimizer; it is not kept alive."""

    def __init__(self, optimizer: torch.optim.Optimizer, pace: Pace, label: str) -> None:
        self.optimizer = weakref.ref(optimizer)
        self.kind = type(optimizer).__name__
        self.label = label
        self.pace = pace
        self.scaling = Scaling()
        self.track: Track | None = None
        self.is_clipped_unseen = False      # the program clips, and may have done so before there was a track
        self.is_left = False                # a Monitor of the program's own looks at these parameters


class Optimizers:
    """An entry for each, with a track for its parameters as they are now."""

    def __init__(self, emit: Callable[[Event], None], config: TelemetryConfig, writer: Writer, namer: Namer) -> None:
        self._emit, self._config, self._writer, self._namer = emit, config, writer, namer
        self.by_id: dict[int, Entry] = {}
        self.all: list[Entry] = []          # also of optimizers that are gone; MAX_OPTIMIZERS at most
        self.dtypes: set[str] = set()
        self._is_full = False               # there are more of them than are followed
        self._refused: dict[str, str] = {}
        self._names: dict[str, int] = {}
        self._num_dropped = 0               # in rings that are gone
        self._shards: dict[str, Any] = {}   # what is known of parameters of which this rank holds a part

    def entry(self, optimizer: torch.optim.Optimizer) -> Entry | None:
        """None for one too many."""
        entry = self.by_id.get(id(optimizer))
        if entry is not None and entry.optimizer() is optimizer:
            return entry
        if len(self.all) >= MAX_OPTIMIZERS:
            if not self._is_full:
                self._is_full = True
                self.say_absent("gradients of more optimizers", f"the first {MAX_OPTIMIZERS} of a process are followed")
            return None
        label = f"{type(optimizer).__name__} {len(self.all) + 1}" if self.all else ""
        entry = Entry(optimizer, Pace(self._config, leads=not label), label)
        self.by_id[id(optimizer)] = entry
        self.all.append(entry)
        weakref.finalize(optimizer, self._forget, id(optimizer), entry).atexit = False
        return entry

    def _forget(self, key: int, entry: Entry) -> None:
        """The optimizer is gone: let go of its parameters."""
        if self.by_id.get(key) is entry:
            del self.by_id[key]
            if entry.track is not None:
                self._retire(entry.track)
                entry.track = None

    def _retire(self, track: Track) -> None:
        self._num_dropped += track.ring.num_dropped
        self._writer.remove(track)
        track.release()

    def prepare(self, entry: Entry, optimizer: torch.optim.Optimizer, is_clipped: bool) -> bool:
        """Make a track for the parameters as they are now, if need be: groups may be added, a model may move to another device."""
        members = {id(p): p for group in optimizer.param_groups for p in group["params"] if p.requires_grad}
        if entry.track is not None:
            if entry.track.is_of(members.values()) and entry.track.is_still():
                return False
            self._retire(entry.track)
            entry.track = None
        entry.is_left = is_claimed(members.values())
        if not members or entry.is_left:
            return False
        parameters = list(members.values())
        names = self._namer.names(optimizer, parameters, sys._getframe(1))
        names = [self._unique(name, id(p), entry.label) for name, p in zip(names, parameters, strict=True)]
        track = Track(list(zip(names, parameters, strict=True)), parameter_groups(optimizer, entry.label), main=entry.label)
        entry.is_clipped_unseen = is_clipped
        self._note_dtypes(track)
        self.say_refused(track)
        entry.track = track
        entry.pace.is_shared = bool(track.ranks)
        if track.ranks:     # no rank waits for another here: the reader of the recording puts together what each tells of its part
            shards = track.shard_facts()
            self._shards = {**shards, "elements": {**self._shards.get("elements", {}), **shards["elements"]}}
        self._writer.add(track, entry.pace.spent_behind)
        return True

    def _unique(self, name: str, key: int, label: str) -> str:
        """Two optimizers may have parameters of the same name."""
        if self._names.setdefault(name, key) == key or not label:
            return name
        return f"{name} ({label})"

    def _note_dtypes(self, track: Track) -> None:
        new = set(track.dtypes) - self.dtypes
        self.dtypes |= new
        if new:
            halves = self.dtypes & {"float16", "bfloat16"}
            self._writer.detector.note_types(is_half=bool(halves), has_float16="float16" in halves)

    def say_refused(self, track: Track) -> None:
        missing = {name: reason for name, reason in track.refused.items() if name not in self._refused}
        self._refused |= missing
        if missing:
            listed = "; ".join(f"{name} {reason}" for name, reason in list(missing.items())[:MAX_REFUSED])
            left = f"; and {len(missing) - MAX_REFUSED} more" if len(missing) > MAX_REFUSED else ""
            self.say_absent("gradients of some tensors", listed + left)

    def say_absent(self, name: str, detail: str) -> None:
        self._emit(Tap(name=name, state="absent", detail=detail, time=time.time(), pid=os.getpid()))

    def facts(self) -> dict[str, Any]:
        """For what telemetry says of itself; only where there is an optimizer."""
        paces = [entry.pace for entry in self.all]
        rings = [entry.track.ring for entry in self.all if entry.track is not None]
        return {
            "num_tensors": len(self._names), "interval": max(pace.interval for pace in paces),
            "num_dropped": self._num_dropped + sum(ring.num_dropped for ring in rings),
            "own_seconds": round(sum(pace.own_seconds for pace in paces), 6),
            "background_seconds": round(sum(pace.behind_seconds for pace in paces), 6),
            "setup_seconds": round(sum(pace.setup_seconds for pace in paces), 6),
            "share": round(sum(pace.share for pace in paces), 6),
            "num_skipped_steps": sum(entry.scaling.num_skipped for entry in self.all),
            **({"shards": self._shards} if self._shards else {}),
        }
