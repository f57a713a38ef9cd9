"""Starts the comparison of graphs, or the recording of operations, that TORCHTRIAGE_OPERATIONS asks for."""

import atexit
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from torchtriage.capture.operations.graphs.shadow import ShadowBackend
from torchtriage.capture.operations.request import GRAPHS, OperationsRequest
from torchtriage.capture.operations.results import Results
from torchtriage.capture.torch_private import dynamo as torch_private_dynamo
from torchtriage.capture.torch_private.graphs import draw_as_eager
from torchtriage.launch.imports import ImportWatcher


def arm(request: OperationsRequest, current_step: Callable[[], int | None]) -> None:
    """Arm what the request asks for; called while torch is being imported, after the policy, which chooses backends."""
    watcher = ImportWatcher()
    if request.mode == GRAPHS:
        results = Results(request, current_step)
        watcher.when_imported("torch._dynamo", lambda dynamo: _arm_graphs(dynamo, results))
        atexit.register(results.write)
        return
    from torchtriage.capture.operations.recorded_step import RecordedStep

    step = RecordedStep(request)
    watcher.when_imported("torch.autograd.profiler", step.watch_optimizers)
    watcher.when_imported("torch", step.begin_first)
    atexit.register(step.close)


def _arm_graphs(dynamo: ModuleType, results: Results) -> None:
    def on_compile_call(arguments: dict[str, Any], _: FrameType) -> None:
        if not arguments.get("disable"):
            draw_as_eager()
            arguments["backend"] = ShadowBackend(arguments["backend"], results)

    torch_private_dynamo.wrap_optimize(dynamo, on_compile_call)
