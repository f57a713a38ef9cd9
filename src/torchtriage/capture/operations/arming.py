"""Starts the comparison of graphs, or the observation of operations, that TORCHTRIAGE_OPERATIONS asks for."""

import atexit
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from torchtriage.capture.operations.graphs.shadow import shadow
from torchtriage.capture.operations.graphs.wrapped_backend import Wrap, WrappedBackend
from torchtriage.capture.operations.origin.watched_steps import WatchedSteps
from torchtriage.capture.operations.recorded_step import RecordedStep
from torchtriage.capture.operations.request import EAGER_STREAM, GRAPHS, ORIGIN, UNCHANGED, OperationsRequest
from torchtriage.capture.operations.results import GraphResults
from torchtriage.capture.torch_private import dynamo as torch_private_dynamo
from torchtriage.capture.torch_private.graphs import draw_as_eager
from torchtriage.launch.imports import ImportWatcher


class OperationsTaps:
    """One request and its taps, for one process."""

    def __init__(self, request: OperationsRequest) -> None:
        self._request = request
        self._step = RecordedStep(request)
        self._watched = WatchedSteps(request) if request.mode in (ORIGIN, UNCHANGED) else None

    def arm_early(self) -> None:
        """Called before torch is imported: a recorded first step begins right after the import."""
        begin = self._step.begin_first if self._watched is None else self._watched.begin_first
        if self._request.mode != GRAPHS:
            ImportWatcher().when_imported("torch", begin)

    def arm(self, current_step: Callable[[], int | None]) -> None:
        """Called while torch is imported, after the taps of a policy: that chooses the backends which are wrapped."""
        watcher = ImportWatcher()
        if self._watched is not None:
            self._watched.arm(watcher, current_step)
            return
        if self._request.mode == GRAPHS:
            results = GraphResults(self._request, current_step)
            watcher.when_imported("torch._dynamo", lambda dynamo: _wrap_backends(dynamo, shadow(results)))
            atexit.register(results.write)
            return
        watcher.when_imported("torch.autograd.profiler", self._step.watch_optimizers)
        if self._request.mode != EAGER_STREAM:
            watcher.when_imported("torch._dynamo", lambda dynamo: _wrap_backends(dynamo, self._step.traced))
        atexit.register(self._step.close)


def _wrap_backends(dynamo: ModuleType, wrap: Wrap) -> None:
    def on_compile_call(arguments: dict[str, Any], _: FrameType) -> None:
        if not arguments.get("disable"):
            draw_as_eager()
            arguments["backend"] = WrappedBackend(arguments["backend"], wrap)

    torch_private_dynamo.wrap_optimize(dynamo, on_compile_call)
