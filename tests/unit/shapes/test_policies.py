"""The policies that are worth a run, and the lines that select them."""

from pathlib import Path

import pytest

from tests.programs import write
from torchtriage.capture.policy.policy import ForcedPolicy
from torchtriage.recording.events import CompileCall
from torchtriage.shapes.functions import driver
from torchtriage.shapes.policies import (
    ShapePolicy,
    baseline_policy,
    by_simplicity,
    dynamic_setting,
    forced_policies,
    marked,
    mixed,
    quoted,
    raised_limit,
)


def call(
    dynamic: bool | None = None, path: str = "/nowhere/train.py", line: int = 3, disabled: bool = False,
) -> CompileCall:
    return CompileCall(path=path, line=line, target="f", dynamic=dynamic, disabled=disabled)


def names(calls: list[CompileCall], is_static: bool = False) -> list[str]:
    return [policy.name for policy in forced_policies(calls, is_static)[0]]


def test_the_policy_of_the_program_is_not_run_twice() -> None:
    assert names([call()]) == ["dynamic=False", "dynamic=True"]
    assert names([call(False), call(False)]) == ["dynamic=None", "dynamic=True"]
    assert names([call(True)]) == ["dynamic=False", "dynamic=None"]
    assert names([call(True), call()]) == ["dynamic=False", "dynamic=None", "dynamic=True"]
    assert names([call(True), call(disabled=True)]) == ["dynamic=False", "dynamic=None"]


def test_policies_with_the_same_graphs_are_left_out_if_nothing_varies() -> None:
    assert names([call()], is_static=True) == []
    assert names([call(True)], is_static=True) == ["dynamic=False"]
    assert names([call(False)], is_static=True) == []
    assert forced_policies([call()], True)[1] == {
        "dynamic=False": "no size varies, so dynamic=False and dynamic=None compile the same graphs",
        "dynamic=None": "the program already uses it", "dynamic=True": "no size varies, so it cannot save anything",
    }


@pytest.mark.parametrize(("num_graphs", "limit"), [(3, 64), (65, 128), (10_000, 1024)])
def test_a_raised_limit_has_room_for_every_graph(num_graphs: int, limit: int) -> None:
    policy = raised_limit(baseline_policy(), num_graphs)
    assert (policy.name, policy.forced) == (f"recompile_limit={limit}", ForcedPolicy(recompile_limit=limit))
    assert policy.setting == (f"torch._dynamo.config.recompile_limit = {limit}",)


def test_a_raised_limit_keeps_its_policy() -> None:
    static = ShapePolicy(name="dynamic=False", forced=ForcedPolicy(dynamic="false"), setting=("x",))
    policy = raised_limit(static, 3)
    assert policy.name == "dynamic=False, recompile_limit=64"
    assert policy.forced == ForcedPolicy(dynamic="false", recompile_limit=64)
    assert len(policy.setting) == 2


def test_the_users_own_marks_come_first() -> None:
    assert marked("b", "a").environment == {"TORCH_COMPILE_DYNAMIC_SOURCES": "a,b"}
    assert marked("b", "").setting == ("export TORCH_COMPILE_DYNAMIC_SOURCES='b'",)


def test_a_setting_can_be_pasted_into_a_shell() -> None:
    assert quoted(r"L\['x'\]$:0") == r"'L\['\''x'\''\]$:0'"


def test_each_call_gets_its_own_policy() -> None:
    policy = mixed({"/nowhere/train.py:3": "dynamic=True"}, [call(False), call(False, line=9)])
    assert policy.forced == ForcedPolicy(at={"/nowhere/train.py:3": "true"})
    assert policy.setting == ["/nowhere/train.py:3  dynamic=True for f"]


def test_the_simplest_comes_first() -> None:
    simplest_first = [
        "as written", "dynamic=False", "recompile_limit=64", "dynamic=False, recompile_limit=64", "mixed", "marked",
    ]
    assert by_simplicity(simplest_first[::-1]) == simplest_first


@pytest.mark.parametrize(("source", "line", "value", "expected"), [
    ("f = torch.compile(f, dynamic=False)", 1, "True", "torch.compile(f, dynamic=True)"),
    ("f = torch.compile(f, dynamic=False)", 1, "None", "torch.compile(f)"),
    ("f = torch.compile(\n    f,\n    mode='x',\n)", 2, "True", "torch.compile(f, mode='x', dynamic=True)"),
    ("@torch.compile\ndef f(x): pass", 1, "True", "@torch.compile(dynamic=True)"),
    ("@torch.compile(fullgraph=True)\ndef f(x): pass", 1, "True", "@torch.compile(fullgraph=True, dynamic=True)"),
    ("model.compile()", 1, "True", "model.compile(dynamic=True)"),
    ("a, b = torch.compile(f), torch.compile(g)", 1, "True", "dynamic=True for f"),
    ("y = library_call()", 1, "True", "dynamic=True for f"),
    ("this is no python", 1, "True", "dynamic=True for f"),
])
def test_the_users_own_call_is_shown_with_the_change(
    source: str, line: int, value: str, expected: str, tmp_path: Path
) -> None:
    path = write(tmp_path, source)
    written = None if value != "None" else False
    assert dynamic_setting([call(written, str(path), line)], value) == [f"{path}:{line}  {expected}"]


def test_only_calls_with_another_value_are_listed_and_many_are_counted() -> None:
    assert dynamic_setting([call(True)], "True") == []
    many = dynamic_setting([call(line=n) for n in range(10)], "True")
    assert len(many) == 7
    assert many[-1] == "and likewise in 4 more torch.compile calls"


def test_the_setting_of_one_function_does_not_name_the_driver() -> None:
    assert dynamic_setting([call(path=driver.__file__)], "True") == ["torch.compile(f, dynamic=True)"]
