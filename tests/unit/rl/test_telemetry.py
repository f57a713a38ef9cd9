"""An update of a PPO training becomes series and events, with details where a rule requires them."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from torchtriage.rl.config import TrainConfig
from torchtriage.rl.envs.spaces import Spaces
from torchtriage.rl.policy.policy import Policy
from torchtriage.rl.ppo.rollout import Minibatch
from torchtriage.rl.telemetry import NORMAL_INTERVAL, WORST, UpdateOutcome, Watch
from torchtriage.telemetry import DualGradientStats, TelemetryLevel
from torchtriage.telemetry.sampling import pace

SPACES = Spaces(observation_size=3, num_actions=2)
METRICS = {
    "ppo/loss": 0.5,
    "ppo/policy_loss": -0.1,
    "ppo/value_loss": 0.2,
    "ppo/entropy_nats": 0.6,
    "ppo/entropy": 0.87,
    "ppo/kl": 0.01,
    "ppo/clip_fraction": 0.1,
    "ppo/ratio_max": 1.2,
    "ppo/ratio_min": 0.8,
    "ppo/first_ratio_deviation": 0.0,
    "ppo/grad_norm": 0.3,
    "ppo/rows": 8.0,
    "ppo/minibatches": 4.0,
    "ppo/minibatches_skipped": 0.0,
    "ppo/explained_variance": 0.4,
    "ppo/updates_skipped_total": 0.0,
}


@pytest.fixture(autouse=True)
def unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates take no time here, so any sample exceeds the budget: their number would depend on the machine."""
    monkeypatch.setattr(pace, "GRACE_SECONDS", math.inf)


