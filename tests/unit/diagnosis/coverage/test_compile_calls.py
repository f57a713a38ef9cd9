"""torch.compile calls that compile nothing, are repeated, or are bypassed, by events and recorded source."""

import textwrap
from dataclasses import replace
from typing import Any

import pytest

from torchtriage.diagnosis.coverage.compile_calls import compile_did_nothing, compiled_bypassed, compiled_repeatedly
from torchtriage.findings.model import Finding, Severity
from torchtriage.recording.events import CompileCall, CompileStart, Event
from torchtriage.recording.recording import Process, Source

APP = "/app/train.py"
FACTS: dict[str, Any] = {"your_roots": ["/app"], "end": 9.0}


def call(line: int, **fields: Any) -> CompileCall:
    place = {"path": APP, "line": line, "function": "<module>", "target": "Net.forward"}
    return CompileCall(**{**place, "target_path": APP, "target_line": 90, "time": 1.0, **fields})


START = CompileStart(path=APP, line=90, function="forward", compile_id="0/0", time=2.0)


def process(source: str, *events: Event) -> Process:
    lines = tuple(textwrap.dedent(source).strip("\n").split("\n"))
    sources = {
        (APP, event.line): Source(first_line=1, lines=lines) for event in events if isinstance(event, CompileCall)
    }
    return Process(events=events, facts=FACTS, sources=sources)     # type: ignore[arg-type]


def nothing_compiled(source: str, line: int, **fields: Any) -> Finding:
    [finding] = compile_did_nothing(process(source, call(line, **fields)))
    return finding


def test_a_method_that_the_wrapper_does_not_cover_is_named() -> None:
    finding = nothing_compiled("model = torch.compile(Net())\nmodel.eval()\nout = model.encode(x)", 1)
    assert finding.fix.text.startswith(
        "compile the method: `model = Net()`, then `model.encode = torch.compile(model.encode)` instead of"
    )
    assert "model.encode() at train.py:3" in finding.cause
    assert finding.severity is Severity.P1


def test_the_fix_for_an_unused_result_is_to_assign_it() -> None:
    assert "`net = torch.compile(net)` at train.py:2" in nothing_compiled("net = Net()\ntorch.compile(net)", 2).fix.text


def test_an_unused_result_is_assigned_to_the_name_that_is_used() -> None:
    kept = "def __init__(self, net):\n    self.net = net\n    torch.compile(net)"
    assert nothing_compiled(kept, 3).fix.text.startswith("`self.net = torch.compile(self.net)` at ")
    unused = "def prepare(net):\n    torch.compile(net)"
    assert "net = torch.compile(net)" not in nothing_compiled(unused, 2).fix.text


def test_a_call_of_the_original_is_named_with_its_line() -> None:
    finding = nothing_compiled("fast = torch.compile(net)\nfor x in data:\n    net(x)", 1)
    assert finding.fix.text == "call fast instead of net at train.py:3"


def test_in_place_compile_of_a_module_of_torch_is_replaced_by_the_wrapper() -> None:
    finding = nothing_compiled("net.compile()", 1, target_path="/v/site-packages/torch/nn/modules/container.py")
    assert finding.fix.text == "`net = torch.compile(net)` instead of `net.compile()` at train.py:1"


def test_a_decorated_function_that_was_not_called_needs_no_action() -> None:
    finding = nothing_compiled("@torch.compile\ndef helper(x):\n    return x", 1, target="helper")
    assert finding.severity is Severity.P4
    assert "not called in this run" in finding.title
    assert finding.fix.text.startswith("nothing to do")


IN_FORWARD = """
class Block(nn.Module):
    def forward(self, x):
        fused = torch.compile(gate)
        return fused(x)
"""


