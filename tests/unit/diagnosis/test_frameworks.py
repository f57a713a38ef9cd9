"""A break in the code of a library is distinguished from one in the user's module below it."""

from torchtriage.diagnosis.graph_breaks.cause import classify
from torchtriage.diagnosis.graph_breaks.finding import graph_breaks
from torchtriage.recording.events import GraphBreak, StackEntry
from torchtriage.recording.recording import Process

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


LOG = StackEntry(
    path="/venv/lib/python3.11/site-packages/lightning/pytorch/core/module.py", line=514, function="log",
)
INSPECT = StackEntry(path="/usr/lib/python3.11/inspect.py", line=2474, function="_signature_from_callable")


def test_the_fix_for_a_break_in_lightning_is_written_in_the_program() -> None:
    [finding] = graph_breaks(Process(events=(a_break(CALL, LOG, INSPECT),), facts={"your_roots": ["/app"]}))
    assert finding.fix.text.startswith("compile the network inside the LightningModule")
    assert (finding.location.path, finding.owner.name) == ("/app/train.py", "lightning")


def test_a_folder_of_the_user_that_has_the_name_of_a_library_is_not_the_library() -> None:
    own = StackEntry(path="/home/me/lightning/pytorch/model.py", line=4, function="forward")
    assert "LightningModule" not in classify(a_break(CALL, own), "print(x)").remedy.text


def test_a_break_in_the_user_module_is_not_attributed_to_the_wrapper() -> None:
    own = StackEntry(path="/app/model.py", line=4, function="forward", code="print(x)")
    assert "DDP" not in classify(a_break(CALL, DDP, own), "print(x)").remedy.text
