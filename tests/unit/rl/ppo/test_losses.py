"""The PPO loss against its formula, its masks, and the metrics of an update."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchtriage.errors import TriageError
from torchtriage.rl.policy.network import Evaluation
from torchtriage.rl.ppo.losses import MAX_LOG_RATIO, LossSettings, ppo_loss, rollout_metrics
from torchtriage.rl.ppo.metrics import METRICS, OF_ROLLOUT, MetricTable, packed, reduced
from torchtriage.rl.ppo.rollout import Minibatch

CLIP = torch.tensor(0.2)


def rows(num: int = 16, seed: int = 0) -> tuple[Evaluation, Minibatch]:
    generator = torch.Generator().manual_seed(seed)
    log_prob, old_log_prob, value, old_value, advantage, returns, entropy = torch.randn(7, 1, num, generator=generator)
    now = Evaluation(
        (old_log_prob * 0.3 + log_prob * 0.3).requires_grad_(), entropy.requires_grad_(), value.requires_grad_()
    )
    return now, Minibatch(
        torch.zeros(1, num, 1),
        torch.zeros(1, num),
        old_log_prob * 0.3,
        old_value,
        advantage,
        returns,
        torch.ones(1, num),
        torch.ones(1, num),
        torch.zeros(num, 0),
    )


def expected(now: Evaluation, batch: Minibatch, settings: LossSettings) -> torch.Tensor:
    """As in the paper and Stable-Baselines3."""
    advantage = batch.advantage_TB
    if settings.normalize_advantage:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = (now.log_prob_TB - batch.log_prob_TB).exp()
    policy_loss = -torch.min(ratio * advantage, ratio.clamp(1 - 0.2, 1 + 0.2) * advantage).mean()
    value_loss = (now.value_TB - batch.return_TB) ** 2
    if settings.clip_value:
        near = batch.value_TB + (now.value_TB - batch.value_TB).clamp(-settings.clip_value, settings.clip_value)
        value_loss = torch.max(value_loss, (near - batch.return_TB) ** 2)
    return policy_loss + settings.value_coef * value_loss.mean() - settings.entropy_coef * now.entropy_TB.mean()


@pytest.mark.parametrize(
    "settings",
    [
        LossSettings(),
        LossSettings(entropy_coef=0.01, value_coef=1.5),
        LossSettings(clip_value=0.3),
        LossSettings(normalize_advantage=False),
    ],
)
def test_the_loss_and_its_gradients_follow_the_formula(settings: LossSettings) -> None:
    now, batch = rows(64)
    (loss, _), truth = ppo_loss(now, batch, CLIP, settings), expected(now, batch, settings)
    torch.testing.assert_close(loss, truth)
    wanted = torch.autograd.grad(truth, now, allow_unused=True, materialize_grads=True)
    for found, want in zip(
        torch.autograd.grad(loss, now, allow_unused=True, materialize_grads=True), wanted, strict=True
    ):
        torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-7)


@given(num_live=st.integers(1, 15), clip_value=st.sampled_from([0.0, 0.3]), seed=st.integers(0, 100))
def test_rows_of_weight_0_never_count(num_live: int, clip_value: float, seed: int) -> None:
    now, batch = rows(16, seed)
    settings = LossSettings(clip_value=clip_value, entropy_coef=0.01)
    for tensor in (batch.log_prob_TB, batch.value_TB, batch.advantage_TB, batch.return_TB):
        tensor[:, num_live:] = math.nan
    batch.weight_TB[:, num_live:] = 0
    live_now = Evaluation(*(t[:, :num_live] for t in now))
    live_batch = Minibatch(*(t[:, :num_live] for t in batch[:-1]), batch.state_BS)
    loss, found = ppo_loss(now, batch, CLIP, settings)
    live_loss, wanted = ppo_loss(live_now, live_batch, CLIP, settings)
    torch.testing.assert_close(loss, live_loss)
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6, msg=name)
    gradients = zip(torch.autograd.grad(loss, now), torch.autograd.grad(live_loss, now), strict=True)
    for grad, want in gradients:
        torch.testing.assert_close(grad, want, rtol=1e-5, atol=1e-7)


def test_a_small_kl_keeps_its_precision() -> None:
    now, batch = rows(64)
    batch = batch._replace(log_prob_TB=now.log_prob_TB.detach() - 1e-4)
    log_ratio = (now.log_prob_TB.detach() - batch.log_prob_TB).double()
    kl = ppo_loss(now, batch, CLIP, LossSettings())[1]["kl"]
    assert kl.item() == pytest.approx((log_ratio.exp() - 1 - log_ratio).mean().item(), rel=0.05)


def test_an_exploding_ratio_is_bounded_and_recorded() -> None:
    now, batch = rows()
    batch.log_prob_TB[0, 3], batch.log_prob_TB[0, 4] = -1e4, 1e4
    loss, values = ppo_loss(now, batch, CLIP, LossSettings())
    assert loss.isfinite()
    assert values["ratio_max"].item() == pytest.approx(math.exp(MAX_LOG_RATIO), rel=1e-4)
    assert values["ratio_min"].item() == pytest.approx(0.0, abs=1e-6)
    assert values["clip_fraction"] >= 2 / 16
    batch.log_prob_TB[0, 3] = math.nan
    assert not ppo_loss(now, batch, CLIP, LossSettings())[0].isfinite()


def test_ratios_are_1_before_any_step() -> None:
    now, batch = rows()
    _, values = ppo_loss(now, batch._replace(log_prob_TB=now.log_prob_TB.detach().clone()), CLIP, LossSettings())
    assert [
        values[name].item() for name in ("first_ratio_deviation", "ratio_max", "ratio_min", "kl", "clip_fraction")
    ] == [0, 1, 1, 0, 0]


def test_equal_advantages_are_not_amplified() -> None:
    now, batch = rows()
    batch = batch._replace(advantage_TB=torch.full_like(batch.advantage_TB, 0.1) + 1e-9 * batch.advantage_TB)
    assert ppo_loss(now, batch, CLIP, LossSettings())[1]["policy_loss"].abs() < 0.1


def test_value_clip_fraction_is_the_share_of_rows_without_a_gradient() -> None:
    now, batch = rows()
    _, values = ppo_loss(now, batch, CLIP, LossSettings(clip_value=0.3))
    (grad,) = torch.autograd.grad(values["value_loss"], now.value_TB)
    share = (grad == 0).float().mean().item()
    assert 0.1 < share < 0.9
    assert values["value_clip_fraction"].item() == pytest.approx(share)
    assert ppo_loss(now, batch, CLIP, LossSettings())[1]["value_clip_fraction"] == 0


def test_rollout_metrics_are_over_live_transitions() -> None:
    value, returns, advantage, error = torch.randn(4, 5, 4, generator=torch.Generator().manual_seed(0))
    live = torch.ones(5, 4, dtype=torch.bool)
    live[2, 1] = live[4, 3] = False
    value[~live] = error[~live] = math.nan
    found = rollout_metrics(value, returns, advantage, error, live)
    r, v = returns[live].double(), value[live].double()
    assert found["explained_variance"].item() == pytest.approx(1 - ((r - v).var() / r.var()).item())
    assert found["returns_std"].item() == pytest.approx(r.std(correction=0).item())
    assert found["advantage_std"].item() == pytest.approx(advantage[live].double().std(correction=0).item())
    assert found["bellman_error"].item() == pytest.approx(error[live].abs().mean().item())


def test_explained_variance_is_nan_where_returns_do_not_vary() -> None:
    same = torch.full((7, 3), 0.1)
    found = rollout_metrics(torch.randn(7, 3), same, same, same, torch.ones(7, 3, dtype=torch.bool))
    assert math.isnan(found["explained_variance"])
    assert found["returns_std"] == 0


def of_minibatch(**given: float) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(given.get(name, 1.0)) for name in METRICS}


def test_each_metric_is_reduced_as_declared() -> None:
    table = MetricTable(torch.device("cpu"), length=2)  # too short: it grows
    table.begin(dict.fromkeys(OF_ROLLOUT, torch.tensor(0.5)))
    for kl, rows, counts in ((1.0, 30.0, 1.0), (5.0, 10.0, 1.0), (99.0, 10.0, 0.0)):
        table.add(
            packed(
                of_minibatch(kl=kl, rows=rows, ratio_max=kl, ratio_min=kl, first_ratio_deviation=kl, minibatches=counts)
            )
        )
    found = table.read()
    wanted = {
        "kl": 2.0,
        "ratio_max": 5.0,
        "ratio_min": 1.0,
        "first_ratio_deviation": 1.0,
        "rows": 40.0,
        "minibatches": 2.0,
        "returns_std": 0.5,
    }
    assert {name: found[name] for name in wanted} == wanted


def test_a_nan_is_not_lost_in_a_reduction() -> None:
    table_KM = (
        torch.stack([packed(of_minibatch()), packed(of_minibatch(kl=math.nan, ratio_max=math.nan))]).double().numpy()
    )
    found = reduced(table_KM)
    assert math.isnan(found["kl"])
    assert math.isnan(found["ratio_max"])


def test_a_metric_without_a_declared_reduction_is_refused() -> None:
    with pytest.raises(TriageError, match=r"not declared: \['new'\], missing: \[\]"):
        packed({**of_minibatch(), "new": torch.tensor(1.0)})
    with pytest.raises(TriageError, match=r"missing: \['kl'\]"):
        packed({name: value for name, value in of_minibatch().items() if name != "kl"})
