"""The PPO update: from the loss to Adam in one full graph, over one flat vector of weights.

    update.begin(rollout.value_TN, rollout.return_TN, rollout.advantage_TN, rollout.error_TN, rollout.live_TN)
    for epoch in range(epochs):
        for minibatch in rollout.minibatches(generator, size):
            update.run(minibatch, lr, clip)
        if update.is_stopped():
            break
    metrics = update.read()

Compiled and eager mode run the same function, and nothing in it waits for the device. A minibatch whose loss or
gradient norm is not finite leaves weights and moments unchanged. With a target KL, so does the first minibatch that
exceeds 1.5 times the target, and every one after it. This is decided on the device; `is_stopped` only saves time.

Shape suffixes: T steps, B sequences or rows, N environments, P parameters in all, M metrics.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchtriage.errors import TriageError
from torchtriage.recording.series import PPO_PREFIX
from torchtriage.rl.compile.compiled import Compiled
from torchtriage.rl.policy.network import Network
from torchtriage.rl.policy.policy import Policy
from torchtriage.rl.ppo.losses import LossSettings, ppo_loss, rollout_metrics
from torchtriage.rl.ppo.metrics import MetricTable, packed
from torchtriage.rl.ppo.rollout import Minibatch

KL_MARGIN = 1.5  # an update stops above this multiple of the target, as in Spinning Up and Stable-Baselines3
NORM_EPSILON = 1e-6  # as in torch.nn.utils.clip_grad_norm_
STATE_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSettings:
    """How an update learns; `max_grad_norm` 0: no clipping, `target_kl` 0: no early stop."""

    loss: LossSettings = field(default_factory=LossSettings)
    max_grad_norm: float = 0.5
    target_kl: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-5  # of Adam: PPO's, not torch's 1e-8


class UpdateState(NamedTuple):
    """The tensors that a minibatch changes in place. Each has at least one dimension: see RunningMoments."""

    flat_P: Tensor  # the policy's parameters
    grad_P: Tensor  # of the last minibatch, before clipping
    exp_avg_P: Tensor
    exp_avg_sq_P: Tensor
    num_steps_1: Tensor  # steps that Adam has taken
    stopped_1: Tensor  # whether KL has stopped this update


class Update:
    """Trains a policy.

    The gradients before clipping stay in each parameter's `grad`: views into one vector that every minibatch
    overwrites. `compiled` is None if it runs eagerly. `num_skipped` and `num_skipped_in_a_row` count updates without a
    single finite minibatch.
    """

    def __init__(
        self,
        policy: Policy,
        settings: UpdateSettings | None = None,
        *,
        compile: bool = False,
        backend: str = "inductor",
    ) -> None:
        self.policy, self.settings = policy, settings or UpdateSettings()
        flat_P = policy.flat_P.detach()
        self.state = UpdateState(
            # When traced, torch.func.grad gives the same graph as torch.autograd.grad, without changing a setting of
            # torch; in eager mode it costs more.
            flat_P=flat_P if compile else flat_P.requires_grad_(),
            grad_P=torch.zeros_like(policy.flat_P),
            exp_avg_P=torch.zeros_like(policy.flat_P),
            exp_avg_sq_P=torch.zeros_like(policy.flat_P),
            num_steps_1=policy.flat_P.new_zeros(1),
            stopped_1=policy.flat_P.new_zeros(1, dtype=torch.bool),
        )
        constants = policy.network, self.settings, _gradient_by_func if compile else _gradient_by_autograd
        self.compiled = Compiled(_make_step, *constants, name="the update", backend=backend) if compile else None
        self._step: Callable[..., Tensor] = self.compiled or _make_step(*constants)
        self._lr, self._clip = policy.flat_P.new_zeros(()), policy.flat_P.new_zeros(())
        self._table = MetricTable(flat_P.device)
        self.num_skipped = self.num_skipped_in_a_row = 0
        self._has_warned = False

    def begin(
        self, value_TN: Tensor, return_TN: Tensor, advantage_TN: Tensor, error_TN: Tensor, live_TN: Tensor
    ) -> None:
        """Start an update; `value_TN` are the values of the policy that acted, `error_TN` their Bellman errors."""
        if self.state.flat_P.data_ptr() != self.policy.flat_P.data_ptr():
            raise TriageError(
                "the memory of the policy changed after its Update was constructed; move the policy to its device"
                " before constructing the Update"
            )
        self.state.stopped_1.zero_()
        self._table.begin(rollout_metrics(value_TN, return_TN, advantage_TN, error_TN, live_TN))
        for parameter, grad in self.policy.flat_views(self.state.grad_P):
            parameter.grad = grad  # every time, since zero_grad() removes it

    def run(self, minibatch: Minibatch, lr: Tensor | float, clip: Tensor | float) -> None:
        """Learn from one minibatch; all must have the same shape."""
        self._lr.fill_(lr)
        self._clip.fill_(clip)
        self._table.add(self._step(self.state, minibatch, self._lr, self._clip))

    def is_stopped(self) -> bool:
        """Whether KL has stopped this update. With a target KL this reads from the device: call it once per epoch."""
        return bool(self.settings.target_kl) and bool(self.state.stopped_1.item())

    def read(self) -> dict[str, float]:
        """The metrics of this update, named as in docs/metrics.md; only here the host waits for the device.

        `ppo/entropy` is relative to that of a uniform policy. There is no uniform policy over the real numbers, so
        continuous actions have only `ppo/entropy_nats`.
        """
        values = self._table.read()
        if values.get("minibatches"):
            is_skipped = values["minibatches_skipped"] == values["minibatches"]
            self.num_skipped += is_skipped
            self.num_skipped_in_a_row = self.num_skipped_in_a_row + 1 if is_skipped else 0
            if self.policy.is_discrete and self.policy.num_outputs > 1:
                values["entropy"] = values["entropy_nats"] / math.log(self.policy.num_outputs)
        if not self.settings.loss.clip_value:
            values.pop("value_clip_fraction", None)
        values["updates_skipped_total"] = float(self.num_skipped)
        if math.isnan(values["explained_variance"]) and values["returns_std"] == 0 and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                "explained variance is NaN: the returns of the rollout do not vary, so there is nothing to explain",
                stacklevel=2,
            )
        return {PPO_PREFIX + name: value for name, value in values.items()}

    def state_dict(self) -> dict[str, Any]:
        """The state needed to continue exactly between two updates, without the policy's weights."""
        state = self.state
        return {
            "version": STATE_VERSION,
            "exp_avg": state.exp_avg_P.clone(),
            "exp_avg_sq": state.exp_avg_sq_P.clone(),
            "num_steps": int(state.num_steps_1.item()),
            "num_skipped": self.num_skipped,
            "num_skipped_in_a_row": self.num_skipped_in_a_row,
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        state, size = self.state, len(saved["exp_avg"])
        if saved["version"] != STATE_VERSION or size != len(state.exp_avg_P):
            raise TriageError(
                f"expected the state of an update of {len(state.exp_avg_P)} parameters, version {STATE_VERSION}, "
                f"got {size}, version {saved['version']}; construct the policy as it was"
            )
        state.exp_avg_P.copy_(saved["exp_avg"])
        state.exp_avg_sq_P.copy_(saved["exp_avg_sq"])
        state.num_steps_1.fill_(saved["num_steps"])
        self.num_skipped, self.num_skipped_in_a_row = saved["num_skipped"], saved["num_skipped_in_a_row"]


Values = dict[str, Tensor]
Loss = Callable[..., tuple[Tensor, Values]]


def _make_step(
    network: Network, settings: UpdateSettings, gradient: Callable[..., tuple[Tensor, Values]]
) -> Callable[..., Tensor]:
    """The function of one minibatch, which changes the state in place and returns the metrics [M]."""

    def loss_of(flat_P: Tensor, minibatch: Minibatch, clip: Tensor) -> tuple[Tensor, Values]:
        evaluation = network.evaluate(
            network.weights(flat_P),
            minibatch.observation_TBO,
            minibatch.state_BS,
            minibatch.keep_TB,
            minibatch.action_TB,
        )
        return ppo_loss(evaluation, minibatch, clip, settings.loss)

    def step(state: UpdateState, minibatch: Minibatch, lr: Tensor, clip: Tensor) -> Tensor:
        grad_P, values = gradient(loss_of, state.flat_P, minibatch, clip)
        with torch.no_grad():
            return _clip_and_step(state, grad_P, values, lr, settings)

    return step


def _gradient_by_func(loss_of: Loss, flat_P: Tensor, minibatch: Minibatch, clip: Tensor) -> tuple[Tensor, Values]:
    return torch.func.grad(loss_of, has_aux=True)(flat_P, minibatch, clip)  # type: ignore[no-any-return]


def _gradient_by_autograd(loss_of: Loss, flat_P: Tensor, minibatch: Minibatch, clip: Tensor) -> tuple[Tensor, Values]:
    with torch.enable_grad():
        loss, values = loss_of(flat_P, minibatch, clip)
    return torch.autograd.grad(loss, flat_P)[0], values


def _clip_and_step(state: UpdateState, grad_P: Tensor, values: Values, lr: Tensor, settings: UpdateSettings) -> Tensor:
    """Clip and step, unless the minibatch has no live row or is not finite, or the update was stopped."""
    state.grad_P.copy_(grad_P)
    norm = torch.linalg.vector_norm(grad_P)
    counts_1 = (values["rows"] > 0) & ~state.stopped_1
    is_finite = (values["loss"] + norm).isfinite()
    if settings.target_kl:
        state.stopped_1.logical_or_(values["kl"] > KL_MARGIN * settings.target_kl)
    steps_1 = counts_1 & is_finite & ~state.stopped_1
    scale = (settings.max_grad_norm / (norm + NORM_EPSILON)).clamp(max=1) if settings.max_grad_norm else 1.0
    _adam(state, (grad_P * scale).masked_fill(~steps_1, 0.0), steps_1.to(grad_P.dtype), lr, settings)
    return packed(
        values
        | {
            "grad_norm": norm,
            "early_stopped": state.stopped_1[0],
            "minibatches_skipped": ~is_finite,
            "minibatches": counts_1[0],
        }
    )


def _adam(state: UpdateState, grad_P: Tensor, steps_1: Tensor, lr: Tensor, settings: UpdateSettings) -> None:
    """One step of torch.optim.Adam if `steps_1` is 1; if it is 0, as the gradient then is, nothing changes."""
    beta1, beta2 = settings.betas
    state.num_steps_1.add_(steps_1)
    # 1 - beta ** step, which would lose four digits in the first steps if computed in float32.
    correction1_1, correction2_1 = (
        -torch.expm1(state.num_steps_1.clamp(min=1) * math.log(beta)) for beta in settings.betas
    )
    state.exp_avg_P.lerp_(grad_P, (1 - beta1) * steps_1)
    state.exp_avg_sq_P.mul_(1 - (1 - beta2) * steps_1).addcmul_(grad_P, grad_P, value=1 - beta2)
    divisor_P = (state.exp_avg_sq_P / correction2_1).sqrt_().add_(settings.epsilon)
    state.flat_P.sub_(torch.div(state.exp_avg_P, divisor_P).mul_(lr * steps_1 / correction1_1))
