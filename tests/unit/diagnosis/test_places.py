"""Whose line it is, and which line of the user's is shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.samples import a_process
from torchtriage.diagnosis.places import code_at, locate, owner_of, qualified_name, source_lines
from torchtriage.findings.model import Location, Owner, OwnerKind
from torchtriage.recording.events import GraphBreak, StackEntry
from torchtriage.recording.facts import ProgramFacts
from torchtriage.recording.recording import Process, Source
from torchtriage.text import resume_of

SITE = "/venv/lib/python3.11/site-packages"
FACTS = {
    "your_roots": ["/home/me/app", "/src/editable"], "torch_dir": "/src/pytorch/torch",
    "libraries": {"timm": ["timm", "1.0.1"], "PIL": ["pillow", "11.0"]},
}
PROGRAM = a_process(**FACTS).program
YOU, TORCH, PYTHON, UNKNOWN = (
    Owner(kind=kind) for kind in (OwnerKind.YOU, OwnerKind.TORCH, OwnerKind.PYTHON, OwnerKind.UNKNOWN)
)


def library(name: str, version: str = "") -> Owner:
    return Owner(kind=OwnerKind.LIBRARY, name=name, version=version)


@pytest.mark.parametrize(("path", "owner"), [
    ("/home/me/app/model.py", YOU),
    ("/home/me/app/sub/model.py", YOU),
    ("/src/editable/pkg/net.py", YOU),
    ("/home/me/application/model.py", library("application")),
    ("/opt/shared/net.py", library("shared")),
    (f"{SITE}/timm/layers/drop.py", library("timm", "1.0.1")),
    (f"{SITE}/PIL/Image.py", library("pillow", "11.0")),
    (f"{SITE}/unheard_of/x.py", library("unheard_of")),
    (f"{SITE}/six.py", library("six")),
    ("/usr/lib/python3/dist-packages/timm/x.py", library("timm", "1.0.1")),
    ("/home/me/app/.venv/lib/python3.11/site-packages/timm/x.py", library("timm", "1.0.1")),
    (f"{SITE}/torch/nn/modules/module.py", TORCH),
    (f"{SITE}/torchvision/models/resnet.py", library("torchvision")),
    ("/src/pytorch/torch/_dynamo/eval_frame.py", TORCH),
    ("/usr/lib/python3.11/contextlib.py", PYTHON),
    ("<frozen importlib._bootstrap>", PYTHON),
    ("<string>", YOU),
    ("<ipython-input-1>", YOU),
    ("/tmp/ipykernel_77/123.py", YOU),
    (r"C:\venv\Lib\site-packages\timm\x.py", library("timm", "1.0.1")),
    ("unknown", UNKNOWN),
    ("", UNKNOWN),
])
def test_the_owner_of_a_file_depends_on_its_path(path: str, owner: Owner) -> None:
    assert owner_of(path, PROGRAM) == owner


def test_files_that_are_not_installed_are_the_users_if_roots_are_unknown() -> None:
    assert owner_of("/anywhere/model.py", ProgramFacts()) == YOU
    assert owner_of(f"{SITE}/timm/x.py", ProgramFacts()) == library("timm")


def test_windows_roots_contain_windows_files() -> None:
    assert owner_of(r"C:\Users\me\app\model.py", ProgramFacts(your_roots=("C:\\Users\\me\\app",))) == YOU


@given(st.text(st.characters()))
def test_every_path_has_an_owner(path: str) -> None:
    assert isinstance(owner_of(path, PROGRAM), Owner)


@pytest.mark.parametrize(("function", "expected"), [
    ("torch_dynamo_resume_in_f_at_12", ("f", 12)),
    ("torch_dynamo_resume_in_torch_dynamo_resume_in_f_at_3_at_12", ("torch_dynamo_resume_in_f_at_3", 12)),
    ("torch_dynamo_resume_in_at_at_5_at_12", ("at_at_5", 12)),
    ("torch_dynamo_resume_in_<lambda>_at_4", ("<lambda>", 4)),
    ("forward", None),
    ("torch_dynamo_resume_in_f_at_x", None),
    ("my_torch_dynamo_resume_in_f_at_12", None),
    ("", None),
])
def test_a_resume_function_is_traced_back_to_its_origin(function: str, expected: tuple[str, int] | None) -> None:
    assert resume_of(function) == expected


def entry(path: str, line: int, function: str = "f", code: str = "") -> StackEntry:
    return StackEntry(path=path, line=line, function=function, code=code)


def at(*stack: StackEntry) -> GraphBreak:
    return GraphBreak(path=stack[-1].path, line=stack[-1].line, function=stack[-1].function, stack=stack)


USER, LIBRARY = entry("/home/me/app/train.py", 20, "main", "net(x)"), entry(f"{SITE}/timm/drop.py", 7, "drop")
IN_TORCH, IN_PYTHON = (
    entry(f"{SITE}/torch/nn/modules/module.py", 9, "_call_impl"), entry("/usr/lib/python3.11/copy.py", 3, "deepcopy"),
)


@pytest.mark.parametrize(("stack", "shown", "owner", "raised_at"), [
    ((USER,), USER, YOU, None),
    ((USER, LIBRARY), USER, library("timm", "1.0.1"), LIBRARY),
    ((USER, IN_TORCH), USER, YOU, IN_TORCH),
    ((USER, IN_PYTHON), USER, YOU, IN_PYTHON),
    ((USER, LIBRARY, IN_TORCH), USER, library("timm", "1.0.1"), IN_TORCH),
    ((LIBRARY, USER), USER, YOU, None),
    ((entry("/home/me/app/train.py", 1), USER, LIBRARY), USER, library("timm", "1.0.1"), LIBRARY),
    ((LIBRARY,), LIBRARY, library("timm", "1.0.1"), None),
    ((IN_TORCH,), IN_TORCH, TORCH, None),
])
def test_the_nearest_line_of_the_user_is_shown(
    stack: tuple[StackEntry, ...], shown: StackEntry, owner: Owner, raised_at: StackEntry | None,
) -> None:
    place = locate(a_process(**FACTS), at(*stack))
    assert (place.location.path, place.location.line, place.owner) == (shown.path, shown.line, owner)
    expected = raised_at and Location(path=raised_at.path, line=raised_at.line, function=raised_at.function)
    assert place.raised_at == expected


def test_an_event_without_a_stack_is_located_by_its_path_and_line() -> None:
    place = locate(a_process(**FACTS), GraphBreak(path="/home/me/app/a.py", line=3, function="f"))
    assert (place.location, place.raised_at, place.owner) == (
        Location(path="/home/me/app/a.py", line=3, function="f"), None, YOU,
    )


def test_an_event_without_a_place_has_an_unknown_location_and_owner() -> None:
    place = locate(a_process(**FACTS), GraphBreak(type="print"))
    assert (str(place.location), place.location.line, place.owner) == ("unknown", None, UNKNOWN)


def test_a_stack_that_ends_above_the_event_is_extended_with_it() -> None:
    place = locate(a_process(**FACTS), GraphBreak(path=LIBRARY.path, line=LIBRARY.line, function="drop", stack=(USER,)))
    assert place.location.line == USER.line
    assert place.raised_at is not None


SOURCES = {("/home/me/app/train.py", 20): Source(
    first_line=19, lines=("def f():", "    net(x)  # slow", ""), qualname="Policy.main",
)}


def test_a_function_has_its_qualified_name_if_its_source_is_recorded() -> None:
    process = a_process(sources=SOURCES, **FACTS)
    assert qualified_name(process, USER) == "Policy.main"
    assert qualified_name(process, entry(USER.path, 20, "other")) == "other"
    assert qualified_name(process, entry(USER.path, 21, "main")) == "main"
    assert qualified_name(process, entry(USER.path, 20, "torch_dynamo_resume_in_main_at_18")) == "Policy.main"
    assert locate(process, at(USER)).location.function == "Policy.main"


def test_the_code_of_a_line_is_its_recorded_source_or_that_of_the_stack() -> None:
    assert code_at(a_process(sources=SOURCES), USER) == "net(x)"
    assert code_at(a_process(), entry("/a.py", 3, code="  print(x)  # why")) == "print(x)"
    assert code_at(a_process(), entry("/a.py", 3)) == ""


def test_code_that_a_dataclass_generated_is_located_at_its_caller() -> None:
    stack = (
        StackEntry(path="/home/me/app/train.py", line=9, function="<module>"),
        StackEntry(path=f"{SITE}/timm/out.py", line=3, function="forward"),
    )
    place = locate(a_process(**FACTS), GraphBreak(path="<string>", line=2, function="__init__", stack=stack))
    assert (str(place.location), str(place.owner)) == ("/home/me/app/train.py:9", "timm 1.0.1")
    assert locate(a_process(**FACTS), GraphBreak(path="<string>", line=2, function="step", stack=stack)).owner == YOU


def test_the_source_of_a_line_may_have_been_recorded_for_another_place() -> None:
    recorded = {("/app/a.py", 3): Source(first_line=1, lines=("a = 1", "b = 2", "c = 3"))}
    process = Process(events=(), sources=recorded)
    shown = source_lines(process, Location(path="/app/a.py", line=2))
    assert [line.text for line in shown if line.is_place] == ["b = 2"]
    assert source_lines(process, Location(path="/app/a.py", line=9)) == ()
    assert source_lines(process, Location(path="/app/b.py", line=2)) == ()
