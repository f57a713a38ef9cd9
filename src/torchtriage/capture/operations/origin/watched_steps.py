"""The steps of a repeated program in which non-finite values are followed to their origin."""

import atexit
import contextlib
import gc
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from torchtriage.capture.operations.origin import operands as of_values
from torchtriage.capture.operations.origin.trace_back import Target, trace_back
from torchtriage.capture.operations.origin.value_flow import ValueFlow
from torchtriage.capture.operations.request import ORIGIN, OperationsRequest
from torchtriage.capture.taps.steps import OPTIMIZER_BLOCK
from torchtriage.capture.torch_private import dynamo as torch_private_dynamo
from torchtriage.capture.torch_private import training
from torchtriage.capture.torch_private.base import module
from torchtriage.errors import pass_on_signals, tell
from torchtriage.files import replace_file
from torchtriage.launch.imports import ImportWatcher
from torchtriage.recording.facts import to_dict
from torchtriage.recording.origins.origin import Origin, OriginState, SeenIn

STEPS_AFTER = 3     # after the recorded step, until the program is stopped: a random draw may move it by a step


class WatchedSteps:
    """Runs the requested steps eagerly and leaves the origin of the first NaN or Inf in a file; the program ends then.

    With the request `unchanged` the steps run as the program asks, and only their results are looked at.
    """

    def __init__(self, request: OperationsRequest) -> None:
        self._request = request
        self._current_step: Callable[[], int | None] = lambda: None
        self._follows = request.mode == ORIGIN
        self._flow = ValueFlow()
        self._mode: Any = None
        self._is_watching = self._is_done = False
        self._num_compile_calls = 0

    def arm(self, watcher: ImportWatcher, current_step: Callable[[], int | None]) -> None:
        self._current_step = current_step
        watcher.when_imported("torch.autograd", self._arm_backward)
        watcher.when_imported("torch.autograd.profiler", self._arm_optimizers)
        watcher.when_imported("torch._dynamo", self._arm_dynamo)
        atexit.register(self._close)

    def begin_first(self, _: ModuleType) -> None:
        """Called right after the import of torch."""
        if self._request.first_step <= 1:
            self._begin()

    def _arm_backward(self, autograd: ModuleType) -> None:
        training.wrap_backward(autograd, self._on_backward)

    def _arm_optimizers(self, profiler: ModuleType) -> None:
        training.wrap_record_function(profiler, OPTIMIZER_BLOCK, self._on_begin, name="__enter__")
        training.wrap_record_function(profiler, OPTIMIZER_BLOCK, self._on_end)

    def _arm_dynamo(self, dynamo: ModuleType) -> None:
        torch_private_dynamo.wrap_optimize(dynamo, self._on_compile_call)

    def _on_compile_call(self, arguments: dict[str, Any], _: FrameType) -> None:
        self._num_compile_calls += not arguments.get("disable")

    # The phases of a step

    def _on_backward(self, tensors: Sequence[Any]) -> None:
        if not self._is_watching:
            return
        with self._looking():
            losses = [(SeenIn.LOSS, tensor) for tensor in tensors if not of_values.is_finite(tensor)]
            if losses and not _has_scaler():
                self._finish(Target(seen_in=SeenIn.LOSS, tensors=losses), self._completed() + 1)

    def _on_begin(self, frame: FrameType) -> None:
        if not self._is_watching:
            return
        with self._looking():
            named = self._named(frame)
            bad = [(name, p.grad) for name, p in named if p.grad is not None and not of_values.is_finite(p.grad)]
            if bad:
                self._finish(Target(seen_in=SeenIn.GRADIENT, tensors=bad), self._completed() + 1)
            # A weight that no watched operation wrote was bad before, though no loss depends on it yet.
            old = [(name, p) for name, p in named if not of_values.is_finite(p) and not self._flow.writers(p)]
            if old and self._follows:
                self._finish(Target(seen_in=SeenIn.WEIGHT, tensors=old), self._completed() + 1)

    def _on_end(self, frame: FrameType) -> None:
        if self._is_done:
            return
        completed = self._completed()
        if self._is_watching:
            with self._looking():
                bad = [(name, p) for name, p in self._named(frame) if not of_values.is_finite(p)]
                if bad:
                    self._finish(Target(seen_in=SeenIn.WEIGHT, tensors=bad), completed)
                if self._request.step is not None and completed >= self._request.step + STEPS_AFTER:
                    self._leave(Origin(state=OriginState.CLEAN, step=completed))
                self._flow.step_ended()
        elif completed >= self._request.first_step - 1:
            self._begin()

    def _begin(self) -> None:
        self._is_watching = True
        if self._follows:
            module("torch").compiler.set_stance("force_eager")
            self._mode = self._flow.mode()
            self._mode.__enter__()

    def _completed(self) -> int:
        return self._current_step() or 0

    def _named(self, frame: FrameType) -> list[tuple[str, Any]]:
        from torchtriage.telemetry.sampling.parameters import Namer

        optimizer = frame.f_locals["self"]
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if all(of_values.is_finite(p) and (p.grad is None or of_values.is_finite(p.grad)) for p in parameters):
            return []
        return list(zip(Namer().names(optimizer, parameters, frame.f_back), parameters, strict=True))

    @contextlib.contextmanager
    def _looking(self) -> Iterator[None]:
        """Our own operations are not followed; an error of ours ends the replay with its text."""
        torch = module("torch")
        self._flow.is_paused = True
        try:
            with training.without_function_modes(), torch.no_grad():
                yield
        except Exception as error:
            pass_on_signals(error)
            text = f"{type(error).__name__}: {error}"
            self._leave(Origin(state=OriginState.UNKNOWN, step=self._completed(), problem=text))
        finally:
            self._flow.is_paused = False

    # The result

    def _finish(self, target: Target, step: int) -> None:
        common: dict[str, Any] = {"seen_in": target.seen_in, "subject": target.tensors[0][0], "step": step}
        if not self._follows:
            self._leave(Origin(state=OriginState.COMPILED, **common))
            return
        traced = trace_back(self._flow, target)
        fields = {name: getattr(traced, name) for name in traced.__slots__}
        self._leave(Origin(**common, **fields))

    def _leave(self, origin: Origin) -> None:
        """Write the result, and end the program: its next steps are those of a run that exists already."""
        self._write(origin)
        tell(f"replay: ended after step {origin.step}")
        raise SystemExit(0)

    def _close(self) -> None:
        """The program ended by itself; one that ended before the recorded step has shown nothing."""
        if self._is_watching and not self._is_done and self._completed() >= (self._request.step or 1):
            self._write(Origin(state=OriginState.CLEAN, step=self._completed()))

    def _write(self, origin: Origin) -> None:
        self._is_done, self._is_watching = True, False
        mode, self._mode = self._mode, None
        if mode is not None:
            mode.__exit__(None, None, None)
        facts = to_dict(origin) | {
            "num_operations": self._flow.num_operations, "was_compiled": self._num_compile_calls > 0,
        }
        path = Path(self._request.folder) / f"origin-{os.getpid()}.json"
        replace_file(path, json.dumps(facts).encode())


def _has_scaler() -> bool:
    """Whether GradScaler multiplies the loss: an overflow is then no fault, as the scaler skips the step."""
    scaler = getattr(module("torch.amp.grad_scaler"), "GradScaler", None)
    if scaler is None:
        return False
    return any(issubclass(type(one), scaler) and one.is_enabled() for one in gc.get_objects())
