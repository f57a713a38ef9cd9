"""Arms the taps on torch, as its modules are imported or at once, and sends what they see to one sink."""

import os
import time
from collections.abc import Callable
from types import CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from torchtriage.capture.readers.records import OUR_FOLDERS
from torchtriage.capture.taps import steps
from torchtriage.capture.taps.compile_calls import compile_call
from torchtriage.capture.taps.eager_meter import EagerMeter
from torchtriage.capture.taps.learning import CLIP_MODULE, SCALER_MODULE, LearningTaps, new_telemetry
from torchtriage.capture.taps.piece_timer import PieceTimer
from torchtriage.capture.taps.trace import TraceHandler, attach, filtered, is_attached
from torchtriage.capture.torch_private import base as torch_private
from torchtriage.errors import pass_on_signals
from torchtriage.launch.imports import ImportWatcher
from torchtriage.recording.events import CompileStart, Event, FrameSkipped, LimitHit, Recompile, Tap
from torchtriage.recording.recording import Series

if TYPE_CHECKING:
    from torchtriage.capture.policy.taps import PolicyTaps  # loaded only where a policy is asked for

_TRACING = ("TORCH_TRACE", "TORCH_DTRACE", "TORCH_COMPILE_DEBUG")
_STDLIB = os.path.dirname(os.__file__) + os.sep


