"""Hand-written PPO programs under `torchtriage run`, with no edit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchtriage.diagnosis.diagnose import diagnose
from torchtriage.recording.reader import read_recording
from torchtriage.recording.recording import Recording

pytest.importorskip("torch")
pytest.importorskip("gymnasium")
pytestmark = pytest.mark.thorough

PROGRAMS = Path(__file__).parents[2] / "benchmarks" / "ppo_cases"


def recorded(tmp_path: Path, name: str, *edits: tuple[str, str], num_updates: int = 8) -> Recording:
    source = (PROGRAMS / f"{name}.py").read_text()
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    (tmp_path / "program.py").write_text(source)
    subprocess.run(
        [sys.executable, "-m", "torchtriage", "run", "-q", "-o", "run.triage", "program.py", "0", str(num_updates)],
        cwd=tmp_path, check=True, timeout=600, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True,
    )
    return read_recording(tmp_path / "run.triage")


@pytest.mark.parametrize("name", ["vectorised", "plain", "recurrent"])
def test_a_healthy_program_gives_the_series_of_ppo_and_no_finding(name: str, tmp_path: Path) -> None:
    recording = recorded(tmp_path, name)
    (process,) = recording.processes
    assert max(process.series["ppo/first_ratio_deviation"].values) < 1e-4
    assert max(process.series["ppo/ratio_max"].values) > 1.0
    expected = {"ppo/kl", "ppo/clip_fraction", "ppo/value_loss", "ppo/explained_variance", "ppo/returns_std"}
    if name != "plain":     # a categorical policy, and gymnasium
        expected |= {"ppo/entropy", "rollout/ep_rew_mean", "rollout/ep_len_mean"}
    assert expected <= process.series.keys()
    assert [finding.title for finding in diagnose(recording)] == []


@pytest.mark.parametrize(("name", "edit", "code"), [
    ("vectorised", ("- ent_coef *", "+ ent_coef *"), "TT616"),
    ("vectorised", ("newvalue = newvalue.view(-1)", "pass"), "TT617"),
    ("plain", ("next_x, reward", "action = action.clamp(-0.3, 0.3)\n        next_x, reward"), "TT604"),
    ("recurrent", (
        "keep = (1.0 - done_now)", "keep = (1.0 - done_now * (not torch.is_grad_enabled()))"), "TT604"),
])
def test_a_fault_is_named_first(name: str, edit: tuple[str, str], code: str, tmp_path: Path) -> None:
    assert diagnose(recorded(tmp_path, name, edit))[0].code == code
