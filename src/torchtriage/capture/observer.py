"""The observer of a process: one sink for the events of all taps on torch."""

import functools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from torchtriage.capture.machine import Clock
from torchtriage.capture.notebook_cells import NotebookCells
from torchtriage.capture.readers.records import OUR_FOLDERS
from torchtriage.capture.taps import environments, loggers, steps
from torchtriage.capture.taps.compile_calls import RepeatedCalls, compile_call
from torchtriage.capture.taps.compile_sites import MainScript
from torchtriage.capture.taps.eager_meter import EagerMeter
from torchtriage.capture.taps.learning import CLIP_MODULE, SCALER_MODULE, LearningTaps, new_telemetry
from torchtriage.capture.taps.piece_timer import PieceTimer
from torchtriage.capture.taps.trace import TraceHandler, attach, filtered, is_attached
from torchtriage.capture.torch_private import dynamo as torch_private_dynamo
from torchtriage.capture.torch_private.base import Undo, is_torch_file
from torchtriage.errors import pass_on_signals
from torchtriage.launch.imports import ImportWatcher
from torchtriage.recording.events import CompileStart, Event, FrameSkipped, LimitHit, Recompile, Tap
from torchtriage.recording.recording import Series
from torchtriage.text import short_place

if TYPE_CHECKING:
    from torchtriage.capture.policy.taps import PolicyTaps  # loaded only in a run under a policy

_TRACING = ("TORCH_TRACE", "TORCH_DTRACE", "TORCH_COMPILE_DEBUG")
_STDLIB = os.path.dirname(os.__file__) + os.sep


