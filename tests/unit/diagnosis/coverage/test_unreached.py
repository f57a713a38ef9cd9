"""A torch.compile call in the source of the main script that the run did not reach."""

import textwrap
from typing import Any

import pytest

from torchtriage.diagnosis.coverage.unreached import compile_not_reached
from torchtriage.findings.model import Finding, Severity
from torchtriage.recording.events import CompileCall, CompileSite, Event
from torchtriage.recording.recording import Process, Recording, Source

APP = "/app/train.py"
FACTS: dict[str, Any] = {"your_roots": ["/app"], "end": 9.0}
UNDER_A_FLAG = """
def build(args):
    model = Net()
    if args.compile:
        model = torch.compile(model)
    return model
"""


def site(line: int, path: str = APP) -> CompileSite:
    return CompileSite(path=path, line=line, function="build")


def process(source: str, *events: Event, **facts: Any) -> Process:
    lines = tuple(textwrap.dedent(source).strip("\n").split("\n"))
    sources = {(APP, event.line): Source(first_line=1, lines=lines, qualname="build")
               for event in events if isinstance(event, CompileSite)}
    return Process(events=events, facts={**FACTS, **facts}, sources=sources)     # type: ignore[arg-type]


def found(*processes: Process, **facts: Any) -> list[Finding]:
    return list(compile_not_reached(Recording(processes=processes, facts=facts)))


def test_a_call_under_a_false_condition_names_the_condition() -> None:
    [finding] = found(process(UNDER_A_FLAG, site(4)))
    assert finding.title == "torch.compile at train.py:4 was not reached in this run: nothing was compiled"
    assert finding.severity is Severity.P4
    assert finding.cause == ("no call of torch.compile was observed; train.py:4, in build(), under `if args.compile`, "
                             "was not executed")
    assert finding.fix.text == "nothing to do if this run is meant to be eager; else run it with a true `args.compile`"


def test_a_call_in_an_else_names_the_condition_that_must_not_hold() -> None:
    [finding] = found(process("if args.eager:\n    run(model)\nelse:\n    model = torch.compile(model)", site(4)))
    assert "in the else of `if args.eager`," in finding.cause
    assert finding.fix.text.endswith("else run it with a false `args.eager`")


@pytest.mark.parametrize(("line", "words"), [
    ("model = torch.compile(net) if args.compile else net", "a true `args.compile`"),
    ("model = net if args.backend == 'none' else torch.compile(net)", "a false `args.backend == 'none'`"),
])
def test_a_call_in_a_conditional_expression_is_a_choice(line: str, words: str) -> None:
    [finding] = found(process(line, site(1)))
    assert (finding.severity, finding.fix.text.endswith(f"else run it with {words}")) == (Severity.P4, True)


def test_a_call_in_a_function_without_a_condition_names_the_function() -> None:
    source = "def build():\n    if ready:\n        return None\n    return torch.compile(Net())"
    [finding] = found(process(source, site(4)))
    assert finding.severity is Severity.P3
    assert "train.py:4, in build(), was not executed" in finding.cause
    assert finding.fix.text.endswith("else call build(), or have it come to train.py:4")


def test_the_guard_of_the_main_script_is_not_taken_for_the_condition() -> None:
    [finding] = found(process("if __name__ == '__main__':\n    model = torch.compile(model)", site(2)))
    assert "__name__" not in finding.cause + finding.fix.text


def test_several_calls_are_one_finding() -> None:
    [finding] = found(process(UNDER_A_FLAG, site(4), site(7), site(9)))
    assert finding.cause.endswith("; nor was line 7 and line 9")
    assert finding.evidence.num_events == 3


def test_a_call_of_torch_compile_in_any_process_is_reached() -> None:
    worker = process("", CompileCall(path=APP, line=4, function="build", target="Net.forward"))
    assert not found(process(UNDER_A_FLAG, site(4)), worker)


def test_a_program_that_failed_or_was_cut_off_is_not_reported() -> None:
    assert not found(process(UNDER_A_FLAG, site(4)), exit_status=1)
    assert not found(process(UNDER_A_FLAG, site(4), end=None))


def test_a_script_of_a_library_is_not_reported() -> None:
    assert not found(process(UNDER_A_FLAG, site(4, path="/venv/lib/python3.12/site-packages/tool/cli.py")))
