"""A few of the seeded faults of the benchmark, and healthy programs, as a quick check of the learning rules."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

FAULTS = Path(__file__).parents[2] / "benchmarks" / "faults.py"
CHOSEN = (
    "mlp/gradients are cleared before the step", "cnn/it evaluates in training mode", "mixed/targets of another shape",
    "rnn/a sigmoid before the loss with logits", "gan/BatchNorm in both", "tuning/as it is",
)


def test_seeded_faults_are_the_first_finding_and_healthy_programs_have_none() -> None:
    done = subprocess.run(
        [sys.executable, str(FAULTS), "--fork", "--check", "--only", ",".join(CHOSEN)], capture_output=True, text=True,
        check=False, timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("  ok ") == len(CHOSEN)
