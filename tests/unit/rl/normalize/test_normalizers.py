"""The values of the normalizers against float64 numpy, the samples that they ignore, and their states."""

import copy
import io
import json
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from torchtriage.rl import RewardNormalizer, RunningMeanStd, ValueNormalizer
from torchtriage.rl.normalize.moments import Moments, merged, without
from torchtriage.rl.normalize.running_moments import RunningMoments

EPSILON = 1e-4
Make = Callable[[], RunningMoments]
MAKERS: list[Make] = [
    lambda: RunningMeanStd((3,)),
    lambda: RunningMeanStd((3,), momentum=0.9),
    RewardNormalizer,
    ValueNormalizer,
]
kinds = pytest.mark.parametrize("make", MAKERS, ids=["running", "running-ema", "reward", "value"])


def batches(num: int = 6, size: int = 16, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, 3, generator=generator) * 2 + 5 for _ in range(num)]


def with_prior(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of samples and of the prior, mean 0 and variance 1 with the weight of epsilon samples."""
    total = len(samples) + EPSILON
    mean = samples.sum(0) / total
    var = ((samples - mean) ** 2).sum(0) / total + EPSILON / total * (1 + mean**2)
    return mean, var


def test_batches_give_the_moments_of_all_samples() -> None:
    stats = RunningMeanStd((3,))
    for batch in batches():
        stats.update(batch)
    mean, var = with_prior(torch.cat(batches()).double().numpy())
    np.testing.assert_allclose(stats.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(stats.var, var, rtol=1e-12)
    assert stats.count.item() == pytest.approx(96 + EPSILON, rel=1e-15)


def test_a_mean_much_larger_than_the_spread_costs_no_precision() -> None:
    samples = torch.randn(10_000, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 1e7
    stats = RunningMeanStd((1,), epsilon=1e-30)
    for batch in samples.split(100):
        stats.update(batch)
    assert stats.var.item() == pytest.approx(samples.numpy().var(), rel=1e-8)


def test_momentum_follows_the_formula() -> None:
    stats, m = RunningMeanStd((3,), momentum=0.9), 0.9
    mean, var = np.zeros(3), np.ones(3)
    for batch in batches():
        x = batch.double().numpy()
        delta = x.mean(0) - mean
        var = m * var + (1 - m) * x.var(0) + m * (1 - m) * delta**2
        mean = m * mean + (1 - m) * x.mean(0)
        stats.update(batch)
    np.testing.assert_allclose(stats.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(stats.var, var, rtol=1e-12)


def test_normalize_subtracts_divides_and_clamps() -> None:
    stats = RunningMeanStd((3,))
    stats.update(torch.cat(batches()))
    x = torch.tensor([[5.0, 5.0, 500.0]])
    expected = ((x.double() - stats.mean) / (stats.var + EPSILON).sqrt()).clamp(-10, 10)
    assert stats.normalize(x).dtype == torch.float32
    torch.testing.assert_close(stats.normalize(x), expected.float())
    assert stats.normalize(x)[0, 2] == 10.0
    assert stats.normalize(-x)[0, 2] == -10.0
    assert stats.normalize(x, clip=2.0)[0, 2] == 2.0


def test_any_leading_dimensions_and_float_types_are_accepted() -> None:
    flat, shaped = RunningMeanStd((3,)), RunningMeanStd((3,))
    x = torch.cat(batches()).bfloat16()
    flat.update(x)
    shaped.update(x.view(4, 24, 3).transpose(0, 1))
    torch.testing.assert_close(flat.var, shaped.var)
    assert shaped.normalize(x.view(4, 24, 3)).shape == (4, 24, 3)
    assert shaped.normalize(x).dtype == torch.bfloat16
    one = RunningMeanStd()
    one.update(torch.tensor(2.0))
    assert one.normalize(torch.tensor(2.0)).shape == ()
    assert one.normalize(torch.tensor(7)).dtype == torch.float32
    images = RunningMeanStd((1, 2, 2))
    images.update(torch.full((5, 1, 2, 2), 255, dtype=torch.uint8))
    assert images.mean.flatten().tolist() == pytest.approx([255.0] * 4, rel=1e-4)


@kinds
def test_a_mask_excludes_samples(make: Make) -> None:
    masked, picked = make(), make()
    samples = torch.cat(batches()) if masked.shape else torch.cat(batches())[:, 0]
    keep = torch.arange(96) % 3 == 0
    masked.update(samples, mask=keep)
    picked.update(samples[keep])
    torch.testing.assert_close(masked.var, picked.var)
    assert masked.count.item() == picked.count.item()


@kinds
def test_an_empty_batch_and_an_empty_mask_change_nothing(make: Make) -> None:
    stats = make()
    shape = stats.shape
    stats.update(torch.ones(4, *shape) * torch.arange(4.0).view(4, *[1] * len(shape)))
    before = copy.deepcopy(stats.state_dict())
    stats.update(torch.ones(0, *shape))
    stats.update(torch.ones(4, *shape), mask=torch.zeros(4, dtype=torch.bool))
    assert_same(stats.state_dict(), before)


@kinds
def test_nonfinite_samples_are_ignored_and_counted(make: Make) -> None:
    dirty, clean = make(), make()
    x = torch.cat(batches()) if dirty.shape else torch.cat(batches())[:, 0]
    bad = x.clone()
    bad.view(96, -1)[7, 0], bad.view(96, -1)[9, -1] = math.nan, -math.inf
    mask = torch.ones(96, dtype=torch.bool)
    mask[9] = False  # masked, so not rejected either
    dirty.update(bad, mask=mask)
    keep = [i for i in range(96) if i not in (7, 9)]
    clean.update(x[keep])
    torch.testing.assert_close(dirty.mean, clean.mean)
    torch.testing.assert_close(dirty.var, clean.var)
    assert (int(dirty.num_rejected), int(clean.num_rejected)) == (1, 0)


def test_nan_stays_nan_and_infinity_is_clamped() -> None:
    stats = RunningMeanStd((2,))
    out = stats.normalize(torch.tensor([math.nan, math.inf]))
    assert math.isnan(out[0])
    assert out[1] == 10.0


def test_a_constant_feature_is_not_amplified() -> None:
    stats = RunningMeanStd((1,))
    for _ in range(1000):
        stats.update(torch.full((64, 1), 3.0))
    assert abs(stats.normalize(torch.tensor([3.0])).item()) < 1e-3


@kinds
def test_frozen_statistics_do_not_change(make: Make) -> None:
    stats = make()
    stats.freeze()
    stats.update(torch.ones(4, *stats.shape))
    assert_same(
        stats.state_dict(), stats.state_dict() | {k: v for k, v in make().state_dict().items() if k != "_extra_state"}
    )
    stats.unfreeze()
    stats.update(torch.ones(4, *stats.shape))
    assert stats.count > 3


def test_an_update_between_forward_and_backward_keeps_the_gradients_right() -> None:
    stats = RunningMeanStd((3,))
    x = torch.ones(2, 3, requires_grad=True)
    out = stats.normalize(x).sum()
    stats.update(batches()[0])
    out.backward()
    torch.testing.assert_close(x.grad, torch.full((2, 3), 1 / math.sqrt(1 + EPSILON)))


# Rewards and values


def test_a_reward_is_divided_by_the_sample_deviation_and_keeps_its_mean() -> None:
    normalizer, rewards = RewardNormalizer(), [1.0, 2.0, 4.0, 3.0]
    out = [normalizer.update_and_normalize(reward) for reward in rewards]
    assert out[0] == 1.0
    assert [out[i] for i in (1, 2, 3)] == pytest.approx(
        [rewards[i] / np.std(rewards[: i + 1], ddof=1) for i in (1, 2, 3)], rel=1e-12
    )
    assert normalizer.normalize(1.0) == pytest.approx(1.0 / np.std(rewards, ddof=1))


def test_with_fewer_than_two_samples_a_reward_is_only_clamped() -> None:
    normalizer = RewardNormalizer(clip=10.0)
    assert normalizer.normalize(1000.0) == 10.0
    assert normalizer.update_and_normalize(-1000.0) == -10.0
    assert RewardNormalizer().normalize(3.0) == 3.0


def test_rewards_are_clipped_and_equal_ones_are_not_scaled() -> None:
    normalizer = RewardNormalizer()
    for _ in range(100):
        assert normalizer.update_and_normalize(1.0) == 1.0
    normalizer.update(torch.randn(1000, generator=torch.Generator().manual_seed(0)))
    assert normalizer.normalize(1e6) == 10.0


def test_a_tensor_of_rewards_gives_the_same_as_single_rewards() -> None:
    together, single = RewardNormalizer(), RewardNormalizer()
    rewards = torch.cat(batches())[:, 0]
    together.update(rewards)
    for reward in rewards.tolist():
        single.update_and_normalize(reward)
    assert together.normalize(2.0) == pytest.approx(single.normalize(2.0), rel=1e-12)
    assert together.normalize(rewards).shape == rewards.shape
    assert together.normalize(np.float32(2.0)) == pytest.approx(together.normalize(2.0))


def test_a_nan_reward_is_counted_and_does_not_affect_others() -> None:
    normalizer = RewardNormalizer()
    normalizer.update(torch.tensor([1.0, 2.0, 4.0]))
    before = normalizer.normalize(1.0)
    assert math.isnan(normalizer.update_and_normalize(math.nan))
    assert normalizer.normalize(1.0) == before
    assert int(normalizer.num_rejected) == 1


def test_values_are_scaled_only_after_32_samples() -> None:
    normalizer = ValueNormalizer()
    values = torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 7 + 100
    normalizer.update(values[:31])
    assert normalizer.scale.item() == 1.0
    normalizer.update(values[31:32])
    assert normalizer.scale.item() == pytest.approx(values[:32].numpy().std(), rel=1e-12)
    before = normalizer.mean.item(), normalizer.var.item()
    normalizer.update(values[32:])
    batch = values[32:].numpy()
    var = 0.99 * before[1] + 0.01 * batch.var() + 0.99 * 0.01 * (batch.mean() - before[0]) ** 2
    assert normalizer.scale.item() == pytest.approx(math.sqrt(var), rel=1e-12)


def test_denormalize_undoes_normalize_and_the_mean_is_not_shifted() -> None:
    normalizer = ValueNormalizer()
    normalizer.update(torch.randn(64, generator=torch.Generator().manual_seed(0)) * 3 + 50)
    x = torch.tensor([0.0, -5.0, 50.0])
    assert normalizer.normalize(x)[0] == 0.0
    torch.testing.assert_close(normalizer.denormalize(normalizer.normalize(x)), x)


# State


def assert_same(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert a.keys() == b.keys()
    for key in a:
        torch.testing.assert_close(a[key], b[key], rtol=0, atol=0, equal_nan=True, msg=key)


@kinds
def test_a_saved_state_continues_bitwise(make: Make) -> None:
    def run(stats: RunningMoments, some: list[torch.Tensor]) -> None:
        for batch in some:
            stats.update(batch if stats.shape else batch[:, 0])

    straight, first, second = make(), make(), make()
    run(straight, batches())
    run(first, batches()[:3])
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    run(second, batches()[3:])
    assert_same(straight.state_dict(), second.state_dict())


def test_a_state_includes_its_settings() -> None:
    saved = RunningMeanStd((3,), epsilon=1e-2, momentum=0.5)
    saved.freeze()
    loaded = RunningMeanStd((3,))
    loaded.load_state_dict(saved.state_dict())
    assert (loaded.epsilon, loaded.momentum, loaded.frozen) == (1e-2, 0.5, True)
    values = ValueNormalizer(warmup=7)
    values.load_state_dict(ValueNormalizer(warmup=64).state_dict())
    assert repr(values.warmup) == "64"


def test_a_policy_saves_and_moves_its_statistics() -> None:
    policy = torch.nn.Module()
    policy.obs = RunningMeanStd((3,))
    policy.obs.update(batches()[0])
    other = torch.nn.Module()
    other.obs = RunningMeanStd((3,))
    other.load_state_dict(policy.state_dict())
    assert_same(other.state_dict(), policy.state_dict())
    assert policy.half().obs.mean.dtype == torch.float64
    assert_same(other.obs.state_dict(), policy.obs.state_dict())
    assert policy.to("meta").obs.mean.device.type == "meta"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda s: s.pop("_extra_state"),
            "expected a state of version 1, found one without a version; load it with the release",
        ),
        (lambda s: s["_extra_state"].__setitem__(0, 0), "expected a state of version 1, found version 0; load it"),
        (
            lambda s: s.update(mean=torch.zeros(4)),
            r"expected mean of shape \(3,\), found \(4,\); construct it with shape=\(4,\)",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_refused_completely(change: Callable[[dict[str, Any]], Any], words: str) -> None:
    stats = RunningMeanStd((3,))
    stats.update(batches()[0])
    before = copy.deepcopy(stats.state_dict())
    state = RunningMeanStd((3,)).state_dict()
    change(state)
    with pytest.raises(RuntimeError, match=words):
        stats.load_state_dict(state)
    assert_same(stats.state_dict(), before)


def test_a_state_of_three_bare_values_is_refused_with_a_reason() -> None:
    with pytest.raises(RuntimeError, match="expected a state of version 1, found one without"):
        RunningMeanStd((3,)).load_state_dict({"mean": torch.zeros(3), "var": torch.ones(3), "count": torch.tensor(1.0)})


# Devices: meta stands in for an accelerator


@pytest.mark.parametrize("call", ["update", "normalize"])
def test_a_move_to_another_device_warns_once_at_the_callers_line(call: str) -> None:
    stats = RunningMeanStd((3,))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        getattr(stats, call)(torch.ones(2, 3, device="meta"))
        stats.to_empty(device="cpu")
        getattr(stats, call)(torch.ones(2, 3, device="meta"))
    assert stats.mean.device.type == "meta"
    assert [(w.filename, str(w.message)) for w in warned] == [
        (
            __file__,
            (
                "RunningMeanStd moves its statistics from cpu to meta; construct it with device='meta' or move it there"
                " before training: in a compiled region the move breaks the graph"
            ),
        )
    ]


def test_the_callers_line_is_found_through_methods_of_torchtriage() -> None:
    with pytest.warns(UserWarning, match="RewardNormalizer moves its statistics from cpu to meta") as warned:
        RewardNormalizer().update_and_normalize(torch.ones(2, device="meta"))
    assert warned[0].filename == __file__


def test_statistics_moved_in_inference_mode_can_be_updated_later() -> None:
    stats = RunningMeanStd(3)
    with torch.inference_mode():
        stats.update(torch.ones(2, 3))
        out = stats.normalize(torch.ones(2, 3))
    stats.update(out)
    assert round(stats.count.item()) == 4
    with torch.inference_mode(), pytest.warns(UserWarning, match="moves its statistics"):
        stats.update(torch.ones(2, 3, device="meta"))
    assert not stats.mean.is_inference()


@pytest.mark.parametrize("call", ["update", "normalize"])
def test_strict_device_raises_instead_of_moving(call: str) -> None:
    stats = RunningMeanStd((3,), strict_device=True)
    with pytest.raises(
        RuntimeError, match="strict_device set and its statistics on cpu, got an input on meta; construct it with"
    ):
        getattr(stats, call)(torch.ones(2, 3, device="meta"))
    assert stats.mean.device.type == "cpu"


# Bad input


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: RunningMeanStd((3,)).update(torch.ones(2, 4)),
            r"expects samples of shape \[..., \*\(3,\)\], got \(2, 4\)",
        ),
        (lambda: RunningMeanStd((3, 2)).update(torch.ones(2)), r"expects samples of shape"),
        (lambda: RunningMeanStd((3,)).normalize(torch.ones(2, 1)), r"expects samples of shape"),
        (
            lambda: RunningMeanStd((3,)).update(torch.ones(2, 3), mask=torch.ones(2, 3)),
            r"one entry per sample, shape \(2,\), got \(2, 3\)",
        ),
        (lambda: RunningMeanStd((3,)).update(np.ones((2, 3))), "expects a tensor, got ndarray; pass torch.as_tensor"),
        (lambda: RewardNormalizer().update_and_normalize(np.ones(2)), "expects a tensor, got ndarray"),
        (lambda: RunningMeanStd((0,)), r"shape must have sizes above 0, got \(0,\)"),
        (lambda: RunningMeanStd((3,), epsilon=0.0), "epsilon must be above 0, got 0.0"),
        (lambda: RunningMeanStd((3,), momentum=1.0), r"momentum must be in \[0, 1\), got 1.0"),
        (lambda: ValueNormalizer(warmup=0), "warmup must be at least 1"),
        (lambda: RewardNormalizer(clip=0), "clip and epsilon must be above 0"),
    ],
)
def test_bad_input_is_refused_with_what_was_expected_and_found(call: Callable[[], Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        call()


# Merging


def test_merging_a_worker_equals_receiving_its_samples() -> None:
    for momentum in (None, 0.9):
        here, worker = RunningMeanStd((3,), momentum=momentum), RunningMeanStd((3,), momentum=momentum)
        one, two = batches(2)
        here.update(one)
        worker.update(two)
        unchanged = copy.deepcopy(worker.state_dict())
        here.merge(worker)
        whole = RunningMeanStd((3,), momentum=momentum)
        whole.update(torch.cat([one, two]))
        for name in ("mean", "var", "count"):
            torch.testing.assert_close(getattr(here, name), getattr(whole, name), rtol=1e-12, atol=0)
        assert_same(worker.state_dict(), unchanged)


def test_merging_an_empty_worker_changes_nothing_and_another_shape_is_refused() -> None:
    here = RunningMeanStd((3,))
    here.update(batches()[0])
    before = here.var.clone()
    here.merge(RunningMeanStd((3,)))
    torch.testing.assert_close(here.var, before, rtol=1e-14, atol=0)
    with pytest.raises(ValueError, match=r"expected statistics of shape \(3,\) and momentum None, got \(2,\) and None"):
        here.merge(RunningMeanStd((2,)))


def test_a_single_process_may_call_merge_across_ranks() -> None:
    stats = RunningMeanStd((3,))
    stats.update(batches()[0])
    before = copy.deepcopy(stats.state_dict())
    stats.merge_across_ranks()
    assert_same(stats.state_dict(), before)


samples = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30).map(np.array)


@given(samples, samples)
@example(np.full(5, 0.1), np.array([0.7]))  # rounding would make the variance of the rest negative
def test_without_undoes_merged(a: np.ndarray, b: np.ndarray) -> None:
    def of(x: np.ndarray) -> Moments:
        return Moments(*(torch.tensor(v, dtype=torch.float64) for v in (float(len(x)), x.mean(), x.var())))

    whole = merged(of(a), of(b))
    both = np.concatenate([a, b])
    scale = max(1.0, np.abs(both).max())
    assert whole.mean.item() == pytest.approx(both.mean(), abs=1e-12 * scale)
    assert whole.var.item() == pytest.approx(both.var(), abs=1e-11 * scale**2)
    rest = without(whole, of(a))
    assert rest.count.item() == len(b)
    assert rest.mean.item() == pytest.approx(b.mean(), abs=1e-9 * scale)
    assert rest.var.item() == pytest.approx(b.var(), abs=1e-9 * scale**2)
    assert rest.var.item() >= 0


def test_the_repr_names_the_settings() -> None:
    assert (
        repr(RunningMeanStd((3,), momentum=0.9))
        == "RunningMeanStd(shape=(3,), frozen=False, epsilon=0.0001, momentum=0.9)"
    )
    json.dumps({k: v.tolist() for k, v in RewardNormalizer().state_dict().items()}, allow_nan=False)
