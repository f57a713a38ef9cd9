"""A recorded training is run again, and the operation that made its first NaN or Inf is named."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.programs import TORCHTRIAGE, environment, observe, write
from torchtriage.recording.origins.origin import ORIGIN_FILE, OriginState

pytestmark = pytest.mark.thorough

TRAINING = """
    import sys
    from pathlib import Path
    import torch
    torch.manual_seed(0)

    def divides(graph, _):
        return lambda *inputs: tuple(value / (float(late) < 4) for value in graph(*inputs))

    class Head(torch.nn.Module):
        def forward(self, x, late):
            safe = (x.abs() + 1) * (late < 4)
            if fault == "forward":
                return torch.log(safe).mean()
            if fault == "backward":
                logs = torch.log(safe)  # backward
                return torch.where(safe > 0, logs, 0.0).mean()
            return x.square().mean()

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = torch.nn.Linear(3, 4), Head()

        def forward(self, x, late):
            return self.head(self.body(x), late)

    fault, backend = sys.argv[1:]
    is_first = not Path("once").exists()
    Path("once").write_text("the program ran")
    net = Net()
    step = net if backend == "none" else torch.compile(net, backend=divides if backend == "divides" else backend)
    optimizer = torch.optim.Adam(net.parameters())
    for number in range(1, 7):
        x, late = torch.randn(8, 3), torch.tensor(float(number))
        if fault == "data" and number == 4 or fault == "once" and is_first and number == 4:
            x = x / torch.zeros(8, 3)  # data
        loss = step(x, late)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    Path("result").write_text("trained")
"""


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(TRAINING.lstrip("\n").splitlines(), start=1) if text in line)


def replayed(folder: Path, fault: str, backend: str = "none", *flags: str) -> tuple[dict[str, Any], str]:
    """The stored origin, and the report that `replay` prints."""
    observed = observe(folder, TRAINING, fault, backend)
    assert "next: torchtriage replay out.triage" in observed.stdout
    recording = observed.folder
    (folder / "result").write_text("of the recorded run")
    done = subprocess.run(
        [*TORCHTRIAGE, "replay", str(recording), *flags], capture_output=True, text=True, timeout=600, cwd=folder,
        env=environment())
    assert done.returncode == 0, done.stderr
    assert (folder / "result").read_text() == "of the recorded run"
    return json.loads((recording / ORIGIN_FILE).read_text()), done.stdout


@pytest.mark.parametrize(("fault", "backend", "marker"), [
    ("forward", "none", "torch.log(safe).mean()"), ("forward", "aot_eager", "torch.log(safe).mean()"),
    ("backward", "none", "# backward"), ("backward", "aot_eager", "# backward"), ("data", "none", "# data"),
])
def test_the_operation_is_named_with_its_line(fault: str, backend: str, marker: str, tmp_path: Path) -> None:
    origin, report = replayed(tmp_path, fault, backend)
    operation = origin["operation"]
    assert (origin["state"], origin["step"]) == (OriginState.OPERATION, 4)
    assert (operation["path"], operation["line"]) == (str(tmp_path / "train.py"), line_of(marker))
    assert operation["is_backward"] is (fault == "backward")
    assert operation["module_path"] == ("" if fault == "data" else "head")
    assert f"train.py:{line_of(marker)}" in report
    assert "A replay names the operation" in " ".join(report.split())


def test_compiled_code_is_named_if_the_operations_are_finite(tmp_path: Path) -> None:
    origin, report = replayed(tmp_path, "none", "divides")
    assert (origin["state"], origin["was_compiled"]) == (OriginState.COMPILED, True)
    assert "the compiled code makes it" in " ".join(report.split())


def test_a_fault_that_does_not_come_back_is_said(tmp_path: Path) -> None:
    origin, report = replayed(tmp_path, "once")
    assert (origin["state"], origin["operation"]) == (OriginState.CLEAN, None)
    assert "the program does not repeat itself" in " ".join(report.split())


def test_the_search_can_begin_at_the_first_step(tmp_path: Path) -> None:
    origin, _ = replayed(tmp_path, "forward", "none", "--from", "1")
    assert origin["operation"]["line"] == line_of("torch.log(safe).mean()")
    assert origin["num_operations"] > 100


@pytest.mark.parametrize("source", ["raise SystemExit('no data')", TRAINING.replace(
    "loss = step(x, late)", "loss = step(x, late) if number < 3 else sys.exit('no data')")])
def test_a_program_that_does_not_reach_the_step_is_not_called_clean(source: str, tmp_path: Path) -> None:
    recording = observe(tmp_path, TRAINING, "forward", "none").folder
    write(tmp_path, source)
    done = subprocess.run(
        [*TORCHTRIAGE, "replay", "--from", "1", str(recording)], capture_output=True, text=True, timeout=600,
        cwd=tmp_path, env=environment())
    assert done.returncode == 2
    assert "ended with status 1 before the step: no data" in done.stderr
    assert not (recording / ORIGIN_FILE).exists()


def test_a_weight_that_was_bad_before_the_watched_steps_is_named(tmp_path: Path) -> None:
    source = """
    import torch
    table = torch.nn.Embedding(4, 2)
    with torch.no_grad():
        table.weight[3] = float("inf")
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    for ids in (0, 1, 2, 3, 0):
        loss = table(torch.tensor([ids])).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    recording = observe(tmp_path, source).folder
    subprocess.run(
        [*TORCHTRIAGE, "replay", "-q", str(recording)], check=True, timeout=600, cwd=tmp_path, env=environment())
    origin = json.loads((recording / ORIGIN_FILE).read_text())
    assert (origin["state"], origin["input"]["num_inf"], origin["recorded_step"]) == (OriginState.INPUT, 2, 4)
    assert "weight" in origin["input"]["name"]
