"""A torch.compile call is recorded with its place, target and arguments."""

import functools
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from torchtriage.capture.taps.compile_calls import MAX_EACH, RepeatedCalls, code_of, compile_call
from torchtriage.recording.events import CompileCall

TORCH = "/venv/lib/python3.11/site-packages/torch"
FILE = __file__


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch whose `compile` hands its own frame on, two calls deep."""
    module = ModuleType("torch")
    module.__file__ = f"{TORCH}/__init__.py"
    monkeypatch.setitem(sys.modules, "torch", module)
    space = {"compile_call": compile_call, "sys": sys}
    source = "def optimize(model, arguments):\n    return compile_call(arguments, sys._getframe(), step=4)\n"
    exec(compile(source, f"{TORCH}/_dynamo/eval_frame.py", "exec"), space)
    source = "def torch_compile(model, **arguments):\n    return optimize(model, arguments)\n"
    exec(compile(source, module.__file__, "exec"), space)
    module.compile = space["torch_compile"]  # type: ignore[attr-defined]


def called(target: Any, **arguments: Any) -> CompileCall:
    return sys.modules["torch"].compile(target, **arguments)


def plain(x: int) -> int:
    return x


class Policy:
    def forward(self, x: int) -> int:
        return x

    def act(self, x: int) -> int:
        return x

    def _call_impl(self, x: int) -> int:
        return self.forward(x)


def decorated(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


def line_of(function: Any) -> int:
    return function.__code__.co_firstlineno


def test_the_call_is_placed_at_the_users_line() -> None:
    call = called(plain)
    assert (call.path, call.function, call.step) == (FILE, "called", 4)
    assert call.line == line_of(called) + 1


def test_a_program_in_a_folder_called_torch_is_not_torch() -> None:
    space: dict[str, Any] = {}
    exec(compile("def main(compile):\n    return compile(main)\n", "/home/me/torch/train.py", "exec"), space)
    call = space["main"](sys.modules["torch"].compile)
    assert (call.path, call.line) == ("/home/me/torch/train.py", 2)


@pytest.mark.parametrize(("target", "name", "function"), [
    (plain, "plain", plain),
    (Policy(), "Policy.forward", Policy.forward),
    (Policy().act, "Policy.act", Policy.act),
    (Policy().forward, "Policy.forward", Policy.forward),
    (Policy()._call_impl, "Policy.forward", Policy.forward),
])
def test_the_target_is_the_code_that_dynamo_will_see(target: Any, name: str, function: Any) -> None:
    call = called(target)
    assert (call.target, call.target_path, call.target_line) == (name, FILE, line_of(function))


def test_a_decorated_function_has_the_code_of_its_wrapper() -> None:
    call = called(decorated(plain))
    assert call.target == "plain"
    assert call.target_line != line_of(plain)


def test_a_local_function_has_a_readable_name() -> None:
    def inner() -> None: ...

    assert called(inner).target == "test_a_local_function_has_a_readable_name.inner"


@pytest.mark.parametrize("target", [None, 3, "text", print, functools.partial(plain, 1), object()])
def test_a_target_without_code_has_only_a_name(target: Any) -> None:
    call = called(target)
    assert (call.target_path, call.target_line) == ("", None)
    assert call.target
    assert code_of(target) is None


@pytest.mark.parametrize(("arguments", "fields"), [
    ({}, {"dynamic": None, "fullgraph": False, "disabled": False, "backend": "NoneType"}),
    ({"dynamic": False}, {"dynamic": False}),
    ({"dynamic": True, "nopython": True, "disable": True}, {"dynamic": True, "fullgraph": True, "disabled": True}),
    ({"backend": "inductor"}, {"backend": "inductor"}),
    ({"backend": plain}, {"backend": "plain"}),
    ({"backend": SimpleNamespace(compiler_name="aot_eager")}, {"backend": "aot_eager"}),
    ({"backend": SimpleNamespace()}, {"backend": "SimpleNamespace"}),
])
def test_the_arguments_are_recorded(arguments: dict[str, Any], fields: dict[str, Any]) -> None:
    call = called(plain, **arguments)
    assert {name: getattr(call, name) for name in fields} == fields


def test_the_events_of_calls_in_a_loop_are_bounded_and_count_every_call() -> None:
    repeated = RepeatedCalls()
    events = []
    for number in range(100_000):
        for path in ("a.py", "b.py"):
            event = repeated.add(CompileCall(path=path, line=3, target="f", step=number))
            events += [event] if event is not None else []
    events += repeated.rest()
    assert len(events) < 2 * (MAX_EACH + 20)
    assert sum(event.num_calls for event in events if event.path == "a.py") == 100_000
    assert events[-1].step == 99_999
    assert [event.step for event in events[:4]] == [0, 0, 1, 1]
    assert not list(repeated.rest())
