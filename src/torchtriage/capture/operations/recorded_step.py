"""Records the operations of one step, which can begin in the state of another run."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from torchtriage.capture.operations.graphs.graph_walk import caller, grad_mode_kept, no_visit, walk
from torchtriage.capture.operations.graphs.place import describe
from torchtriage.capture.operations.graphs.wrapped_backend import WrappedBackend
from torchtriage.capture.operations.operation_stream import MAX_OPERATIONS, Places, recording_mode
from torchtriage.capture.operations.request import EAGER_STREAM, OperationsRequest
from torchtriage.capture.taps.steps import OPTIMIZER_BLOCK
from torchtriage.capture.torch_private.graphs import dynamo_paused
from torchtriage.capture.torch_private.training import wrap_record_function
from torchtriage.files import replace_file

_PLACE = ("path", "line", "function", "module")


class RecordedStep:
    """Counts the steps of the first optimizer and records the requested one; the process continues after it."""

    def __init__(self, request: OperationsRequest) -> None:
        self._request = request
        self._wanted = request.step or 1
        self._first: int | None = None
        self._num_steps = 0
        self._mode: Any = None
        self._places = Places()
        self._rows: list[dict[str, Any]] = []
        self._is_cut = False
        self._state = ""        # what became of the starting state

    def watch_optimizers(self, profiler: ModuleType) -> None:
        wrap_record_function(profiler, OPTIMIZER_BLOCK, self._on_step)

    def begin_first(self, torch: ModuleType) -> None:
        """Compiled code runs eagerly or as it was traced, so that every operation is seen."""
        if self._request.mode == EAGER_STREAM:
            torch.compiler.set_stance("force_eager")
        if self._wanted == 1:
            self._begin()

    def traced(self, graph: Any, _: Callable[..., Any], backend: WrappedBackend) -> Callable[..., Any]:
        """What is called in place of a compiled graph: its operations one by one, each with the line it came from."""
        plain = caller(graph)

        def call(node: Any, args: Any, kwargs: Any) -> Any:
            self._places.of_graph = {key: value for key, value in describe(node).items() if key in _PLACE}
            try:
                return plain(node, args, kwargs)
            finally:
                self._places.of_graph = None

        def run(*arguments: Any) -> Any:
            with dynamo_paused(), grad_mode_kept():
                return walk(graph, arguments, call, no_visit)

        return run

    def close(self) -> None:
        """Leave the rows where the request says; a program without an optimizer step is recorded to its end."""
        if self._mode is not None:
            self._end()

    def _on_step(self, frame: FrameType) -> None:
        optimizer = frame.f_locals.get("self")
        if self._first is None:
            self._first = id(optimizer)
        if id(optimizer) != self._first:
            return
        self._num_steps += 1
        if self._num_steps == self._wanted:
            self._end()
        elif self._num_steps == self._wanted - 1:
            self._move_state(optimizer)
            self._begin()

    def _begin(self) -> None:
        self._mode = recording_mode(self._put, self._places)
        self._mode.__enter__()

    def _put(self, row: dict[str, Any]) -> None:
        if len(self._rows) < MAX_OPERATIONS:
            self._rows.append(row)
        else:
            self._is_cut = True

    def _end(self) -> None:
        mode, self._mode = self._mode, None
        if mode is None:
            return
        mode.__exit__(None, None, None)
        result = {
            "step": self._wanted, "is_cut": self._is_cut, "had_optimizer": self._first is not None,
            "state": self._state, "operations": self._rows,
        }
        path = Path(self._request.folder) / f"stream-{os.getpid()}.json"
        replace_file(path, json.dumps(result).encode())

    def _move_state(self, optimizer: Any) -> None:
        if self._request.save_state:
            _save(optimizer, self._request.save_state)
            self._state = "saved"
        elif self._request.load_state:
            self._state = _load(optimizer, self._request.load_state)


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _save(optimizer: Any, path: str) -> None:
    import torch

    state = {
        "parameters": [parameter.detach() for parameter in _parameters(optimizer)],
        "optimizer": optimizer.state_dict()["state"], "torch": torch.get_rng_state(), "python": list(random.getstate()),
    }
    torch.save(state, path)


def _load(optimizer: Any, path: str) -> str:
    """Begin with the weights, the optimizer's state and the random state of the other run; returns the outcome."""
    import torch

    state = torch.load(path, weights_only=True)
    parameters = _parameters(optimizer)
    if [list(p.shape) for p in parameters] != [list(p.shape) for p in state["parameters"]]:
        return "other shapes"
    with torch.no_grad():
        for parameter, value in zip(parameters, state["parameters"], strict=True):
            parameter.copy_(value)
    own = optimizer.state_dict()
    if own["state"].keys() == state["optimizer"].keys():
        optimizer.load_state_dict({**own, "state": state["optimizer"]})
    torch.set_rng_state(state["torch"])
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    return "loaded"
