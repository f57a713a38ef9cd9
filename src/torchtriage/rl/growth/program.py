"""One step of all environments as one program: actions, training, counterfactual evaluation, reward, observation."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchtriage.rl.growth import hosts, lifecycle, tasks
from torchtriage.rl.growth.counterfactual import Counterfactual, Effects
from torchtriage.rl.growth.env_state import ParallelEnvState
from torchtriage.rl.growth.hosts import HostShape
from torchtriage.rl.growth.lifecycle import EMPTY, FIXED, STAGES, TRAINING, Slots
from torchtriage.rl.growth.subsets import pairs, subset_table
from torchtriage.rl.growth.training import TrainedTensors, minibatch_step

# N environments, S slots, C subsets of the slots, L pairs of slots, P host parameters, Q parameters of a seed, M
# minibatches of training data, B rows of a minibatch, V validation rows, I inputs, O observation size, F features.
SLOT_FEATURES = len(STAGES) + 5  # stage, alpha, contribution, Shapley value, interaction, age
GLOBAL_FEATURES = 5  # accuracy, accuracy of the host alone, loss, trend, time left
TREND_DECAY = 0.8  # the trend is the accuracy above its average over about five steps


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthSettings:
    """The settings of an episode.

    Rents are in the unit of the reward: with a reward scale of 10, a rent of 1 is ten percentage points of accuracy.
    """

    host: HostShape = field(default_factory=HostShape)
    episode_steps: int = 40
    warmup_steps: int = 4  # training steps before the first observation, in which hosts learn what they can alone
    minibatches: int = 4  # per step
    minibatch_rows: int = 64
    num_minibatches: int = 16  # of training data; after them the first one is used again
    validation_rows: int = 256
    lr: float = 0.1
    momentum: float = 0.9
    rent: float = 0.008  # per step, for a seed that is not fixed
    fixed_rent: float = 0.004  # per step, for a fixed seed
    reward_scale: float = 10.0
    kept_share: float = 0.5  # share of the accuracy reward that is paid only for fixed seeds

    def __post_init__(self) -> None:
        for name in (
            "episode_steps",
            "warmup_steps",
            "minibatches",
            "minibatch_rows",
            "num_minibatches",
            "validation_rows",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    @property
    def train_rows(self) -> int:
        return self.num_minibatches * self.minibatch_rows

    @property
    def observation_size(self) -> int:
        return self.host.num_slots * SLOT_FEATURES + GLOBAL_FEATURES


class StepResult(NamedTuple):
    """The result of one step."""

    observation_NO: Tensor
    reward_N: Tensor


class GrowthProgram(nn.Module):  # type: ignore[misc]  # torch is untyped for mypy here
    """The hosts, their seeds and their data as buffers that `forward` changes in place: it compiles once, to one graph.

    All environments are at the same step of their episodes. `begin` draws new episodes; after it, `warmup_steps` calls
    with waits give the first observation.
    """

    def __init__(self, num_envs: int, settings: GrowthSettings, device: Any = None) -> None:
        super().__init__()
        self.num_envs, self.settings = num_envs, settings
        shape, num_slots = settings.host, settings.host.num_slots
        self.counts = ParallelEnvState(num_envs, num_slots, device)
        self.counterfactual = Counterfactual(num_slots, device=device)
        self._minibatch = minibatch_step(shape, settings.lr, settings.momentum)

        def buffer(name: str, *sizes: int, dtype: Any = torch.float32) -> None:
            self.register_buffer(name, torch.zeros(num_envs, *sizes, dtype=dtype, device=device))

        buffer("x_NMIB", settings.num_minibatches, shape.num_inputs, settings.minibatch_rows)
        buffer("y_NMB", settings.num_minibatches, settings.minibatch_rows)
        buffer("x_NIV", shape.num_inputs, settings.validation_rows)
        buffer("y_NV", settings.validation_rows)
        buffer("relevant_NS", num_slots, dtype=torch.bool)
        for name in ("host_NP", "host_velocity_NP"):
            buffer(name, shape.host_size)
        for name in ("fresh_NSQ", "seed_NSQ", "seed_velocity_NSQ"):
            buffer(name, num_slots, shape.seed_size)
        buffer("stage_NS", num_slots, dtype=torch.int64)
        for name in ("alpha_NS", "age_NS", "seed_grad_NS"):
            buffer(name, num_slots)
        for name in ("host_grad_N", "potential_N", "average_N", "return_N", "rent_N"):
            buffer(name)
        self.register_buffer("step_1", torch.zeros(1, dtype=torch.int64, device=device))
        self.register_buffer("_on_CS", subset_table(num_slots).float().to(device), persistent=False)
        self.register_buffer("_stages", torch.arange(len(STAGES), device=device), persistent=False)
        self.register_buffer("_bit_S", 2 ** torch.arange(num_slots, device=device), persistent=False)
        members_LS = torch.zeros(len(pairs(num_slots)), num_slots, device=device)
        for number, slots in enumerate(pairs(num_slots)):
            members_LS[number, list(slots)] = 1
        self.register_buffer("_members_LS", members_LS, persistent=False)

    def begin(self, generator: torch.Generator) -> None:
        """Draw new tasks, hosts and seeds in place, and empty all slots."""
        settings = self.settings
        for name, buffer in self.named_buffers(recurse=False):
            if not name.startswith("_"):
                buffer.zero_()
        drawn = tasks.draw(
            self.num_envs, settings.host.num_slots, settings.train_rows + settings.validation_rows, generator
        )
        sizes = [settings.train_rows, settings.validation_rows]
        (x_train, x_val), (y_train, y_val) = drawn.x_NIR.split(sizes, 2), drawn.y_NR.split(sizes, 1)
        self.x_NMIB.copy_(x_train.unflatten(2, (settings.num_minibatches, -1)).transpose(1, 2))
        self.y_NMB.copy_(y_train.view_as(self.y_NMB))
        self.x_NIV.copy_(x_val)
        self.y_NV.copy_(y_val)
        self.relevant_NS.copy_(drawn.relevant_NS)
        host_NP, seed_NSQ = hosts.draw_hosts(self.num_envs, settings.host, generator)
        self.host_NP.copy_(host_NP)
        self.fresh_NSQ.copy_(seed_NSQ)
        self.step_1.fill_(-settings.warmup_steps)

    def forward(self, action_N: Tensor) -> StepResult:
        slots = self._act(action_N)
        self.counts.zero_()
        self._train(slots)
        self._evaluate(slots)
        self.step_1.add_(1)
        effects = self.counterfactual(self.counts)
        reward_N = self._reward(slots, effects)
        observation_NO = self._observe(slots, effects)
        return StepResult(observation_NO, reward_N)

    def _act(self, action_N: Tensor) -> Slots:
        slots, germinated_NS = lifecycle.step(Slots(self.stage_NS, self.alpha_NS, self.age_NS), action_N)
        new_NS1 = germinated_NS.unsqueeze(2)
        self.seed_NSQ.copy_(torch.where(new_NS1, self.fresh_NSQ, self.seed_NSQ))
        self.seed_velocity_NSQ.copy_(torch.where(new_NS1, 0.0, self.seed_velocity_NSQ))
        self.stage_NS.copy_(slots.stage_NS)
        self.alpha_NS.copy_(slots.alpha_NS)
        self.age_NS.copy_(slots.age_NS)
        return slots

    def _train(self, slots: Slots) -> None:
        settings = self.settings
        masks = slots.alpha_NS, lifecycle.learns(slots.stage_NS), slots.stage_NS == TRAINING
        learned = [getattr(self, name) for name in TrainedTensors._fields]
        squares_N, squares_NS = torch.zeros_like(self.host_grad_N), torch.zeros_like(self.seed_grad_NS)
        first_1 = self.step_1 * settings.minibatches
        for k in range(settings.minibatches):
            # Indexed by a tensor, into separate memory, so that every minibatch is the same to the compiler.
            index_1 = (first_1 + k) % settings.num_minibatches
            x_NIB, y_NB = (
                self.x_NMIB.index_select(1, index_1).squeeze(1),
                self.y_NMB.index_select(1, index_1).squeeze(1),
            )
            *learned, loss_N, correct_N, host_squares_N, seed_squares_NS = self._minibatch(
                *learned, *masks, x_NIB, y_NB
            )
            squares_N, squares_NS = squares_N + host_squares_N, squares_NS + seed_squares_NS
            self.counts.add_train(loss_N, correct_N, settings.minibatch_rows)
        for name, value in zip(TrainedTensors._fields, learned, strict=True):
            getattr(self, name).copy_(value)
        self.host_grad_N.copy_((squares_N / settings.minibatches).sqrt())
        self.seed_grad_NS.copy_((squares_NS / settings.minibatches).sqrt())

    def _evaluate(self, slots: Slots) -> None:
        """One fused forward of all subsets of the slots, counted in the flat accumulators."""
        evaluate = torch.func.vmap(partial(hosts.evaluate, shape=self.settings.host), in_dims=(0, 0, 0, None, 0, 0))
        loss_N, correct_NC = evaluate(self.host_NP, self.seed_NSQ, slots.alpha_NS, self._on_CS, self.x_NIV, self.y_NV)
        self.counts.add_validation(loss_N, correct_NC, self.settings.validation_rows)

    def _reward(self, slots: Slots, effects: Effects) -> Tensor:
        """The accuracy gained, minus rent.

        The accuracy that counts is (1 - kept_share) f(all on) + kept_share f(fixed only), and at the end f(fixed only):
        a seed that is not fixed by then is lost. Over an episode the reward sums to reward_scale * (f_end(fixed only) -
        f_begin(host)) minus all rent.
        """
        settings = self.settings
        fixed_NS = slots.stage_NS == FIXED
        kept_N = effects.accuracy_NC.gather(1, (fixed_NS * self._bit_S).sum(1, keepdim=True)).squeeze(1)
        share = torch.where(self.step_1 >= settings.episode_steps, 1.0, settings.kept_share)
        potential_N = settings.reward_scale * torch.lerp(effects.accuracy_NC[:, -1], kept_N, share)
        rent_N = torch.where(
            fixed_NS, settings.fixed_rent, torch.where(slots.stage_NS == EMPTY, 0.0, settings.rent)
        ).sum(1)
        has_begun = self.step_1 > 0  # the warm-up is not rewarded, since the agent did not act in it
        reward_N = torch.where(has_begun, potential_N - self.potential_N - rent_N, 0.0)
        self.potential_N.copy_(potential_N)
        self.return_N.add_(reward_N)
        self.rent_N.add_(rent_N)
        return reward_N

    def _observe(self, slots: Slots, effects: Effects) -> Tensor:
        settings, scale = self.settings, self.settings.reward_scale
        accuracy_N, host_accuracy_N = effects.accuracy_NC[:, -1], effects.accuracy_NC[:, 0]
        average_N = torch.where(self.step_1 > 0, torch.lerp(accuracy_N, self.average_N, TREND_DECAY), accuracy_N)
        self.average_N.copy_(average_N)
        # Not one_hot, which checks its input and so prevents fusion.
        stage_NSF = (slots.stage_NS.unsqueeze(2) == self._stages).float()
        slot_NSF = torch.stack(
            [
                slots.alpha_NS,
                scale * effects.contribution_NS,
                scale * effects.shapley_NS,
                scale * effects.interaction_NL @ self._members_LS,
                slots.age_NS / settings.episode_steps,
            ],
            2,
        )
        left_N = (1 - self.step_1 / settings.episode_steps).expand_as(accuracy_N)
        global_NF = torch.stack(
            [accuracy_N, host_accuracy_N, self.counts.mean_losses()[:, 1], scale * (accuracy_N - average_N), left_N], 1
        )
        return torch.cat([torch.cat([stage_NSF, slot_NSF], 2).flatten(1), global_NF], 1)
