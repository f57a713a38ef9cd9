"""Shows telemetry what a training does: backward, clipping, GradScaler and the optimizer's step, each where Dynamo does not look."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType, ModuleType
from typing import Any, Protocol

from torchtriage.capture.taps.steps import OPTIMIZER_BLOCK
from torchtriage.capture.torch_private import base as torch_private
from torchtriage.recording.events import Event
from torchtriage.recording.recording import Series

UNSEEN = "no optimizer stepped outside a compiled function, and inside one nothing is seen; use torchtriage.telemetry.Monitor in the loop"
CLIP_MODULE, SCALER_MODULE = "torch.nn.utils.clip_grad", "torch.amp.grad_scaler"
Armed = Callable[[str, "Callable[[], None] | None", str], None]


class Telemetry(Protocol):
    """What telemetry.attach.Attached offers; it is imported with the first thing there is to see."""

    def backward(self, tensors: Sequence[Any]) -> None: ...
    def clipping(self, parameters: Any) -> None: ...
    def unscaling(self, optimizer: Any, inv_scale: Any, is_check: bool, scale: Any) -> None: ...
    def step_begins(self, optimizer: Any) -> None: ...
    def step_ended(self, optimizer: Any) -> None: ...
    def facts(self) -> Mapping[str, Any]: ...
    def series(self) -> Iterable[Series]: ...
    def close(self) -> None: ...
    def start_over(self) -> None: ...


class LearningTaps:
    """Arms the taps, and makes the telemetry of this process when the first of them sees something."""

    def __init__(
        self, make: Callable[[], Telemetry], tap: Callable[[str, str, str], None], on_error: Callable[[Exception], None],
    ) -> None:
        self._make = make
        self._tap = tap
        self._on_error = on_error
        self._telemetry: Telemetry | None = None
        self._is_off = False
        self._num_steps = 0
        self._knows_no_grad = False

    def arm_optimizers(self, profiler: ModuleType, armed: Armed) -> None:
        begin = torch_private.wrap_record_function(profiler, OPTIMIZER_BLOCK, self._on_begin, name="__enter__")
        end = torch_private.wrap_record_function(profiler, OPTIMIZER_BLOCK, self._on_end)
        armed("gradients", begin and end, "torch.autograd.profiler.record_function is gone")

    def arm_backward(self, autograd: ModuleType, armed: Armed) -> None:
        armed("loss", torch_private.wrap_backward(autograd, self._on_backward), "torch.autograd._engine_run_backward is gone")

    def arm_no_grad(self, armed: Armed) -> None:
        """Called with the import of each of the two modules: only when both are there is it known what to look for."""
        modules = [torch_private.module(name) for name in (CLIP_MODULE, SCALER_MODULE)]
        if not all(modules) or self._knows_no_grad:
            return
        self._knows_no_grad = True
        codes = torch_private.clip_code(), torch_private.unscale_code()
        grad_mode = torch_private.module("torch.autograd.grad_mode")
        undo = torch_private.wrap_no_grad(grad_mode, codes, self._on_no_grad) if all(codes) else None
        armed("clipping and GradScaler", undo, "the code of clip_grad_norm_ or GradScaler has another form in this torch")

    def facts(self) -> Mapping[str, Any]:
        return self._telemetry.facts() if self._telemetry is not None else {}

    def series(self) -> Iterable[Series]:
        return self._telemetry.series() if self._telemetry is not None else ()

    def close(self) -> None:
        """Nothing more will come; what is on its way is taken in, and what could not be seen is said."""
        if self._telemetry is not None:
            self._telemetry.close()
        if not self._num_steps and not self._is_off and _made_an_optimizer():
            self._tap("gradients", "absent", UNSEEN)

    def start_over(self) -> None:
        """A forked child has the memory of its parent, and none of its threads."""
        self._num_steps = 0
        if self._telemetry is not None:
            self._telemetry.start_over()

    def _on_begin(self, frame: FrameType) -> None:
        self._show(lambda telemetry: telemetry.step_begins(frame.f_locals["self"]))

    def _on_end(self, frame: FrameType) -> None:
        self._num_steps += 1
        self._show(lambda telemetry: telemetry.step_ended(frame.f_locals["self"]))

    def _on_backward(self, tensors: Sequence[Any]) -> None:
        self._show(lambda telemetry: telemetry.backward(tensors))

    def _on_no_grad(self, frame: FrameType) -> None:
        names = frame.f_locals
        if "inv_scale" in names:
            scale = getattr(names["self"], "_scale", None)
            is_check = bool(names.get("allow_fp16"))
            self._show(lambda telemetry: telemetry.unscaling(names["optimizer"], names["inv_scale"], is_check, scale))
        elif names["func"].__name__ in ("_clip_grads_with_norm_", "clip_grad_value_"):
            parameters = names["args"][0] if names["args"] else names["kwargs"].get("parameters")
            self._show(lambda telemetry: telemetry.clipping(parameters))

    def _show(self, show: Callable[[Telemetry], None]) -> None:
        if self._is_off:
            return
        try:
            if self._telemetry is None:
                self._telemetry = self._make()
            show(self._telemetry)
        except ModuleNotFoundError as error:
            self._is_off = True
            self._tap("gradients", "absent", str(error))
        except Exception as error:
            self._is_off = True     # what failed once would fail at every step
            self._on_error(error)


def _made_an_optimizer() -> bool:
    """Whether the program has made any optimizer: torch then marks the step of its class."""
    base = getattr(torch_private.module("torch.optim.optimizer"), "Optimizer", None)
    left = [base] if base is not None else []
    while left:
        kind = left.pop()
        if getattr(getattr(kind, "step", None), "hooked", False):
            return True
        left += kind.__subclasses__()
    return False


def new_telemetry(emit: Callable[[Event], None], step: Callable[[], int | None]) -> Telemetry:
    """Imports torchtriage.telemetry, and with it numpy."""
    from torchtriage.telemetry.attach import Attached

    return Attached(emit, step)
