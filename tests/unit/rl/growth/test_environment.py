"""The growth environments as a trainer uses them: rewards, masks, gradients, exact resume, independence, one graph."""

import dataclasses
import io
from typing import Any

import pytest
import torch
import torch._dynamo

import torchtriage
from torchtriage.rl.envs.protocol import Outcome
from torchtriage.rl.growth.environment import GrowthEnvironments
from torchtriage.rl.growth.hosts import HostShape, training_loss
from torchtriage.rl.growth.lifecycle import (
    ADVANCE,
    FIX,
    FIXED,
    GERMINATE,
    HOLDING,
    PRUNE,
    TRAINING,
    WAIT,
    action_number,
)
from torchtriage.rl.growth.program import GrowthSettings
from torchtriage.telemetry.ppo.emitter import VectorizedEmitter

SHORT = GrowthSettings(
    episode_steps=9, warmup_steps=1, minibatches=2, num_minibatches=4, minibatch_rows=16, validation_rows=32
)
NUM_ENVS = 4


def environments(settings: GrowthSettings = SHORT, **kwargs: Any) -> GrowthEnvironments:
    made = GrowthEnvironments(NUM_ENVS, settings, compile=False, **kwargs)
    made.reset(3)
    return made


def everywhere(kind: int, slot: int, num_slots: int = 4) -> torch.Tensor:
    return torch.full((NUM_ENVS,), action_number(kind, slot, num_slots))


WAITS = torch.full((NUM_ENVS,), WAIT)


def random_actions(generator: torch.Generator) -> torch.Tensor:
    return torch.randint(17, (NUM_ENVS,), generator=generator)


def grown(made: GrowthEnvironments, slot: int) -> None:
    """A holding seed in a slot of every environment."""
    for action in (everywhere(GERMINATE, slot), everywhere(ADVANCE, slot), WAITS, WAITS):
        made.step(action)
    assert (made.program.stage_NS[:, slot] == HOLDING).all()


