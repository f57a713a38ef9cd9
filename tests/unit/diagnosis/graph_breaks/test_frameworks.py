"""A break inside a wrapper of torch is told from one in the user's module below it."""

from torchtriage.diagnosis.graph_breaks.cause import classify
from torchtriage.recording.events import GraphBreak, StackEntry

TORCH = "/venv/lib/python3.11/site-packages/torch"
DDP = StackEntry(path=f"{TORCH}/nn/parallel/distributed.py", line=1757, function="_pre_forward")
CALL = StackEntry(path="/app/train.py", line=11, function="<module>")


def a_break(*stack: StackEntry) -> GraphBreak:
    place = stack[-1]
    return GraphBreak(
        path=place.path, line=place.line, function=place.function, stack=stack,
        gb_id="GB0156", type="Unsupported method call",
        explanation="Dynamo does not know how to trace method `set_runtime_stats_and_log` of class `Logger`",
    )


def test_the_fix_for_a_break_in_the_wrapper_is_to_compile_the_module_inside() -> None:
    below = StackEntry(path="/usr/lib/python3.11/contextlib.py", line=105, function="__init__")
    for event in (a_break(CALL, DDP), a_break(CALL, DDP, below)):
        assert classify(event, "loss = compiled(x)").remedy.text.startswith(
            "compile the module inside: DDP(torch.compile("
        )


def test_a_break_in_the_user_module_is_not_attributed_to_the_wrapper() -> None:
    own = StackEntry(path="/app/model.py", line=4, function="forward", code="print(x)")
    assert "DDP" not in classify(a_break(CALL, DDP, own), "print(x)").remedy.text