@pytest.fixture
def jsonl(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


def watch(jsonl: Path, *, lstm: bool = False, level: str = "NORMAL", **fields: Any) -> Watch:
    torch.manual_seed(0)
    policy = Policy(SPACES, hidden=(4,), lstm_size=5 if lstm else 0)
    for parameter in policy.parameters():
        parameter.grad = torch.ones_like(parameter) * 0.01
    return Watch(policy, TrainConfig(jsonl=str(jsonl), telemetry_level=level, **fields))


def outcome(watch: Watch, number: int = 1, metrics: dict[str, float] | None = None, **fields: Any) -> UpdateOutcome:
    action_TB = torch.tensor([[0, 1]])
    observation_TBO, keep_TB = torch.ones(1, 2, 3), torch.ones(1, 2)
    state_BS = watch.policy.initial_state(2)
    log_prob_TB, _, value_TB = watch.policy.evaluate(observation_TBO, state_BS, keep_TB, action_TB)
    last = Minibatch(
        observation_TBO, action_TB, log_prob_TB, value_TB, value_TB, value_TB, keep_TB, torch.ones(1, 2), state_BS
    )
    return UpdateOutcome(
        **{
            "number": number,
            "progress": 0.5,
            "metrics": METRICS | (metrics or {}),
            "rollout": {"rollout/ep_rew_mean": 20.0, "time/fps": 900.0},
            "state_NS": torch.full((4, watch.policy.state_size), 0.5),
            "last": last,
            "seconds": 0.03,
            "num_episodes": 7,
            "is_skipped": False,
            **fields,
        }
    )


def lines(jsonl: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in jsonl.read_text().splitlines()]


def events(jsonl: Path, name: str) -> list[dict[str, Any]]:
    return [row["values"] for row in lines(jsonl) if row.get("event") == name]


def series(jsonl: Path) -> list[dict[str, Any]]:
    return [row for row in lines(jsonl) if "event" not in row]


def test_an_update_becomes_the_series_that_the_rules_read(jsonl: Path) -> None:
    watched = watch(jsonl, lstm=True)
    watched.before_last_minibatch()
    with torch.no_grad():
        watched.policy.action_head.weight.mul_(1.5)
    watched.after_update(outcome(watched))
    watched.close()
    (row,) = series(jsonl)
    assert row["ppo/kl"] == 0.01
    assert row["loss"] == 0.5
    assert row["rollout/ep_rew_mean"] == 20.0
    assert row["lstm/h_rms"] == pytest.approx(0.5)
    assert row["update_ratio/actor"] > 0.0 == row["update_ratio/critic"]
    assert {
        "grad_norm",
        "grad_norm/group:actor",
        "grad_norm/group:critic",
        "grad_health",
        "grad_ratio/actor:critic",
        "grad_norm_after_clip",
        "lstm/c_rms_max",
        "lstm/has_nan",
        "ppo/entropy",
    } <= row.keys()
    assert not {"ppo/rows", "ppo/minibatches"} & row.keys()


def test_undefined_explained_variance_is_left_out(jsonl: Path) -> None:
    watched = watch(jsonl)
    watched.after_update(outcome(watched, metrics={"ppo/explained_variance": math.nan}))
    watched.close()
    assert "ppo/explained_variance" not in series(jsonl)[0]
    assert not [row for row in lines(jsonl) if "code" in row]


def test_update_event_uses_the_names_of_stable_baselines3(jsonl: Path) -> None:
    watched = watch(jsonl)
    watched.after_update(outcome(watched))
    watched.close()
    (update,) = events(jsonl, "ppo_update_completed")
    assert update["metrics"] == {
        "rollout/ep_rew_mean": 20.0,
        "time/fps": 900.0,
        "train/approx_kl": 0.01,
        "train/clip_fraction": 0.1,
        "train/entropy_loss": -0.6,
        "train/explained_variance": 0.4,
        "train/loss": 0.5,
        "train/policy_gradient_loss": -0.1,
        "train/value_loss": 0.2,
        "train/grad_norm_drift": 0.0,
        "train/grad_health_drift": 0.0,
    }
    assert update["gradients"]["gradient_norm"] > 0


def test_a_batch_reports_its_return_and_the_progress_of_the_training(jsonl: Path) -> None:
    watched = watch(jsonl)
    watched.after_update(outcome(watched, number=3, progress=0.25))
    watched.close()
    (batch,) = events(jsonl, "batch_completed")
    assert (batch["batch"], batch["accuracy"], batch["progress"], batch["episodes"]) == (3, 20.0, 0.25, 7)


@pytest.mark.parametrize(("limit", "recorded"), [(1e-3, 1e-3), (1e3, "the norm itself"), (0.0, None)])
def test_the_clipped_norm_is_recorded_where_gradients_are_clipped(
    jsonl: Path, limit: float, recorded: float | str | None
) -> None:
    watched = watch(jsonl, max_grad_norm=limit)
    watched.after_update(outcome(watched))
    watched.close()
    (row,) = series(jsonl)
    norm = row["grad_norm"]
    assert norm > 1e-3
    expected = norm if recorded == "the norm itself" else recorded
    assert row.get("grad_norm_after_clip") == (expected if expected is None else pytest.approx(expected, rel=1e-6))


def test_drop_and_trend_of_the_return_are_sent(jsonl: Path) -> None:
    watched = watch(jsonl, level="DEBUG")
    for number in range(1, 21):
        mean = 100.0 if number <= 10 else 20.0
        watched.after_update(outcome(watched, number, rollout={"rollout/ep_rew_mean": mean}))
    watched.close()
    assert events(jsonl, "performance_degradation")[0]["drop"] == pytest.approx(0.8)
    assert [event["trend"] for event in events(jsonl, "trend")] == ["degradation"]


@pytest.mark.parametrize(
    ("name", "value"), [("ppo/kl", 0.9), ("ppo/ratio_max", 40.0), ("ppo/ratio_min", 0.01), ("ppo/kl", math.nan)]
)
def test_spike_between_two_samples_is_not_missed(jsonl: Path, name: str, value: float) -> None:
    watched = watch(jsonl)
    number = 1
    while watched.monitor.is_looking:  # all of the first updates are sampled
        watched.after_update(outcome(watched, number))
        number += 1
    watched.after_update(outcome(watched, number, metrics={name: value}))
    for later in range(1, NORMAL_INTERVAL):
        watched.after_update(outcome(watched, number + later))
    watched.close()
    # Among the last rows: a rule that fired may have caused further samples after it.
    assert (value if not math.isnan(value) else "nan") in [row[name] for row in series(jsonl)[-NORMAL_INTERVAL:]]
    assert name in WORST


def test_a_rule_that_fires_is_an_anomaly_and_escalates(jsonl: Path) -> None:
    watched = watch(jsonl)
    watched.after_update(outcome(watched, metrics={"ppo/kl": 0.9}))
    watched.monitor.writer.flush()
    assert watched.level.effective_level is TelemetryLevel.DEBUG
    watched.after_update(outcome(watched, 2))
    watched.close()
    assert "TT608" in [row.get("code") for row in lines(jsonl)]
    assert events(jsonl, "ppo_update_completed")[1]["layers"]["layer_scores"]  # every layer while escalated


def test_samples_with_bad_ratios_are_listed_while_escalated(jsonl: Path) -> None:
    watched = watch(jsonl, level="DEBUG")
    one = outcome(watched, metrics={"ppo/ratio_max": 60.0})
    one.last.log_prob_TB[0, 1] -= math.log(50.0)
    watched.after_update(one)
    watched.close()
    (values,) = [event["values"] for event in events(jsonl, "analytics_snapshot") if event["name"] == "ratio_explosion"]
    assert (values["num_bad"], values["indices"], values["actions"]) == (1, [1], [1])
    assert values["values"][0] == pytest.approx(50.0, rel=1e-3)


def test_skipped_update_reports_which_gradients_were_not_finite(jsonl: Path) -> None:
    watched = watch(jsonl)
    watched.policy.value_head.bias.grad.fill_(math.nan)
    watched.after_update(outcome(watched, metrics={"ppo/loss": math.nan}, is_skipped=True))
    watched.close()
    (values,) = [event["values"] for event in events(jsonl, "analytics_snapshot") if event["name"] == "update_skipped"]
    assert "value_head.bias" in values["nan_gradients"]
    assert events(jsonl, "anomaly_detected")[0]["code"] == "TT402"


def test_updates_after_a_skipped_one_are_sampled(jsonl: Path) -> None:
    watched = watch(jsonl)
    number = 1
    while watched.monitor.is_looking:
        watched.after_update(outcome(watched, number))
        number += 1
    watched.after_update(outcome(watched, number, metrics={"ppo/updates_skipped_total": 1.0}, is_skipped=True))
    watched.after_update(outcome(watched, number + 1, metrics={"ppo/updates_skipped_total": 2.0}, is_skipped=True))
    watched.close()
    assert [row["step"] for row in series(jsonl)][-2:] == [number - 1, number + 1]
    assert "TT613" in [row.get("code") for row in lines(jsonl)]


@pytest.mark.parametrize(("level", "num_reports"), [("NORMAL", 1), ("DEBUG", 2)])
def test_the_growth_environment_reports_one_episode_or_all_at_debug(jsonl: Path, level: str, num_reports: int) -> None:
    class Report:
        accuracy, host_accuracy, kept_accuracy, rent = 0.8, 0.5, 0.7, 0.1

        def emit(self, emitter: Any) -> None:
            emitter.on_counterfactual_matrix(["slot0"], {(False,): 0.5, (True,): 0.8}, env_id=0)

    class Growth:
        def episode_reports(self) -> list[Report]:
            return [Report(), Report()]

        def gradient_stats(self) -> list[list[DualGradientStats | None]]:
            return [[None, DualGradientStats(host_norm=1.0, host_count=4, seed_norm=1.0, seed_count=1)]]

    watched = watch(jsonl, level=level)
    watched.after_update(outcome(watched), Growth())
    watched.close()
    assert len(events(jsonl, "counterfactual_matrix_computed")) == num_reports
    assert series(jsonl)[0]["growth/kept_accuracy"] == 0.7
    assert series(jsonl)[0]["growth/seed_host_gradient_ratio"] == pytest.approx(2.0, rel=1e-3)


def test_off_records_nothing(jsonl: Path) -> None:
    watched = watch(jsonl, level="OFF")
    watched.before_last_minibatch()
    watched.after_update(outcome(watched, metrics={"ppo/kl": 0.9}))
    watched.close()
    assert not jsonl.exists() or jsonl.read_text() == ""


def test_state_continues_bit_for_bit(jsonl: Path, tmp_path: Path) -> None:
    first, second = watch(jsonl), watch(tmp_path / "b.jsonl")
    for number in range(1, 6):
        first.after_update(outcome(first, number, metrics={"ppo/grad_norm": float(number)}))
    second.load_state_dict(first.state_dict())
    for one in (first, second):
        one.after_update(outcome(one, 6, metrics={"ppo/grad_norm": 9.0}))
    states = [one.state_dict() for one in (first, second)]
    for state in states:  # its cost differs from run to run
        for name in ("own_seconds", "run_seconds"):
            del state["monitor"]["config"][name]
    assert states[0] == states[1]
    first.close()
    second.close()