def equal(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    return bool(left == right)


def test_all_episodes_end_together_and_the_next_ones_begin() -> None:
    made = environments()
    outcomes = [made.step(WAITS) for _ in range(SHORT.episode_steps)]
    assert [bool(o.terminated_N.all()) for o in outcomes] == [False] * 8 + [True]
    last = outcomes[-1]
    assert [(n, length) for n, _, length in last.episodes] == [(n, 9) for n in range(NUM_ENVS)]
    assert last.starts_N.all()
    assert not (last.truncated_N | last.dead_N).any()
    time_left = -1
    assert last.final_NO[:, time_left].tolist() == [0.0] * NUM_ENVS
    assert last.observation_NO[:, time_left].tolist() == [1.0] * NUM_ENVS
    assert last.observation_NO.shape == (NUM_ENVS, made.spaces.observation_size)
    assert last.observation_NO.isfinite().all()


@pytest.mark.parametrize("fixes", [True, False], ids=["fixed", "not fixed"])
def test_the_return_is_the_gain_in_fixed_accuracy_minus_rent(fixes: bool) -> None:
    made = environments()
    first_NC = made.program.counts.accuracies()
    total_N = torch.zeros(NUM_ENVS)
    outcome: Outcome | None = None
    for action in (
        everywhere(GERMINATE, 0),
        everywhere(ADVANCE, 0),
        WAITS,
        WAITS,
        everywhere(FIX, 0) if fixes else WAITS,
        *[WAITS] * 4,
    ):
        outcome = made.step(action)
        total_N += outcome.reward_N
    assert outcome is not None
    rent = 4 * SHORT.rent + 5 * SHORT.fixed_rent if fixes else 9 * SHORT.rent
    for report, start, total, (_, episode_return, _) in zip(
        made.episode_reports(), first_NC[:, 0].tolist(), total_N.tolist(), outcome.episodes, strict=True
    ):
        kept = report.accuracies[1] if fixes else report.host_accuracy
        assert report.kept_accuracy == kept
        assert report.rent == pytest.approx(rent, abs=1e-5)
        assert total == pytest.approx(10 * (kept - start) - rent, abs=1e-4)
        assert episode_return == pytest.approx(total, abs=1e-4)


def test_a_pruned_seed_has_no_effect_on_any_subset() -> None:
    made = environments()
    grown(made, 2)
    assert (made.program.counts.accuracies()[:, 4] != made.program.counts.accuracies()[:, 0]).any()
    made.step(everywhere(PRUNE, 2))
    accuracy_NC = made.program.counts.accuracies()
    without_C = torch.arange(16) & ~4
    assert torch.equal(accuracy_NC, accuracy_NC[:, without_C])


def test_a_seed_in_training_does_not_affect_the_host() -> None:
    waiting, growing = environments(), environments()
    before = growing.program.fresh_NSQ[:, 1].clone()
    for action in (everywhere(GERMINATE, 1), WAITS, WAITS):
        waiting.step(WAITS)
        growing.step(action)
    assert (growing.program.stage_NS[:, 1] == TRAINING).all()
    assert (growing.program.seed_NSQ[:, 1] != before).any(1).all()
    torch.testing.assert_close(growing.program.host_NP, waiting.program.host_NP)
    assert torch.equal(growing.program.counts.accuracies(), waiting.program.counts.accuracies())


def test_a_fixed_seed_never_changes_and_a_holding_one_does() -> None:
    made = environments()
    grown(made, 0)
    made.step(everywhere(FIX, 0))
    fixed, host = made.program.seed_NSQ[:, 0].clone(), made.program.host_NP.clone()
    for action in (everywhere(PRUNE, 0), everywhere(GERMINATE, 0), WAITS):
        made.step(action)
    assert (made.program.stage_NS[:, 0] == FIXED).all()
    assert torch.equal(made.program.seed_NSQ[:, 0], fixed)
    assert (made.program.host_NP != host).any(1).all()
    other = environments()
    grown(other, 0)
    held = other.program.seed_NSQ[:, 0].clone()
    other.step(WAITS)
    assert (other.program.seed_NSQ[:, 0] != held).any(1).all()


def test_a_different_task_in_one_environment_does_not_affect_the_others() -> None:
    plain, changed = environments(), environments()
    changed.program.y_NMB[1] *= -1
    changed.program.y_NV[1] *= -1
    generator = torch.Generator().manual_seed(0)
    others = torch.tensor([0, 2, 3])
    for _ in range(SHORT.episode_steps - 1):
        actions = random_actions(generator)
        a, b = plain.step(actions), changed.step(actions)
        assert torch.equal(a.observation_NO[others], b.observation_NO[others])
        assert torch.equal(a.reward_N[others], b.reward_N[others])
    assert not torch.equal(a.observation_NO[1], b.observation_NO[1])
    assert torch.equal(plain.program.host_NP[others], changed.program.host_NP[others])


def test_gradient_stats_of_seed_and_host_equal_those_of_autograd() -> None:
    made = environments(dataclasses.replace(SHORT, minibatches=1, num_minibatches=1))
    made.step(everywhere(GERMINATE, 3))
    program = made.program
    host_P, seed_SQ = (value[0].clone().requires_grad_() for value in (program.host_NP, program.seed_NSQ))
    loss, _ = training_loss(
        host_P,
        seed_SQ,
        program.alpha_NS[0],
        program.stage_NS[0] == TRAINING,
        program.x_NMIB[0, 0],
        program.y_NMB[0, 0],
        made.settings.host,
    )
    host_grad, seed_grad = torch.autograd.grad(loss, (host_P, seed_SQ))
    made.step(WAITS)
    stats = made.gradient_stats()
    assert [one is not None for one in stats[0]] == [False, False, False, True]
    found = stats[0][3]
    assert found is not None
    assert found.host_norm == pytest.approx(host_grad.norm().item(), rel=1e-4)
    assert found.seed_norm == pytest.approx(seed_grad[3].norm().item(), rel=1e-4)
    assert (found.host_count, found.seed_count) == (host_P.numel(), seed_SQ[3].numel())
    assert found.normalized_ratio > 0


def test_a_run_depends_on_its_seed_and_not_on_the_global_generator() -> None:
    first = environments()
    torch.manual_seed(12345)
    before = torch.get_rng_state()
    second = environments()
    for made in (first, second):
        generator = torch.Generator().manual_seed(0)
        for _ in range(SHORT.episode_steps + 2):
            made.step(random_actions(generator))
    assert equal(first.state(), second.state())
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(first.reset(1), second.reset(2))


@pytest.mark.parametrize("at", [4, 9, 11], ids=["in an episode", "at its end", "in the next"])
def test_a_saved_state_continues_exactly(at: int) -> None:
    made = environments()
    generator = torch.Generator().manual_seed(0)
    for _ in range(at):
        made.step(random_actions(generator))
    file = io.BytesIO()
    torch.save(made.state(), file)
    file.seek(0)
    resumed = GrowthEnvironments(NUM_ENVS, SHORT, compile=False)
    observation_NO = resumed.load_state(torch.load(file, weights_only=True))
    assert torch.equal(observation_NO, made.state()["observation_NO"])
    for _ in range(SHORT.episode_steps + 1):
        actions = random_actions(generator)
        for left, right in zip(made.step(actions), resumed.step(actions), strict=True):
            assert equal(left, right)
    assert equal(made.state(), resumed.state())


def test_a_state_with_other_settings_is_refused_naming_both() -> None:
    other = GrowthEnvironments(NUM_ENVS, GrowthSettings(episode_steps=10), compile=False)
    with pytest.raises(ValueError, match=r"'episode_steps': 10.*found.*'episode_steps': 9"):
        other.load_state(environments().state())


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (torch.zeros(3, dtype=torch.int64), "each of 4 environments"),
        (torch.zeros(4), "int64"),
        (torch.tensor([0, 1, 2, 17]), "0 to 16"),
        (torch.tensor([0, 1, 2, -1]), "0 to 16"),
    ],
)
def test_invalid_actions_are_refused(actions: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        environments().step(actions)


def test_a_step_before_the_first_reset_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"reset\(seed\)"):
        GrowthEnvironments(NUM_ENVS, SHORT, compile=False).step(WAITS)