@pytest.mark.parametrize(("repeats", "codes"), [(2, []), (3, ["TT309"])])
def test_compile_calls_after_the_first_compile_are_counted(repeats: int, codes: list[str]) -> None:
    calls = [call(3), *(replace(call(3), time=3.0 + number) for number in range(repeats))]
    findings = list(compiled_repeatedly(process(IN_FORWARD, calls[0], START, *calls[1:])))
    assert [finding.code for finding in findings] == codes
    assert all("once, in __init__" in finding.fix.text for finding in findings)


def test_a_call_event_may_stand_for_many_calls() -> None:
    calls = [call(3), replace(call(3), time=3.0), replace(call(3), time=4.0, num_calls=5_000)]
    [finding] = compiled_repeatedly(process(IN_FORWARD, calls[0], START, *calls[1:]))
    assert finding.evidence.num_events == 5_001
    assert finding.title.endswith("5,001 times after the first")


def test_many_layers_compiled_at_one_line_before_the_first_call_are_fine() -> None:
    calls = [replace(call(3), time=1.0 + number / 100) for number in range(12)]
    assert not list(compiled_repeatedly(process(IN_FORWARD, *calls, START)))


BYPASS = """
fast = torch.compile(net)
for x in data:
    loss = fast(x).sum()
    score = net(x).sum()
"""


def test_a_loop_that_calls_wrapper_and_original_is_reported() -> None:
    [finding] = compiled_bypassed(process(BYPASS, call(1), START))
    assert finding.code == "TT310"
    assert "call fast instead of net at train.py:4" in finding.fix.text


@pytest.mark.parametrize("source", [
    "fast = torch.compile(net)\nfor x in data:\n    fast(x)\nprint(net(x))",     # once, after the loop
    "net = torch.compile(net)\nfor x in data:\n    net(x)",
    "for x in data:\n    net(x)",
])
def test_an_original_that_no_loop_calls_is_not_reported(source: str) -> None:
    assert not list(compiled_bypassed(process(source, call(1), START)))


@pytest.mark.parametrize("source", [
    "for fold in range(5):\n    net = Net(fold)\n    fast = torch.compile(net)\n    train(fast)",
    "def make(n):\n    net = build.Net(n)\n    fast = torch.compile(net)\n    return fast",
    "for fold in range(5):\n    pass\n    fast = torch.compile(nn.Linear(4, 4))\n    train(fast)",
])
def test_a_new_module_each_time_has_to_be_compiled_each_time(source: str) -> None:
    calls = [call(3, time=time) for time in (1.0, 3.0, 4.0, 5.0, 6.0)]
    assert not list(compiled_repeatedly(process(source, calls[0], START, *calls[1:])))


OF_TORCH = "/v/lib/python3.11/site-packages/torch/nn/modules/container.py"


def test_a_module_of_torch_that_is_compiled_in_every_epoch_is_reported() -> None:
    wrapped = replace(START, path="/v/lib/python3.11/site-packages/torch/_dynamo/external_utils.py", line=67)
    calls = [call(3, target_path=OF_TORCH, time=time) for time in (1.0, 3.0, 4.0, 5.0)]
    [finding] = compiled_repeatedly(process(IN_FORWARD, calls[0], wrapped, *calls[1:]))
    assert finding.code == "TT309"


def test_the_fix_keeps_the_options_of_the_call() -> None:
    dropped = nothing_compiled("net = Net()\ntorch.compile(net, dynamic=True)", 2)
    assert dropped.fix.text.startswith("`net = torch.compile(net, dynamic=True)` at train.py:2")
    assert dropped.fix.text.endswith("or `net.compile(dynamic=True)` in place")
    method = nothing_compiled("net = torch.compile(Net(), mode='default')\ny = net.encode(x)", 1)
    assert "`net.encode = torch.compile(net.encode, mode='default')`" in method.fix.text


def test_in_place_is_not_offered_for_a_module_of_torch() -> None:
    assert "in place" not in nothing_compiled("net = Net()\ntorch.compile(net)", 2, target_path=OF_TORCH).fix.text
