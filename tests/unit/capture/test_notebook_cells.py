"""Events in a notebook name the cell as the notebook numbers it."""

import linecache
import sys
from types import ModuleType, SimpleNamespace

import pytest

from torchtriage.capture.notebook_cells import NotebookCells
from torchtriage.diagnosis.places import owner_of
from torchtriage.findings.fingerprint import fingerprint
from torchtriage.findings.model import YOU
from torchtriage.recording.events import CompileCall, GraphBreak, Recompile, StackEntry, Tap
from torchtriage.recording.facts import ProgramFacts
from torchtriage.recording.sources import source_around
from torchtriage.text import project_path

FILE = "/tmp/ipykernel_812/2907374.py"


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The files of the cells that IPython knows, with their numbers."""
    known = {FILE: 3}

    def label(name: str) -> tuple[str, str] | None:
        return ("Cell", f"In[{known[name]}]") if name in known else None

    module = ModuleType("IPython")
    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=label))
    module.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", module)
    return known


@pytest.mark.usefixtures("numbers")
def test_places_stacks_and_targets_name_the_cell() -> None:
    cells = NotebookCells()
    library = StackEntry(path="/venv/lib/lib.py", line=4, function="g")
    event = GraphBreak(path=FILE, line=2, stack=(library, StackEntry(path=FILE, line=2, function="f")))
    named = cells.named(event)
    assert isinstance(named, GraphBreak)
    assert (named.path, named.line) == ("cell In[3]", 2)
    assert [entry.path for entry in named.stack] == ["/venv/lib/lib.py", "cell In[3]"]
    call = cells.named(CompileCall(path=FILE, line=1, target_path=FILE, target_line=1))
    assert isinstance(call, CompileCall)
    assert call.target_path == "cell In[3]"


@pytest.mark.usefixtures("numbers")
def test_the_line_behind_a_guard_names_the_cell() -> None:
    reason = "0/0: L['n'] == 1  # y = x * n  # tmp/ipykernel_812/2907374.py:3 in f"
    named = NotebookCells().named(Recompile(path=FILE, line=1, reasons=(reason,)))
    assert isinstance(named, Recompile)
    assert named.reasons == ("0/0: L['n'] == 1  # y = x * n  # cell In[3]:3 in f",)


def test_a_cell_that_is_run_again_keeps_its_number_in_one_observation(numbers: dict[str, int]) -> None:
    event = GraphBreak(path=FILE, line=2)
    cells = NotebookCells()
    assert cells.named(event).path == "cell In[3]"  # type: ignore[attr-defined]
    numbers[FILE] = 7
    assert cells.named(event).path == "cell In[3]"  # type: ignore[attr-defined]
    assert NotebookCells().named(event).path == "cell In[7]"  # type: ignore[attr-defined]


def test_a_file_without_a_number_and_other_events_stay_as_they_are(numbers: dict[str, int]) -> None:
    numbers.clear()
    for event in (GraphBreak(path=FILE, line=2), GraphBreak(path="/app/train.py", line=2), Tap(name="trace")):
        assert NotebookCells().named(event) is event


@pytest.mark.usefixtures("numbers")
def test_the_number_in_the_name_of_an_older_ipython_is_used() -> None:
    named = NotebookCells().named(GraphBreak(path="<ipython-input-5-3f2a>", line=1))
    assert named.path == "cell In[5]"  # type: ignore[attr-defined]


@pytest.mark.usefixtures("numbers")
def test_the_source_of_a_cell_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["def f(x):\n", "    print(x)\n"]
    monkeypatch.setitem(linecache.cache, FILE, (19, None, lines, FILE))
    NotebookCells().named(GraphBreak(path=FILE, line=2))
    source = source_around("cell In[3]", 2)
    assert source is not None
    assert (source.line(2), source.qualname) == ("    print(x)", "f")


def test_a_cell_is_yours_and_no_file_of_the_project() -> None:
    assert owner_of("cell In[3]", ProgramFacts(your_roots=("/app",))) == YOU
    assert project_path("cell In[3]", "/app") is None


def test_a_cell_that_is_run_again_has_the_same_fingerprint() -> None:
    first, again = (fingerprint("TT101", f"cell In[{number}]", "f", "print(x)", "") for number in (3, 12))
    assert first == again
