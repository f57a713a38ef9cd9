"""The taps of a run of `torchtriage verify`: fixed seeds, forced eager, numbers of every optimizer step."""

import atexit
import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, ModuleType
from typing import Any

from torchtriage.capture.machine import ActiveClock, Clock, peak_memory_facts
from torchtriage.capture.proof.arranged_draws import ArrangedDraws
from torchtriage.capture.proof.draws import digests
from torchtriage.capture.proof.module_state import ModuleState, tensors_in
from torchtriage.capture.proof.numbers_file import NumbersFile, is_recorded
from torchtriage.capture.proof.operations import Operations
from torchtriage.capture.proof.projection import Projector, loss_rows
from torchtriage.capture.proof.setting import ProofSetting
from torchtriage.capture.torch_private import dynamo, shapes, training
from torchtriage.capture.torch_private.base import module, never_compile
from torchtriage.capture.torch_private.dispatch import dispatch_mode
from torchtriage.errors import hide_frame, pass_on_signals, tell
from torchtriage.launch.imports import ImportWatcher

OPTIMIZER_BLOCK = "Optimizer.step#"
_SETTINGS = frozenset("""
    lr betas momentum dampening weight_decay eps nesterov amsgrad maximize alpha rho lambd centered momentum_decay
    lr_decay initial_accumulator_value etas step_sizes decoupled_weight_decay beta2_decay d
""".split())  # noqa: SIM905 - as many lines as names otherwise


class WorkClock(Clock):
    """A clock that does not count the seconds in which the numbers are computed."""

    def __init__(self, base: Clock) -> None:
        super().__init__()
        self.own_seconds = 0.0
        self._base = base
        self.now = lambda: base.now() - self.own_seconds
        self.since_epoch = base.since_epoch

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        began = self._base.now()
        try:
            yield
        finally:
            self.own_seconds += self._base.now() - began