class Observer:
    """One observation of this process, from arming to the end of the process or to `disarm`."""

    def __init__(self, sink: Callable[[Event], None], measure: bool = False, on_first_step: Callable[[], None] = lambda: None,
                 telemetry: bool = False, policy: "PolicyTaps | None" = None) -> None:
        self._sink = sink
        self.steps = steps.StepCounter(on_first_step, policy.clock if policy is not None else None)
        self.meter = EagerMeter()
        self.timer = PieceTimer() if measure else None
        self.learning = LearningTaps(lambda: new_telemetry(self._put, self.steps.current), self._tap, self._on_error) if telemetry else None
        self.policy = policy
        self._undo: list[Callable[[], None]] = []
        self._skipped: set[tuple[str, int, str]] = set()
        self._errors = 0
        self._trace_armed = False
        self._facts_at_end: dict[str, Any] | None = None
        self._handler = TraceHandler(self._take, self.steps.current, torch_private.lookup_interned_string, self._on_error)

    def arm_for_run(self) -> None:
        """Arm every tap as torch's modules appear; nothing is imported for our sake."""
        os.register_at_fork(after_in_child=self._start_over)
        steps.active.append(self.steps)
        watcher = ImportWatcher()
        watcher.when_imported("torch._logging._internal", self._arm_trace_early)
        watcher.when_imported("torch.autograd.profiler", self._arm_steps)
        if self.learning is not None:
            watcher.when_imported("torch.autograd", self._arm_backward)
            watcher.when_imported(CLIP_MODULE, self._arm_no_grad)
            watcher.when_imported(SCALER_MODULE, self._arm_no_grad)
        watcher.when_imported("torch._dynamo", self._arm_compile_calls)
        watcher.when_imported("torch._dynamo.convert_frame", self._arm_convert_frame)
        if self.timer is not None:
            watcher.when_imported("torch._dynamo.output_graph", self._arm_timer)
        if self.policy is not None:
            self.policy.arm(self._armed, self._on_error)

    def arm_for_block(self) -> None:
        """Arm what can be taken away again, for `watch()`."""
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
        """A forked child counts its own steps, calls and seconds."""
        self.steps.start_over()
        self.meter.start_over()
        if self.timer is not None:
            self.timer.start_over()
        if self.learning is not None:
            self.learning.start_over()
        if self.policy is not None:
            self.policy.start_over()

    def disarm(self) -> None:
        """Leave logging and Dynamo as they were."""
        for event in self._handler.unfinished():
            self._put(event)
        self._facts_at_end = self.facts()
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def facts(self) -> dict[str, Any]:
        """The running totals: steps, and what the silent-eager meter counted."""
        if self._facts_at_end is not None:
            return self._facts_at_end
        if self._trace_armed and not is_attached(self._handler):
            self._trace_armed = False
            self._tap("trace", "lost", "the logger torch.__trace was replaced or stripped of its class")
        return {**self.steps.facts(), "first_step_time": self.steps.first_time(), "eager_calls": self.meter.facts(),
                **(self.learning.facts() if self.learning is not None else {}),
                **(self.policy.facts() if self.policy is not None else {})}

    def series(self) -> list[Series]:
        learned = self.learning.series() if self.learning is not None else ()
        called = self.policy.series() if self.policy is not None else ()
        return [*([self.steps.series()] if self.steps.marks else []), *learned, *called]

    def last_events(self) -> list[Event]:
        """What is only known at the end: recompiles under way, the sums of --measure, and what telemetry could not see."""
        if self.learning is not None:
            self.learning.close()
        pending = self._handler.unfinished()
        return pending + (list(self.timer.events(time=time.time(), pid=os.getpid())) if self.timer else [])

    def _arm_trace_early(self, internal: ModuleType) -> None:
        """Right after torch's logging is loaded and before anybody has bound trace_structured."""
        attach(self._handler)
        self._trace_armed = True
        if not any(name in os.environ for name in _TRACING):    # the program's own trace names the line that called trace_structured
            torch_private.wrap_trace_structured(internal, lambda original: filtered(original, torch_private.is_recompile))
        self._tap("trace", "armed")

    def _arm_steps(self, profiler_module: ModuleType) -> None:
        undo = steps.watch_optimizers(self.steps, profiler_module)
        self._armed("steps", undo, "torch.autograd.profiler.record_function is gone")
        if self.learning is not None:       # after the count: what is taken belongs to the step just counted
            self.learning.arm_optimizers(profiler_module, self._armed)

    def _arm_backward(self, autograd: ModuleType) -> None:
        assert self.learning is not None
        self.learning.arm_backward(autograd, self._armed)

    def _arm_no_grad(self, _: ModuleType) -> None:
        assert self.learning is not None
        self.learning.arm_no_grad(self._armed)

    def _arm_compile_calls(self, dynamo: ModuleType) -> None:
        undo = torch_private.wrap_optimize(dynamo, self._on_compile_call)
        self._armed("compile calls", undo, "torch._dynamo.optimize is gone")
        if self.policy is not None:
            self._tap("policy", "absent" if undo is None else "armed", "torch._dynamo.optimize is gone" if undo is None else "")

    def _arm_convert_frame(self, convert_frame: ModuleType) -> None:
        undo = torch_private.ask_for_whole_frame_breaks(convert_frame)
        self._armed("whole-frame breaks", undo, "convert_frame has no graph_break_log")
        undo = torch_private.wrap_add_skip_reason(convert_frame, self._on_skip)
        self._armed("skipped frames", undo, "this torch gives no skip reasons (2.13 and later do)")

    def _arm_timer(self, output_graph: ModuleType) -> None:
        assert self.timer is not None
        wrap = self.timer.wrap
        undo = torch_private.wrap_compiled_pieces(output_graph, lambda compile_id, piece, _: wrap(compile_id, piece))
        self._armed("piece timer", undo, "OutputGraph.install_global_unsafe is gone")

    def _armed(self, name: str, undo: Callable[[], None] | None, missing: str) -> None:
        """Say whether a tap found its place in this torch, and remember how to take it away."""
        if undo is None:
            self._tap(name, "absent", missing)
            return
        self._undo.append(undo)
        self._tap(name, "armed")

    def _put(self, event: Event) -> None:
        """Hand an event over; what happens to it from there on is never the program's trouble."""
        try:
            self._sink(event)
        except Exception as error:
            pass_on_signals(error)
            self._errors += 1

    def _take(self, event: Event) -> None:
        self._put(event)
        if isinstance(event, CompileStart):
            if self.timer is not None:
                self.timer.num_compiles += 1
            if self.policy is not None:
                self.policy.on_compile_start()
        if isinstance(event, Recompile):
            self.meter.count_recompile()
        elif isinstance(event, LimitHit) and not self.meter.asked:
            problem = self.meter.arm()
            self._tap("silent-eager meter", "absent" if problem else "armed", problem or f"since {event.function} hit its limit")

    def _on_compile_call(self, arguments: dict[str, Any], frame: FrameType) -> Callable[[Any], None] | None:
        try:
            call = compile_call(arguments, frame, time=time.time(), step=self.steps.current(), pid=os.getpid())
            self._put(call)
            return None if self.policy is None else self.policy.on_compile_call(call, arguments)
        except Exception as error:
            self._on_error(error)
            return None

    def _on_skip(self, reason: str, code: CodeType) -> None:
        try:
            self._note_skip(reason, code)
        except Exception as error:
            self._on_error(error)

    def _note_skip(self, reason: str, code: CodeType) -> None:
        path = code.co_filename
        in_stdlib = path.startswith((_STDLIB, "<frozen")) and "site-packages" not in path
        key = (path, code.co_firstlineno, code.co_name)
        if key in self._skipped or in_stdlib or path.startswith(OUR_FOLDERS) or torch_private.is_torch_file(path):
            return  # Dynamo passes over thousands of frames of torch and python; only the program's own are news
        self._skipped.add(key)
        self._put(FrameSkipped(path=path, line=code.co_firstlineno, function=code.co_name, reason=str(reason)[:500],
                               time=time.time(), step=self.steps.current(), pid=os.getpid()))

    def _on_error(self, error: Exception) -> None:
        """Our failure becomes a fact of the recording, once, and never the user's."""
        pass_on_signals(error)
        self._errors += 1
        if self._errors == 1:
            frame = error.__traceback__
            place = f"{os.path.basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno}" if frame else ""
            self._tap("recorder", "lost", f"{type(error).__name__}: {error} ({place})")

    def _tap(self, name: str, state: str, detail: str = "") -> None:
        self._put(Tap(name=name, state=state, detail=detail, time=time.time(), step=self.steps.current(), pid=os.getpid()))


