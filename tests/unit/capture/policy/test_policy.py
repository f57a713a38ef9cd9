"""A policy is read as it was meant or refused with a reason, and changes nothing but what it names."""

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchtriage.capture.policy import policy
from torchtriage.capture.policy.policy import ForcedPolicy, Forcing, parse_policy
from torchtriage.capture.torch_private import shapes as torch_private_shapes
from torchtriage.recording.events import CompileCall

CALL = CompileCall(path="/a/train.py", line=31, target="model")


@pytest.fixture(autouse=True)
def no_config(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits that these tests raise are not those of the tests after them."""
    monkeypatch.setattr(torch_private_shapes, "module", lambda name: None)


def forced(
    arguments: dict[str, Any], call: CompileCall = CALL, **asked: Any,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The arguments of one call after the policy, and the overrides that it lists."""
    forcing = Forcing(ForcedPolicy(**asked))
    forcing.apply(call, arguments)
    return arguments, forcing.facts()["overrides"]


def test_a_policy_keeps_what_it_was_received_as() -> None:
    data = {
        "name": "dynamic=True", "dynamic": "true", "at": {"/a.py:3": "none"}, "recompile_limit": 64, "backend": "eager",
        "sizes": True,
    }
    read = parse_policy(json.dumps(data))
    assert (read.dynamic, read.at, read.recompile_limit, read.backend, read.sizes) == (
        "true", {"/a.py:3": "none"}, 64, "eager", True,
    )
    assert Forcing(read).facts() == {"policy": data, "overrides": []}


@pytest.mark.parametrize(("text", "said"), [
    ("{", "it is not JSON"),
    ("[" * 100_000, "it is not JSON"),
    ("[1]", "it must be a JSON object, got [1]"),
    ('{"dynamic": true}', '"dynamic" must be one of "true", "false", "none", got true'),
    ('{"dynamic": []}', '"dynamic" must be one of'),
    ('{"at": ["a"]}', '"at" must map each "path:line" to one of'),
    ('{"at": {"a.py:1": "yes"}}', '"at" must map each "path:line" to one of'),
    ('{"recompile_limit": 0}', '"recompile_limit" must be an integer above 0, got 0'),
    ('{"recompile_limit": true}', '"recompile_limit" must be an integer above 0'),
    ('{"backend": ""}', '"backend" must be a name'),
    ('{"sizes": 1}', '"sizes" must be true or false, got 1'),
    ('{"received": {}}', '"received" is not a field of a policy'),
])
def test_a_malformed_policy_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)) as error:
        parse_policy(text)
    assert "\n" not in str(error.value)


SCALARS = st.none() | st.booleans() | st.integers() | st.text()


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_any_json_is_either_a_policy_or_a_value_error(data: Any) -> None:
    try:
        assert isinstance(parse_policy(json.dumps(data)), ForcedPolicy)
    except ValueError:
        pass


@pytest.mark.parametrize(("written", "wanted", "becomes"), [
    (True, "false", False), (False, "true", True), (None, "true", True), (True, "none", None), (False, "none", None),
])
def test_dynamic_is_forced_and_the_call_listed(written: bool | None, wanted: str, becomes: bool | None) -> None:
    arguments, overrides = forced({"dynamic": written}, dynamic=wanted)
    assert arguments["dynamic"] is becomes
    word = {True: "true", False: "false", None: "none"}[written]
    assert overrides == [{"path": "/a/train.py", "line": 31, "target": "model", "written": word, "forced": wanted}]


@pytest.mark.parametrize(("written", "wanted"), [(True, "true"), (False, "false"), (None, "none")])
def test_a_call_that_is_written_so_already_is_not_listed(written: bool | None, wanted: str) -> None:
    assert forced({"dynamic": written}, dynamic=wanted) == ({"dynamic": written}, [])


def test_a_call_without_the_argument_counts_as_none() -> None:
    assert forced({}, dynamic="none") == ({}, [])
    assert forced({}, dynamic="true")[0] == {"dynamic": True}


def test_what_is_asked_for_at_a_place_goes_before_the_rest() -> None:
    at = {"/a/train.py:31": "none"}
    assert forced({"dynamic": False}, dynamic="true", at=at)[0] == {"dynamic": None}
    assert forced(
        {"dynamic": False}, CompileCall(path="/a/train.py", line=32), dynamic="true", at=at,
    )[0] == {"dynamic": True}
    assert forced({"dynamic": False}, CompileCall(path="/a/train.py", line=32), at=at) == ({"dynamic": False}, [])


@pytest.mark.parametrize("name", ["dynamic_shapes", "shapes_spec"])
def test_a_shapes_spec_gives_way_since_torch_refuses_both(name: str) -> None:
    arguments, (override,) = forced({"dynamic": None, name: object()}, dynamic="true")
    assert arguments == {"dynamic": True, name: None}
    assert override["written"] == name


def test_the_backend_is_replaced_whatever_it_is() -> None:
    assert forced({"backend": print}, backend="eager")[0]["backend"] == "eager"


def test_a_disabled_call_is_left_alone() -> None:
    arguments = {"dynamic": False, "backend": "inductor"}
    assert forced(dict(arguments), CompileCall(disabled=True), dynamic="true", backend="eager") == (arguments, [])


def test_torchs_own_backend_is_told_and_others_are_not() -> None:
    class Inductor:
        dynamic: bool | None = False

    class Mine(Inductor):
        pass

    Inductor.__module__ = "torch"
    theirs, mine = Inductor(), Mine()
    forced({"dynamic": False, "backend": theirs}, dynamic="true")
    forced({"dynamic": False, "backend": mine}, dynamic="true")
    assert (theirs.dynamic, mine.dynamic) == (True, False)


def test_a_call_made_in_a_loop_is_listed_once_and_the_list_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "MAX_OVERRIDES", 3)
    forcing = Forcing(ForcedPolicy(dynamic="true"))
    for line in (1, 1, 1, 2, 3, 4, 5):
        forcing.apply(CompileCall(path="/a.py", line=line, target="f"), {})
    assert [row["line"] for row in forcing.facts()["overrides"]] == [1, 2, 3]


@pytest.mark.parametrize(("name", "accumulated"), [
    ("recompile_limit", "accumulated_recompile_limit"), ("cache_size_limit", "accumulated_cache_size_limit"),
])
def test_the_limits_are_raised_under_either_name_and_never_lowered(
    name: str, accumulated: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = SimpleNamespace(**{name: 8, accumulated: 256})
    monkeypatch.setattr(torch_private_shapes, "module", {"torch._dynamo.config": config}.get)
    Forcing(ForcedPolicy(recompile_limit=64)).raise_limit()
    assert vars(config) == {name: 64, accumulated: 256}
    Forcing(ForcedPolicy(recompile_limit=1000)).raise_limit()
    assert vars(config) == {name: 1000, accumulated: 1000}
    Forcing(ForcedPolicy(recompile_limit=64)).raise_limit()
    Forcing(ForcedPolicy()).raise_limit()
    assert vars(config) == {name: 1000, accumulated: 1000}


def test_the_limit_of_one_call_is_raised_too() -> None:
    assert forced({"recompile_limit": 2}, recompile_limit=64)[0] == {"recompile_limit": 64}
    assert forced({"recompile_limit": 100}, recompile_limit=64)[0] == {"recompile_limit": 100}
    assert forced({"recompile_limit": None}, recompile_limit=64)[0] == {"recompile_limit": None}