class Observer:
    """One observation of this process, from arming to the end of the process or to `disarm`."""

    def __init__(
        self, sink: Callable[[Event], None], measure: bool = False, on_first_step: Callable[[], None] = lambda: None,
        telemetry: bool = False, policy: "PolicyTaps | None" = None, clock: Clock | None = None,
    ) -> None:
        self._sink = sink
        self._cells = NotebookCells()
        self.steps = steps.StepCounter(on_first_step, policy.clock if policy is not None else clock)
        self.meter = EagerMeter()
        self.timer = PieceTimer() if measure else None
        self.learning: LearningTaps | None = None
        if telemetry:
            self.learning = LearningTaps(
                lambda position: new_telemetry(self._put, self.steps.current, position), self._tap, self._on_error)
        self.policy = policy
        self._calls = RepeatedCalls()
        self._undo: list[Undo] = []
        self._skipped: set[tuple[str, int, str]] = set()
        self._errors = 0
        self._trace_armed = False
        self._calls_are_seen = True     # torch._dynamo has not been imported, or its tap is armed
        self._num_compile_calls = 0
        self._call_numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()   # by the context of the call
        self._script: MainScript | None = None
        self._facts_at_end: dict[str, Any] | None = None
        self._handler = TraceHandler(
            self._take, self.steps.current, torch_private_dynamo.lookup_interned_string, self._on_error)

    def arm_for_run(self) -> None:
        """Arm each tap when the program imports its module of torch; torchtriage imports none itself."""
        os.register_at_fork(after_in_child=self._start_over)
        steps.active.append(self.steps)
        self._script = MainScript()
        watcher = ImportWatcher()
        watcher.when_imported("torch._logging._internal", self._arm_trace_early)
        watcher.when_imported("torch.autograd.profiler", self._arm_steps)
        if self.learning is not None:
            watcher.when_imported("torch.autograd", self._arm_backward)
            watcher.when_imported("torch.nn.modules.module", self._arm_loading)
            watcher.when_imported(CLIP_MODULE, self._arm_no_grad)
            watcher.when_imported(SCALER_MODULE, self._arm_no_grad)
            # The compiler has to be there, so that no frame of the tap is traced.
            watcher.when_imported("torch.compiler", lambda _: self._await_libraries(watcher))
        watcher.when_imported("torch._dynamo", self._arm_compile_calls)
        watcher.when_imported("torch._dynamo.convert_frame", self._arm_convert_frame)
        if self.timer is not None:
            watcher.when_imported("torch._dynamo.output_graph", self._arm_timer)
        if self.policy is not None:
            self.policy.arm(self._armed, self._on_error)

    def arm_for_block(self) -> None:
        """Arm those taps that can be removed again, for `watch()`."""
        import torch._dynamo.convert_frame
        import torch.autograd.profiler

        steps.active.append(self.steps)
        self._undo.append(lambda: steps.active.remove(self.steps))
        self._undo.append(attach(self._handler))
        self._trace_armed = True
        self._tap("trace", "armed")
        self._arm_steps(torch.autograd.profiler)
        self._arm_compile_calls(torch._dynamo)
        self._arm_convert_frame(torch._dynamo.convert_frame)
        self._undo.append(self.meter.disarm)

    def _start_over(self) -> None:
        """Reset all counts in a forked child, which counts its own steps, calls and seconds."""
        self.steps.start_over()
        self.meter.start_over()
        self._calls.start_over()
        if self.timer is not None:
            self.timer.start_over()
        if self.learning is not None:
            self.learning.start_over()
        if self.policy is not None:
            self.policy.start_over()

    def disarm(self) -> None:
        """Restore logging and Dynamo to their previous state."""
        for event in self._unfinished():
            self._put(event)
        self._facts_at_end = self.facts()
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def facts(self) -> dict[str, Any]:
        """The running totals of all taps."""
        if self._facts_at_end is not None:
            return self._facts_at_end
        if self._trace_armed and not is_attached(self._handler):
            self._trace_armed = False
            self._tap("trace", "lost", "the logger torch.__trace was replaced, or its class was")
        facts = {
            **self.steps.facts(), "first_step_time": self.steps.first_time(), "eager_calls": self.meter.facts(),
        }
        if self.learning is not None:
            facts.update(self.learning.facts())
        if self.policy is not None:
            facts.update(self.policy.facts())
        return facts

    def series(self) -> list[Series]:
        series: list[Series] = []
        if self.steps.marks:
            series.append(self.steps.series())
        if self.learning is not None:
            series.extend(self.learning.series())
        if self.policy is not None:
            series.extend(self.policy.series())
        return series

    def last_events(self) -> list[Event]:
        """Events that are only complete at the end: recompiles, repeated calls, sums, calls that the source has."""
        if self.learning is not None:
            self.learning.close()
        events = self._unfinished()
        if self._calls_are_seen and not self._num_compile_calls:
            events.extend(self._compile_sites())
        if self.timer is not None:
            events.extend(self.timer.events(time=time.time(), pid=os.getpid()))
        return events

    def _unfinished(self) -> list[Event]:
        return [*self._handler.unfinished(), *self._calls.rest()]

    def _arm_trace_early(self, internal: ModuleType) -> None:
        """Arm the trace right after torch's logging is loaded, before any module has imported trace_structured."""
        attach(self._handler)
        self._trace_armed = True
        # The program's own trace names the line that called trace_structured, so a wrapper would show in it.
        if not any(name in os.environ for name in _TRACING):
            torch_private_dynamo.wrap_trace_structured(
                internal, lambda original: filtered(original, torch_private_dynamo.is_recompile))
        self._tap("trace", "armed")

    def _arm_steps(self, profiler_module: ModuleType) -> None:
        undo = steps.watch_optimizers(self.steps, profiler_module)
        self._armed("steps", undo, "this torch has no torch.autograd.profiler.record_function")
        if self.learning is not None:       # after the counter: a sample belongs to the step just counted
            self.learning.arm_optimizers(profiler_module, self._armed)

    def _arm_backward(self, autograd: ModuleType) -> None:
        assert self.learning is not None
        self.learning.arm_backward(autograd, self._armed)

    def _arm_loading(self, modules: ModuleType) -> None:
        assert self.learning is not None
        self.learning.arm_loading(modules, self._armed)

    def _arm_no_grad(self, _: ModuleType) -> None:
        assert self.learning is not None
        self.learning.arm_no_grad(self._armed)

    def _await_libraries(self, watcher: ImportWatcher) -> None:
        for name, base in environments.BASES:
            watcher.when_imported(name, functools.partial(self._arm_environments, base))
        for kind in loggers.LOGGERS:
            watcher.when_imported(kind.module, functools.partial(self._arm_loggers, kind))

    def _arm_environments(self, base: str, gymnasium: ModuleType) -> None:
        assert self.learning is not None
        self.learning.arm_environments(getattr(gymnasium, base), self._armed)

    def _arm_loggers(self, kind: loggers.LoggerClass, library: ModuleType) -> None:
        assert self.learning is not None
        self.learning.arm_loggers(kind, library, self._armed)

    def _arm_compile_calls(self, dynamo: ModuleType) -> None:
        undo = torch_private_dynamo.wrap_optimize(dynamo, self._on_compile_call)
        missing = "this torch has no torch._dynamo.optimize"
        self._armed("compile calls", undo, missing)
        self._calls_are_seen = undo is not None
        if self.policy is not None and undo is None:
            self._tap("policy", "absent", missing)
        elif self.policy is not None:
            self._tap("policy", "armed")

    def _arm_convert_frame(self, convert_frame: ModuleType) -> None:
        undo = torch_private_dynamo.ask_for_whole_frame_breaks(convert_frame)
        self._armed("whole-frame breaks", undo, "this torch has no graph_break_log in convert_frame")
        undo = torch_private_dynamo.wrap_add_skip_reason(convert_frame, self._on_skip)
        self._armed("skipped frames", undo, "this torch does not give reasons for skipped frames (2.13 and later do)")

    def _arm_timer(self, output_graph: ModuleType) -> None:
        assert self.timer is not None
        wrap = self.timer.wrap
        undo = torch_private_dynamo.wrap_compiled_pieces(
            output_graph, lambda compile_id, piece, _: wrap(compile_id, piece))
        self._armed("piece timer", undo, "this torch has no OutputGraph.install_global_unsafe")

    def _armed(self, name: str, undo: Undo | None, missing: str) -> None:
        """Record whether this torch has a place for a tap, and keep the function that removes the tap."""
        if undo is None:
            self._tap(name, "absent", missing)
            return
        self._undo.append(undo)
        self._tap(name, "armed")

    def _put(self, event: Event) -> None:
        """Pass an event to the sink; an error in the sink never reaches the program."""
        try:
            self._sink(self._cells.named(event))
        except Exception as error:
            pass_on_signals(error)
            self._errors += 1

    def _take(self, event: Event) -> None:
        """Pass on an event of the trace, and let the other taps react to it."""
        if isinstance(event, CompileStart):
            event = replace(event, call=self._running_call())
        self._put(event)
        if isinstance(event, CompileStart):
            if self.timer is not None:
                self.timer.num_compiles += 1
            if self.policy is not None:
                self.policy.on_compile_start()
        if isinstance(event, Recompile):
            self.meter.count_recompile()
        elif isinstance(event, LimitHit) and not self.meter.was_armed:
            problem = self.meter.arm()
            if problem:
                self._tap("silent-eager meter", "absent", problem)
            else:
                self._tap("silent-eager meter", "armed", f"since {event.function} hit its limit")

    def _on_compile_call(self, arguments: dict[str, Any], frame: FrameType) -> Callable[[Any], None] | None:
        self._num_compile_calls += 1
        try:
            if self.learning is not None:
                self.learning.compile_called()
            number = self._num_compile_calls
            call = compile_call(arguments, frame, number=number, **self._columns())
            recorded = self._calls.add(call)
            if recorded is not None:
                self._put(recorded)
            on_forced = None if self.policy is None else self.policy.on_compile_call(call, arguments)
        except Exception as error:
            self._on_error(error)
            return None
        return lambda context: self._on_compile_context(context, number, on_forced)

    def _on_compile_context(self, context: Any, number: int, on_forced: Callable[[Any], None] | None) -> None:
        try:
            self._call_numbers[context] = number
            if on_forced is not None:
                on_forced(context)
        except Exception as error:
            self._on_error(error)

    def _running_call(self) -> int | None:
        context = torch_private_dynamo.running_context()
        return None if context is None else self._call_numbers.get(context)

    def _compile_sites(self) -> Sequence[Event]:
        try:
            return self._script.compile_sites(**self._columns()) if self._script is not None else ()
        except Exception as error:
            self._on_error(error)
            return ()

    def _on_skip(self, reason: str, code: CodeType) -> None:
        try:
            self._note_skip(reason, code)
        except Exception as error:
            self._on_error(error)

    def _note_skip(self, reason: str, code: CodeType) -> None:
        path = code.co_filename
        in_stdlib = path.startswith((_STDLIB, "<frozen")) and "site-packages" not in path
        key = (path, code.co_firstlineno, code.co_name)
        if key in self._skipped or in_stdlib or path.startswith(OUR_FOLDERS) or is_torch_file(path):
            return  # Dynamo skips thousands of frames of torch and Python; only those of the program matter
        self._skipped.add(key)
        self._put(FrameSkipped(
            path=path, line=code.co_firstlineno, function=code.co_name, reason=str(reason)[:500], **self._columns()))

    def _on_error(self, error: Exception) -> None:
        """Record the first failure of our own code; none of them reaches the program."""
        pass_on_signals(error)
        self._errors += 1
        if self._errors == 1:
            trace = error.__traceback__
            place = short_place(trace.tb_frame.f_code.co_filename, trace.tb_lineno) if trace else ""
            self._tap("recorder", "lost", f"{type(error).__name__}: {error} ({place})")

    def _tap(self, name: str, state: str, detail: str = "") -> None:
        self._put(Tap(name=name, state=state, detail=detail, **self._columns()))

    def _columns(self) -> dict[str, Any]:
        """The columns of an event that happens now."""
        return {"time": time.time(), "step": self.steps.current(), "pid": os.getpid()}


