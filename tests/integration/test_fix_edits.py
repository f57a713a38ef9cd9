"""Each kind of edit, made on a real sick program: the finding is gone, the number and every comment are the same."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent

pytestmark = pytest.mark.thorough

# A program of benchmarks/advice_cases, the labels of its edits that must cure, and what they do.
CURED = {
    "print_shape_tuple": ("safe", "a print under a guard"),
    "logger_in_helper": ("safe setting", "a log message under a guard, and left out by a setting"),
    "warn_deprecated": ("safe", "a warning under a guard"),
    "padding_assert": ("safe", "torch._assert_async for an assert"),
    "gradient_norm_raise": ("review", "torch._assert_async for a raise"),
    "solver_early_return": ("review", "torch.where for two returns"),
    "huber_two_outcomes": ("review", "torch.where for two assignments"),
    "clip_ternary": ("review", "torch.where for a conditional expression"),
    "metrics_beside_loss": ("review setting", ".detach() for .item(), capture_scalar_outputs"),
    "crop_to_longest": ("review setting", "a size computed by the caller"),
    "visible_mean": ("review setting", "a masked mean at full size"),
    "corrupt_tokens": ("review setting", "a masked assignment by torch.where"),
    "edges_of_adjacency": ("setting", "capture_dynamic_output_shape_ops"),
    "backward_in_step": ("setting", "trace_autograd_ops"),
    "saliency_requires_grad": ("review", "a statement before the call"),
    "exploration_noise": ("review", "a random number drawn by the caller"),
    "epsilon_greedy_rand": ("review", "a random test made by the caller"),
    "noise_stream": ("review", "next() by the caller"),
    "zip_argument": ("review", "a list instead of a zip"),
    "statistics_lock": ("review", "a lock taken by the caller"),
    "gru_forecaster": ("setting", "allow_rnn"),
    "feature_digest": ("review", "a helper called by the caller"),
    "tone_curve_interp": ("review", "a call of NumPy by the caller, with a name for the argument"),
    "class_prototypes": ("review", "a method called by the caller, with names that are free there"),
    "static_batches": ("setting", "dynamic=False dropped"),
    "curriculum_crops": ("setting", "dynamic=False dropped from a dict of arguments"),
    "epoch_rest_static": ("setting", "maybe_mark_dynamic"),
    "transposed_features": ("review", ".contiguous() in the call"),
    "warmup_counter": ("setting review", "allow_unspec_int_on_nn_module, a counter in a tensor"),
    "global_phase": ("review", "a global as an argument"),
    "scale_by_exponent": ("review", "a float in a tensor, with torch.exp"),
    "growing_history": ("review", "a list stacked by the caller"),
    "beta_table": ("review", "a list of numbers in a tensor"),
    "sensor_keys": ("review", "the values of a dict stacked by the caller"),
    "meter_of_module": ("review", "a counter of a global object in a tensor"),
    "skip_bad_crops": ("review", "torch.where for a continue"),
    "reset_each_epoch": ("safe", "a reset of torch.compile removed"),
    "half_then_float": ("review", "one dtype in the call"),
    "compile_per_batch": ("review", "torch.compile before the loop"),
    "compile_same_function": ("review", "torch.compile once per file"),
    "train_step_in_one": ("review", "the model compiled in place of the training step, in a factory"),
    "closure_of_lbfgs": ("review", "the model compiled in place of a closure"),
    "unroll_steps": ("review", "the model compiled in place of an unrolled loop"),
    "rollout_stop": ("review", "the model compiled in place of a rollout, or a loop run to its end"),
    "power_iteration": ("review", "a loop with a break run to its end"),
    "wall_clock_forward": ("review", "a clock that compiled code does not read"),
    "frozen_head": ("review", "a helper called before the compiled call"),
    "flag_file": ("review", "the test of an if made by the caller"),
    "loss_per_epoch": ("review", "torch.compile of a lambda once per file"),
    "teacher_by_default": ("review", "a default that the caller passes"),
    "validation_bypass": ("review", "the compiled module called"),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The outcome of every program, from one process that forks for each run."""
    output = tmp_path_factory.mktemp("fix") / "outcomes.json"
    command = [sys.executable, "benchmarks/fix.py", "--only", ",".join(CURED), "--output", str(output)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    return {outcome["name"]: outcome for outcome in json.loads(output.read_text())}


@pytest.mark.parametrize("name", CURED)
def test_the_edit_cures(name: str, outcomes: dict[str, Any]) -> None:
    trials = outcomes[name]["trials"]
    cured = {trial["label"] for trial in trials if trial["cured"]}
    assert set(CURED[name][0].split()) <= cured, trials
