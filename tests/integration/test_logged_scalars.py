"""What a program passes to its own loggers, under `torchtriage run`; the program itself is unchanged."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchtriage.diagnosis.report import build_report
from torchtriage.recording.reader import read_recording
from torchtriage.reporters.summary import tap_text

pytest.importorskip("torch")
pytest.importorskip("tensorboard")
pytest.importorskip("stable_baselines3")
pytestmark = pytest.mark.thorough

PROGRAM = '''\
import torch
from stable_baselines3.common.logger import Logger
from torch._dynamo.utils import counters
from torch.utils.tensorboard import SummaryWriter

torch.manual_seed(0)
writer, logger, model = SummaryWriter("logs"), Logger(None, []), torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

@torch.compile(backend="eager", dynamic=True)
def loss_of(x):
    loss = model(x).pow(2).mean()
    writer.add_scalar("losses/approx_kl", 0.01, 1)
    logger.record("train/clip_fraction", 0.1)
    return 2 * loss

for step in range(8):
    loss_of(torch.randn(4, 4)).backward()
    optimizer.step()
    optimizer.zero_grad()
    writer.add_scalar("losses/approx_kl", 0.01 * step, step)
    logger.record("train/clip_fraction", 0.1 * step)
    logger.record("train/mine", step)
print(sorted(counters["graph_break"].items()), dict(counters["stats"]), logger.name_to_value, model.weight.tolist())
'''


def test_logged_scalars_are_series_and_breaks_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    outputs = []
    for words in (["program.py"], ["-m", "torchtriage", "run", "-q", "-o", "run.triage", "program.py"]):
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, check=True, timeout=600, env=environment, capture_output=True,
            text=True,
        )
        outputs.append(done.stdout)
    assert "SummaryWriter.add_scalar" in outputs[0]
    assert outputs[0].strip() in outputs[1]
    recording = read_recording(tmp_path / "run.triage")
    (process,) = recording.processes
    assert round(max(process.series["ppo/kl"].values), 4) == 0.07
    assert round(max(process.series["ppo/clip_fraction"].values), 4) == 0.7
    assert list(process.series["train/learning_rate"].steps) == [1, 8]
    missing = [tap_text(tap) for tap in build_report(recording).not_seen]
    logged = "clip fraction, kl (Stable-Baselines3 Logger, SummaryWriter)"
    assert f"PPO updates, except what the program logs: {logged}" in missing
