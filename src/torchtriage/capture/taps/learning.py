"""The learning taps: they show telemetry each phase of a training step, unseen by Dynamo."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Protocol

from torchtriage.capture.taps import environments, loggers
from torchtriage.capture.taps.steps import OPTIMIZER_BLOCK
from torchtriage.capture.torch_private import training as torch_private_training
from torchtriage.capture.torch_private.base import module
from torchtriage.recording.events import Event
from torchtriage.recording.recording import Series

UNSEEN = (
    "no optimizer stepped outside a compiled function, and steps inside one are not observed; "
    "use torchtriage.telemetry.Monitor in the loop"
)
CLIP_MODULE, SCALER_MODULE = "torch.nn.utils.clip_grad", "torch.amp.grad_scaler"
TELEMETRY_FOLDER = str(Path(__file__).parents[2] / "telemetry")     # it enters no_grad() as well
Armed = Callable[[str, "Callable[[], None] | None", str], None]


class Telemetry(Protocol):
    """The interface of telemetry.attach.Attached, which is imported with the first observation."""

    def loaded(self, module: Any, missing: Sequence[str], unexpected: Sequence[str]) -> None: ...
    def rollout(self, num_acts: int, steps: Sequence[tuple[Any, ...]]) -> None: ...
    def compile_called(self) -> None: ...
    def backward(self, tensors: Sequence[Any]) -> None: ...
    def clipping(self, parameters: Any, max_norm: Any) -> None: ...
    def unscaling(self, optimizer: Any, inv_scale: Any, is_check: bool, scale: Any) -> None: ...
    def logged(self, scalars: loggers.Logged) -> None: ...
    def step_begins(self, optimizer: Any) -> None: ...
    def step_ended(self, optimizer: Any) -> None: ...
    def facts(self) -> Mapping[str, Any]: ...
    def series(self) -> Iterable[Series]: ...
    def close(self) -> None: ...
    def start_over(self) -> None: ...


class LearningTaps:
    """Arms the taps, and makes the telemetry of this process with their first observation."""

    def __init__(
        self, make: Callable[[Callable[[], int]], Telemetry], tap: Callable[[str, str, str], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._make = make
        self._tap = tap
        self._on_error = on_error
        self._telemetry: Telemetry | None = None
        self._making = threading.Lock()     # a logger may be called on any thread
        self._is_off = False
        self._num_steps = 0
        self._has_compiled = False
        self._is_no_grad_armed = False
        self._has_odd_load = False  # names of a state dict did not match those of a module
        self._num_acts = 0          # entries of the program to no_grad() since the last backward pass
        self._codes: tuple[Any, ...] = ()
        self._environments = environments.EnvironmentLog()

    def arm_optimizers(self, profiler: ModuleType, armed: Armed) -> None:
        begin = torch_private_training.wrap_record_function(profiler, OPTIMIZER_BLOCK, self._on_begin, name="__enter__")
        end = torch_private_training.wrap_record_function(profiler, OPTIMIZER_BLOCK, self._on_end)
        armed("gradients", begin and end, "this torch has no torch.autograd.profiler.record_function")

    def arm_backward(self, autograd: ModuleType, armed: Armed) -> None:
        undo = torch_private_training.wrap_backward(autograd, self._on_backward)
        armed("loss", undo, "this torch has no torch.autograd._engine_run_backward")

    def arm_loading(self, modules: ModuleType, armed: Armed) -> None:
        undo = torch_private_training.wrap_load_state_dict(modules, self._on_loaded)
        armed("loaded weights", undo, "this torch has no torch.nn.Module.load_state_dict")

    def arm_no_grad(self, armed: Armed) -> None:
        """Called when either of the two modules is imported; arms the tap once both are there."""
        is_loaded = module(CLIP_MODULE) is not None and module(SCALER_MODULE) is not None
        if not is_loaded or self._is_no_grad_armed:
            return
        self._is_no_grad_armed = True
        codes = torch_private_training.clip_code(), torch_private_training.unscale_code()
        self._codes = codes
        grad_mode = module("torch.autograd.grad_mode")
        undo = torch_private_training.wrap_no_grad(grad_mode, codes, self._on_no_grad) if all(codes) else None
        armed("clipping and GradScaler", undo, "clip_grad_norm_ or GradScaler has another form in this torch")

    def arm_environments(self, base: type, armed: Armed) -> None:
        """Called for each base class of gymnasium once it is imported."""
        undo = environments.arm(self._environments, base)
        armed("environments", undo, "gymnasium has another form in this version")

    def compile_called(self) -> None:
        """The program called torch.compile; called before anything is traced."""
        if not self._has_compiled:
            self._has_compiled = True
            if self._telemetry is not None:
                self._show(lambda telemetry: telemetry.compile_called())

    def arm_loggers(self, kind: loggers.LoggerClass, library: ModuleType, armed: Armed) -> None:
        """Called for each library with a logger once it is imported."""
        undo = loggers.arm(kind, library, lambda logged: self._show(lambda telemetry: telemetry.logged(logged)))
        armed(f"scalars of {kind.label}", undo, f"this version has no {kind.name}.{kind.method}")

    def facts(self) -> Mapping[str, Any]:
        return self._telemetry.facts() if self._telemetry is not None else {}

    def series(self) -> Iterable[Series]:
        return self._telemetry.series() if self._telemetry is not None else ()

    def close(self) -> None:
        """Process the samples that are still queued, and report if no step could be observed."""
        if self._telemetry is not None:
            self._telemetry.close()
        if not self._num_steps and not self._is_off and _has_optimizer():
            self._tap("gradients", "absent", UNSEEN)

    def start_over(self) -> None:
        """Begin again in a forked child, which has the memory of its parent but none of its threads."""
        self._num_steps = 0
        self._making = threading.Lock()
        if self._telemetry is not None:
            self._telemetry.start_over()

    def _on_begin(self, frame: FrameType) -> None:
        self._show(lambda telemetry: telemetry.step_begins(frame.f_locals["self"]))

    def _on_end(self, frame: FrameType) -> None:
        self._num_steps += 1
        self._show(lambda telemetry: telemetry.step_ended(frame.f_locals["self"]))

    def _on_backward(self, tensors: Sequence[Any]) -> None:
        num_acts, self._num_acts = self._num_acts, 0
        if num_acts or self._environments.steps:
            steps = self._environments.take()
            self._show(lambda telemetry: telemetry.rollout(num_acts, steps))
        self._show(lambda telemetry: telemetry.backward(tensors))

    def _on_loaded(self, subject: Any) -> None:
        """Called after every load_state_dict(); telemetry is not imported for one that matches."""
        loaded, result = subject
        missing, unexpected = getattr(result, "missing_keys", ()), getattr(result, "unexpected_keys", ())
        self._has_odd_load = self._has_odd_load or bool(missing and unexpected)
        if self._has_odd_load:
            self._show(lambda telemetry: telemetry.loaded(loaded, missing, unexpected))

    def _on_no_grad(self, frame: FrameType) -> None:
        if frame.f_code not in self._codes:
            self._num_acts += not frame.f_code.co_filename.startswith(TELEMETRY_FOLDER)
            return
        names = frame.f_locals
        if "inv_scale" in names:
            scale = getattr(names["self"], "_scale", None)
            is_check = bool(names.get("allow_fp16"))
            self._show(lambda telemetry: telemetry.unscaling(names["optimizer"], names["inv_scale"], is_check, scale))
        elif names["func"].__name__ in ("_clip_grads_with_norm_", "clip_grad_value_"):
            args, kwargs = names["args"], names["kwargs"]
            parameters = args[0] if args else kwargs.get("parameters")
            max_norm = args[1] if len(args) > 1 else kwargs.get("max_norm")
            self._show(lambda telemetry: telemetry.clipping(parameters, max_norm))

    def _show(self, show: Callable[[Telemetry], None]) -> None:
        if self._is_off:
            return
        try:
            with torch_private_training.without_function_modes():
                if self._telemetry is None:
                    with self._making:
                        if self._telemetry is None:
                            self._telemetry = self._make(lambda: len(self._environments.steps))
                            if self._has_compiled:
                                self._telemetry.compile_called()
                show(self._telemetry)
        except ModuleNotFoundError as error:
            self._is_off = True
            self._tap("gradients", "absent", str(error))
        except Exception as error:
            self._is_off = True     # it would fail again at every step
            self._on_error(error)


def _has_optimizer() -> bool:
    """Whether the program has made an optimizer, upon which torch marks the step method of its class."""
    base = getattr(module("torch.optim.optimizer"), "Optimizer", None)
    classes = [base] if base is not None else []
    while classes:
        cls = classes.pop()
        if getattr(getattr(cls, "step", None), "hooked", False):
            return True
        classes += cls.__subclasses__()
    return False


def new_telemetry(
    emit: Callable[[Event], None], step: Callable[[], int | None], num_environment_steps: Callable[[], int],
) -> Telemetry:
    """The telemetry of this process; imports torchtriage.telemetry, and with it numpy."""
    from torchtriage.telemetry.attach import Attached

    return Attached(emit, step, num_environment_steps=num_environment_steps)
