"""Miscompiled programs: the operation that the search for the first wrong one names."""

import sys
from pathlib import Path

import pytest

from tests.programs import plain, write
from torchtriage.findings.proof.location import DifferenceKind, DifferencePlace, LocatedBy, LocationState
from torchtriage.proof.budget import TimeLimit
from torchtriage.proof.locate.locate import Locator
from torchtriage.proof.sides import Side

pytestmark = pytest.mark.thorough

CASES = Path(__file__).parents[2] / "benchmarks" / "locate_cases"

TRAINING = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
for step in range(4):
    x = torch.randn(8, 4)
    error = (model(x) - x.sum(1, keepdim=True)).square()
    loss = error.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def locator(work: Path, step: int | None) -> Locator:
    return Locator(work=work, limit=TimeLimit(seconds=300), say=lambda _: None, step=step)


def located(work: Path, *words: str, step: int | None = 1) -> DifferencePlace:
    """Compiled against eager for one program."""
    side = Side(label=words[0], command=(sys.executable, str(CASES / words[0]), *words[1:]), cwd=CASES)
    return locator(work, step).compiled(side)


def marked_line(fault: str) -> int:
    lines = (CASES / "program.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, start=1) if line.endswith(f"# {fault}"))


@pytest.mark.parametrize(("fault", "is_gradient", "is_write"), [
    ("off-by-one slice", False, False), ("missed in-place write", False, True), ("sign", True, False),
])
def test_a_seeded_fault_is_located(fault: str, is_gradient: bool, is_write: bool, tmp_path: Path) -> None:
    """In Dynamo's graph, in what a graph writes to its inputs, and in AOTAutograd's backward graph."""
    found = located(tmp_path, "program.py", fault)
    assert found.operation is not None, found.reason
    assert (found.operation.path, found.operation.line) == ("program.py", marked_line(fault))
    assert (found.is_gradient, found.is_written_input, found.inputs_equal) == (is_gradient, is_write, True)
    assert (found.aot_eager_differs, found.is_wrong_alone, found.step) == (False, True, 1)


def test_a_healthy_program_agrees(tmp_path: Path) -> None:
    found = located(tmp_path, "program.py", "aot_eager", step=2)
    assert (found.state, found.operation, found.num_graphs, found.notes) == (LocationState.AGREES, None, 1, ())
    assert found.num_compared == 2


def test_the_write_that_torch_drops_before_the_backend_is_located_in_the_trace(tmp_path: Path) -> None:
    found = located(tmp_path, "zero_dim_write.py", step=None)
    assert found.operation is not None, found.reason
    assert (found.by, found.change) == (LocatedBy.TRACED, DifferenceKind.MISSING)
    assert (found.operation.name, found.operation.function) == ("aten.add_.Tensor", "update")


def test_torch_traces_that_write_and_then_drops_it(tmp_path: Path) -> None:
    source = """
    import torch
    from torch._inductor.compile_fx import compile_fx

    def backend(graph, inputs):
        print(*(node.target for node in graph.graph.nodes if node.op == "call_method"), "end")
        return compile_fx(graph, inputs)

    @torch.compile(backend=backend)
    def update(total, x):
        total.add_(1.0)
        return x * 2

    update(torch.zeros((), dtype=torch.float64), torch.ones(4))
    """
    done = plain(tmp_path, write(tmp_path, source))
    assert done.stdout.split() == ["add_", "end", "end"], done.stderr


def test_two_programs_are_compared_from_the_weights_of_the_first(tmp_path: Path) -> None:
    """AFTER also begins elsewhere, which hides nothing: the step starts with the weights of BEFORE."""
    changed = TRAINING.replace("lr=0.1", "lr=0.2").replace("error.mean()", "error.sum()")
    sides = []
    for name, source in (("before", TRAINING), ("after", changed)):
        folder = tmp_path / name
        folder.mkdir()
        script = write(folder, source)
        sides.append(Side(label=name, command=(sys.executable, str(script)), cwd=folder))
    found = locator(tmp_path, 3).programs(*sides)
    assert (found.by, found.change) == (LocatedBy.PROGRAMS, DifferenceKind.REPLACED)
    assert found.operation is not None
    assert found.other is not None
    assert (found.operation.name, found.operation.line, found.other.name) == ("aten.mean", 8, "aten.sum")
    assert found.num_compared > 5