def test_reports_are_returned_once_and_emit_everything() -> None:
    made = environments()
    for action in (everywhere(GERMINATE, 1), everywhere(ADVANCE, 1), WAITS, WAITS, everywhere(FIX, 1), *[WAITS] * 4):
        made.step(action)
    reports = made.episode_reports()
    assert [(r.environment, r.episode, r.length) for r in reports] == [(n, 0, 9) for n in range(NUM_ENVS)]
    assert made.episode_reports() == []
    report = reports[2]
    assert report.stages == ["empty", "fixed", "empty", "empty"]
    assert sum(report.shapley) == pytest.approx(report.accuracy - report.host_accuracy, abs=1e-6)
    events: list[Any] = []
    report.emit(VectorizedEmitter(events.append, clock=lambda: 0.0))
    kinds = [event.kind for event in events]
    assert kinds == ["epoch_completed", "counterfactual_matrix_computed", "analytics_snapshot"]
    epoch, matrix, snapshot = events
    assert {event.env_id for event in events} == {2}
    assert epoch.slots["slot1"]["stage"] == "fixed"
    assert {c.enabled: c.accuracy for c in matrix.configurations}[False, True, False, False] == report.kept_accuracy
    assert snapshot.values["return"] == report.episode_return


def assert_compiled_is_as_eager(backend: str, num_slots: int, num_steps: int) -> None:
    settings = dataclasses.replace(SHORT, host=HostShape(num_slots=num_slots), episode_steps=6)
    torch._dynamo.reset()
    eager, compiled = (
        GrowthEnvironments(NUM_ENVS, settings, compile=False),
        GrowthEnvironments(NUM_ENVS, settings, backend=backend),
    )
    generator = torch.Generator().manual_seed(0)
    with torchtriage.watch() as seen:
        torch.testing.assert_close(compiled.reset(0), eager.reset(0))
        for _ in range(num_steps):
            actions = torch.randint(4 * num_slots + 1, (NUM_ENVS,), generator=generator)
            for left, right in zip(compiled.step(actions), eager.step(actions), strict=True):
                torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-3)
            for (name, found), expected in zip(compiled.program.named_buffers(), eager.program.buffers(), strict=True):
                torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3, msg=name)
    totals = seen.report.totals
    assert (totals["compiles"], totals["graph_breaks"], totals["recompiles"]) == (1, 0, 0)
    torch._dynamo.reset()


@pytest.mark.thorough
@pytest.mark.parametrize("num_slots", [3, 4])
def test_the_compiled_program_is_one_graph_and_agrees_with_eager(num_slots: int) -> None:
    assert_compiled_is_as_eager("eager", num_slots, num_steps=14)


@pytest.mark.thorough
def test_inductor_writes_every_buffer_back() -> None:
    assert_compiled_is_as_eager("inductor", 4, num_steps=50)
