"""Runs a program again to find the first operation that differs."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torchtriage.capture.operations.request import EAGER_STREAM, GRAPHS, TRACED_STREAM
from torchtriage.capture.proof.setting import ProofSetting
from torchtriage.findings.proof.location import DifferencePlace, LocatedBy, LocatedOperation, LocationState
from torchtriage.launch import environment
from torchtriage.proof.budget import TimeLimit
from torchtriage.proof.locate.alignment import Alignment, align
from torchtriage.proof.locate.graph_results import read_graphs
from torchtriage.proof.locate.streams import OperationStream, StreamOperation, read_stream
from torchtriage.proof.runs.process import Program, run_once
from torchtriage.proof.sides import Side

MIN_SECONDS = 120.0     # of a run: comparing and bisecting takes tens of compiles
_THREADS = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTHONHASHSEED": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatingVariant:
    """A run with a request to compare or to record operations."""

    request: Mapping[str, Any]

    def variables(self, forced: Mapping[str, Any], paused: str) -> dict[str, str]:
        setting = ProofSetting(**forced, paused=paused).to_json()
        return {**_THREADS, environment.PROOF: setting, environment.OPERATIONS: json.dumps(dict(self.request))}


@dataclass(slots=True, kw_only=True)
class Locator:
    """The programs of a proof, and the step from which their numbers differ."""

    work: Path
    limit: TimeLimit
    say: Callable[[str], None]
    step: int | None = None     # None: there was no optimizer step
    seed: int = 0
    stdin: Path | None = None
    num_runs: int = 0

    def compiled(self, side: Side) -> DifferencePlace:
        """Compiled against eager: each graph first, then what Dynamo traced, where no graph differs."""
        self.say("comparing each compiled graph with its operations run one by one")
        folder, problem = self._run(side, GRAPHS)
        found = _with_place(read_graphs(folder), side)
        if found.state in (LocationState.OPERATION, LocationState.GRAPH):
            return found
        self.say("comparing the operations of an eager run with those that Dynamo traced")
        traced = self._aligned(side, EAGER_STREAM, side, TRACED_STREAM, LocatedBy.TRACED)
        if traced.state is LocationState.OPERATION:
            return traced
        notes = [note for note in (*found.notes, *traced.notes, traced.reason, problem) if note]
        return replace(found, notes=tuple(dict.fromkeys(notes)))

    def programs(self, before: Side, after: Side) -> DifferencePlace:
        """BEFORE against AFTER: their operations when both run eagerly, then the compiled graphs of AFTER."""
        self.say("comparing the operations of BEFORE and AFTER, both eager")
        found = self._aligned(before, EAGER_STREAM, after, EAGER_STREAM, LocatedBy.PROGRAMS)
        if found.state is not LocationState.AGREES:
            return found
        compiled = self.compiled(after)
        return found if compiled.state is LocationState.NOT_COMPARED else compiled

    def _aligned(self, first: Side, first_mode: str, second: Side, second_mode: str, by: LocatedBy) -> DifferencePlace:
        state = str(self.work / f"state{self.num_runs}")
        has_state = self.step is not None and self.step > 1
        one, problem = self._run(first, first_mode, **({"save_state": state} if has_state else {}))
        other, other_problem = self._run(second, second_mode, **({"load_state": state} if has_state else {}))
        left, right = read_stream(one), read_stream(other)
        if left is None or right is None:
            reason = problem or other_problem or "no operation was recorded"
            return DifferencePlace(state=LocationState.NOT_COMPARED, by=by, reason=reason, step=self.step)
        found = align(left.operations, right.operations)
        return _location(found, left, right, by, self.step, (first, second))

    def _run(self, side: Side, mode: str, **state: str) -> tuple[Path, str]:
        """(the folder of the result, why the run ended early or failed)."""
        self.num_runs += 1
        folder = self.work / f"located{self.num_runs}"
        folder.mkdir(parents=True)
        forced: dict[str, Any] = {"seed": self.seed}
        if self.step is not None:
            forced["steps"] = self.step
        program = Program(
            command=side.command, folder=self.work / f"locating{self.num_runs}", stdin=self.stdin, forced=forced,
            cwd=side.cwd, environment=side.environment)
        request = {"mode": mode, "folder": str(folder), "step": self.step, **state}
        outcome = run_once(program, LocatingVariant(request=request), max(MIN_SECONDS, self.limit.left))
        if outcome.was_stopped:
            return folder, f"a run was stopped at its time limit after {outcome.seconds:.0f} s"
        return folder, f"a run ended with status {outcome.exit_status}" if outcome.exit_status else ""


def _location(
    found: Alignment, left: OperationStream, right: OperationStream, by: LocatedBy, step: int | None,
    sides: tuple[Side, Side],
) -> DifferencePlace:
    """The fields of an alignment; `state` of the second stream says whether it began with the weights of the first."""
    notes = []
    if left.is_cut or right.is_cut:
        notes.append("only the first operations of the step were recorded")
    if right.state not in ("", "loaded"):
        notes.append("the second side could not begin the step with the weights of the first: they have other shapes")
    common: dict[str, Any] = {"by": by, "step": step, "num_compared": found.num_agreeing, "notes": tuple(notes)}
    difference = found.difference
    if difference is None:
        state = LocationState.NOT_COMPARED if found.reason else LocationState.AGREES
        return DifferencePlace(state=state, reason=found.reason, **common)
    operation = difference.first or difference.second
    assert operation is not None
    other = difference.second if difference.first is not None else None
    side = sides[0] if difference.first is not None else sides[1]
    return DifferencePlace(
        state=LocationState.OPERATION, change=difference.kind, operation=_operation(operation, side),
        other=None if other is None else _operation(other, sides[1]), is_random=operation.is_random,
        inputs_equal=difference.inputs_equal, max_difference=difference.relative, **common)


def _operation(operation: StreamOperation, side: Side) -> LocatedOperation:
    return LocatedOperation(
        name=operation.name, path=_path_in(side, operation.path), line=operation.line, function=operation.function,
        module=operation.module, is_backward=operation.is_backward)


def _with_place(found: DifferencePlace, side: Side) -> DifferencePlace:
    if found.operation is None:
        return found
    return replace(found, operation=replace(found.operation, path=_path_in(side, found.operation.path)))


def _path_in(side: Side, path: str) -> str:
    """The path below the folder of the program, which may be a copy of the user's."""
    if side.cwd is None or not path:
        return path
    relative = os.path.relpath(path, side.cwd)
    return path if relative.startswith("..") else relative