class ProofTaps:
    """One setting and its taps, for one process."""

    def __init__(self, setting: ProofSetting, folder: str) -> None:
        self._setting = setting
        self.clock = WorkClock(ActiveClock(setting.paused) if setting.paused else Clock())
        self._file = NumbersFile(folder)
        self._projector = Projector()
        self._operations: Operations | None = None
        self._draws: ArrangedDraws | None = None
        self._mode: Any = None
        self._began = time.time()
        self._step, self._num_updates = 0, 0
        self._optimizers: dict[int, int] = {}       # id -> number
        self._names: dict[int, list[str]] = {}      # number of an optimizer -> the names of its parameters
        self._state = ModuleState()
        self._losses: list[list[float]] = []
        self._row: dict[str, Any] = {}
        self._graph_ops = [0, 0, 0]     # calls of compiled pieces, operations in them, those of optimizers
        self._problem = ""
        self._is_recorded = False
        self._ended_at = 0

    def arm(self) -> None:
        """Called before torch is imported."""
        random.seed(self._setting.seed)
        os.register_at_fork(after_in_child=self._start_over)
        watcher = ImportWatcher()
        watcher.when_imported("numpy", self._seed_numpy)
        watcher.when_imported("torch", self._begin)
        watcher.when_imported("torch._inductor.config", _draw_as_eager)
        watcher.when_imported("torch._dynamo.output_graph", self._count_pieces)

    def _seed_numpy(self, numpy: ModuleType) -> None:
        numpy.random.seed(self._setting.seed)

    def _begin(self, torch: ModuleType) -> None:
        """Called as soon as torch is imported, before the next line of the program."""
        torch.manual_seed(self._setting.seed)
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False     # it would slow down every allocation
        profiler = module("torch.autograd.profiler")
        training.wrap_record_function(profiler, OPTIMIZER_BLOCK, self._on_begin, name="__enter__")
        training.wrap_record_function(profiler, OPTIMIZER_BLOCK, self._on_end)
        training.wrap_backward(torch.autograd, self._on_backward)
        training.wrap_save(module("torch.serialization"), self._on_save)
        if self._setting.eager:
            torch.compiler.set_stance("force_eager")
            if self._setting.as_compiled:
                dynamo.wrap_is_compiling(torch.compiler)
            arrangement = self._setting.draws
            self._draws = ArrangedDraws(arrangement, lambda: self._step) if arrangement else None
            self._operations = Operations(rounding=self._setting.rounding, draws=self._draws)
            self._mode = dispatch_mode(self._operations.run)
            self._mode.__enter__()
        atexit.register(self._end)

    def _count_pieces(self, output_graph: ModuleType) -> None:
        dynamo.wrap_compiled_pieces(output_graph, self._counted)

    def _counted(self, compile_id: str, piece: Callable[..., Any], graph: Any) -> Callable[..., Any]:
        totals, (number, in_optimizer) = self._graph_ops, shapes.num_operations(graph)

        def counted_piece(*args: Any) -> Any:
            totals[0] += 1
            totals[1] += number
            totals[2] += in_optimizer
            try:
                return piece(*args)
            except BaseException as error:
                hide_frame(error)
                raise

        return never_compile(counted_piece)

    @contextlib.contextmanager
    def _observing(self) -> Iterator[None]:
        """Our own operations are neither timed, nor changed, nor do they draw."""
        torch = module("torch")
        with self.clock.stopped(), training.without_function_modes(), torch.no_grad():
            if self._operations is not None:
                self._operations.is_paused = True
            try:
                yield
            except Exception as error:
                pass_on_signals(error)
                self._problem = self._problem or f"{type(error).__name__}: {error}"
            finally:
                if self._operations is not None:
                    self._operations.is_paused = False

    def _on_backward(self, tensors: Any) -> None:
        with self._observing():
            self._losses.extend(loss_rows(tuple(tensors), self._projector))

    def _on_begin(self, frame: FrameType) -> None:
        with self._observing():
            optimizer = frame.f_locals["self"]
            number = self._optimizers.setdefault(id(optimizer), len(self._optimizers))
            step = self._step + 1 if number == 0 else self._step
            self._row = {"optimizer": number, "step": step, "losses": self._losses, "draws": digests(),
                         "settings": [settings_of(group) for group in optimizer.param_groups]}
            self._losses = []
            if self._operations is not None:
                self._row["drawn"] = self._operations.drawn()
            self._is_recorded = is_recorded(self._num_updates // max(1, len(self._optimizers)) + 1)
            if self._is_recorded:
                pairs = self._named(optimizer, number, frame)
                grads = {name: p.grad for name, p in pairs if p.grad is not None}
                self._row["gradients"] = {name: self._projector.row(grad) for name, grad in grads.items()}

    def _on_end(self, frame: FrameType) -> None:
        with self._observing():
            optimizer = frame.f_locals["self"]
            number = self._optimizers.setdefault(id(optimizer), len(self._optimizers))
            self._num_updates += 1
            self._step += number == 0
            if self._is_recorded:
                pairs = self._named(optimizer, number, frame)
                self._row["weights"] = {name: self._projector.row(p) for name, p in pairs}
                state = self._state.tensors(number, [p for _, p in pairs])
                self._row["state"] = {name: self._projector.row(tensor) for name, tensor in state.items()}
            self._file.put(kind="step", time=time.time() - self._began, **self._row)
            self._row = {}
        if self._setting.steps and self._step >= self._setting.steps:
            tell(f"ended after {self._step} optimizer steps, as --steps asks")
            self._ended_at = self._step
            raise SystemExit(0)

    def _on_save(self, obj: Any) -> None:
        with self._observing():
            tensors = dict(tensors_in(obj))
            self._file.put(kind="saved", tensors={name: self._projector.row(t) for name, t in tensors.items()})

    def _named(self, optimizer: Any, number: int, frame: FrameType) -> list[tuple[str, Any]]:
        """The parameters of an optimizer, by the names that modules give them."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if len(self._names.get(number, ())) != len(parameters):
            from torchtriage.telemetry.sampling.parameters import Namer

            self._names[number] = Namer().names(optimizer, parameters, frame.f_back)
        return list(zip(self._names[number], parameters, strict=True))

    def _end(self) -> None:
        """The totals of the process; one that neither trained nor ran a graph or an operation has none."""
        if self._mode is not None:
            self._mode.__exit__(None, None, None)
        num_ops = self._operations.num_ops if self._operations is not None else 0
        if not (self._num_updates or self._graph_ops[0] or num_ops):
            return
        version = getattr(module("torch"), "__version__", "")
        self._file.put(
            kind="end", rank=os.environ.get("RANK"), steps=self._step, updates=self._num_updates,
            graph_calls=self._graph_ops[0], graph_ops=self._graph_ops[1], eager_ops=num_ops,
            optimizer_ops=self._graph_ops[2], problem=self._problem,
            torch=str(version), memory=peak_memory_facts(), ended_early=self._ended_at,
            own_seconds=self.clock.own_seconds, draws=digests(),
            clipping_ops=self._operations.num_clipping if self._operations is not None else 0,
            repeated_draws=self._operations.num_repeats if self._operations is not None else 0,
            draw_keys=self._draws.keys if self._draws is not None else 0,
            drawn_elements=self._draws.elements if self._draws is not None else {},
            repeats_shapes=self._operations is not None and self._operations.repeats_shapes,
            draw_pairs=sorted(self._operations.draw_pairs) if self._operations is not None else [],
        )

    def _start_over(self) -> None:
        """In a forked child, which has its own file."""
        self._file.start_over()
        self._step = self._num_updates = 0
        self._graph_ops[:] = [0, 0, 0]


def settings_of(group: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a parameter group that decide an update; the state of a schedule is not among them."""
    found = dict[str, float]()
    for name in sorted(_SETTINGS & group.keys()):
        value = group[name]
        for number, part in enumerate(value if isinstance(value, list | tuple) else [value]):
            if part is not None:
                found[name if part is value else f"{name}[{number}]"] = float(part)
    return found


def _draw_as_eager(config: ModuleType) -> None:
    """Compiled code draws the random numbers that eager code would draw."""
    config.fallback_random = True  # type: ignore[attr-defined]  # a module whose attributes are settings
