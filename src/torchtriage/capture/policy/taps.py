"""The additional taps of a run under a shape policy: calls, sizes, marks, overrides, memory."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from torchtriage.capture.machine import ActiveClock, Clock, peak_memory_facts, processor_wait_seconds
from torchtriage.capture.policy.call_sizes import CallSizes
from torchtriage.capture.policy.call_times import CallTimes
from torchtriage.capture.policy.marks import CALLS, ShapeMarks
from torchtriage.capture.policy.policy import ForcedPolicy, Forcing
from torchtriage.capture.torch_private import dynamo as torch_private
from torchtriage.capture.torch_private import shapes as torch_private_shapes
from torchtriage.launch.imports import ImportWatcher
from torchtriage.recording.events import CompileCall
from torchtriage.recording.recording import Series

Armed = Callable[[str, "Callable[[], None] | None", str], None]


class PolicyTaps:
    """One policy and its taps, for one process."""

    def __init__(self, policy: ForcedPolicy) -> None:
        self._forcing = Forcing(policy)
        self.clock = ActiveClock(policy.paused) if policy.paused else Clock()
        self._times = CallTimes(self.clock)
        self._marks = ShapeMarks()
        self._sizes = CallSizes() if policy.sizes else None
        self._is_timing: bool | None = None     # whether this torch supports the hook; None before the first context

    def arm(self, armed: Armed, on_error: Callable[[Exception], None]) -> None:
        """Arm each tap once the module that it needs is imported."""
        self._armed, self._on_error = armed, on_error
        watcher = ImportWatcher()
        watcher.when_imported("torch._dynamo.decorators", self._arm_marks)
        if self._sizes is not None:
            watcher.when_imported("torch._dynamo.output_graph", self._arm_sizes)

    def on_compile_call(self, call: CompileCall, arguments: dict[str, Any]) -> Callable[[Any], None]:
        """Force the policy on a call; returns a function to call with the context that torch makes for it."""
        self._forcing.apply(call, arguments)
        enter = self._times.timer(call)

        def add_timer(context: Any) -> None:
            if enter is None or torch_private_shapes.is_null_context(context):
                return
            is_timing = torch_private_shapes.add_enter_hook(context, enter)
            if self._is_timing is None:
                self._is_timing = is_timing
                undo = _nothing_to_undo if is_timing else None
                self._armed("call times", undo, "the compile contexts of this torch have no enter_exit_hooks")

        return add_timer

    def on_compile_start(self) -> None:
        self._times.count_compile()
        self._forcing.raise_limit()

    def facts(self) -> dict[str, Any]:
        sizes = self._sizes.facts() if self._sizes is not None else {}
        return {
            **self._forcing.facts(), **self._marks.facts(), **self._times.facts(), **sizes, **peak_memory_facts(),
            "processor_wait_seconds": processor_wait_seconds(),
        }

    def series(self) -> list[Series]:
        return self._times.series()

    def start_over(self) -> None:
        self._times.start_over()
        self._marks.start_over()
        if self._sizes is not None:
            self._sizes.start_over()

    def _arm_marks(self, decorators: ModuleType) -> None:
        undo = torch_private_shapes.wrap_marks(decorators, CALLS, self._marks.note)
        self._armed("shape marks", undo, "torch._dynamo.decorators has no mark_dynamic")

    def _arm_sizes(self, output_graph: ModuleType) -> None:
        undo = torch_private.wrap_compiled_pieces(output_graph, self._with_sizes)
        self._armed("call sizes", undo, "OutputGraph.install_global_unsafe is gone")

    def _with_sizes(self, _: str, piece: Callable[..., Any], graph: Any) -> Callable[..., Any]:
        assert self._sizes is not None
        try:
            place, inputs = torch_private_shapes.frame_place(graph), torch_private_shapes.graph_inputs(graph)
            return self._sizes.wrap(piece, place, inputs)
        except Exception as error:
            self._on_error(error)
            return piece


def _nothing_to_undo() -> None:
    """The hook disappears with the context that holds it."""
