"""Policies: actor, critic, optionally an LSTM for each, all parameters in one flat vector.

`named_parameters()` are views into `flat_P`: names, gradients and state dicts are those of ordinary modules, while an
optimizer step or a compiled function handles one tensor.

Shape suffixes: N environments, T steps, B sequences, O observation size, A action size, S numbers of recurrent state, P
parameters in all.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchtriage.rl.compile.compiled import Compiled
from torchtriage.rl.envs.spaces import Spaces
from torchtriage.rl.policy.distributions import gumbel
from torchtriage.rl.policy.lstm import Lstm
from torchtriage.rl.policy.network import ACTIVATIONS, Act, Evaluation, Network

MODULES = {"tanh": nn.Tanh, "relu": nn.ReLU}
# Gains of orthogonal weights; the small one of the action head makes the first actions nearly uniform.
TRUNK_GAIN, ACTION_GAIN, VALUE_GAIN = math.sqrt(2), 0.01, 1.0


class Policy(nn.Module):  # type: ignore[misc]  # torch is untyped for mypy here
    """Acts one step at a time and evaluates complete sequences.

    `hidden` gives the widths of each trunk. With `lstm_size` each trunk reads the outputs of its own LSTM; with
    `critic_lstm=False` the critic has a linear layer in place of its LSTM, and no memory. `orthogonal=False` keeps
    torch's own initial weights, as LSTMs always do. `state_size` is the number of recurrent state values per
    environment, in `num_states` parts (h and c of the actor, then of the critic).
    """

    def __init__(
        self,
        spaces: Spaces,
        *,
        hidden: Sequence[int] = (64, 64),
        lstm_size: int = 0,
        critic_lstm: bool = True,
        activation: str = "tanh",
        orthogonal: bool = True,
    ) -> None:
        super().__init__()
        _check(hidden, lstm_size, activation)
        self.is_discrete = spaces.num_actions is not None
        self.num_outputs = int(spaces.num_actions or spaces.action_size or 0)
        self.num_states = 0
        if lstm_size:
            self.num_states = 4 if critic_lstm else 2
        self.state_size = self.num_states * lstm_size
        size = spaces.observation_size
        if lstm_size:
            self.actor_memory = Lstm(size, lstm_size)
            self.critic_memory = Lstm(size, lstm_size) if critic_lstm else nn.Linear(size, lstm_size)
            size = lstm_size
        self.actor, self.critic = (_trunk(size, hidden, MODULES[activation]) for _ in range(2))
        size = hidden[-1] if hidden else size
        self.action_head, self.value_head = nn.Linear(size, self.num_outputs), nn.Linear(size, 1)
        if not self.is_discrete:
            self.log_std = nn.Parameter(torch.zeros(self.num_outputs))
        if orthogonal:
            self._draw_orthogonal()
        self.network = Network(
            is_discrete=self.is_discrete,
            num_layers=len(hidden),
            activation=activation,
            num_states=self.num_states,
            parts=tuple((name, _joint_shape(group)) for name, group in self._groups().items()),
        )
        self._tie()

    def act(self, observation_NO: Tensor, state_NS: Tensor, keep_N: Tensor, noise: Tensor | None) -> Act:
        """One step, with noise from `noise()`; None takes the most likely action. No gradients."""
        return self.network.act(self._weights, observation_NO, state_NS, keep_N, noise)

    def value(self, observation_NO: Tensor, state_NS: Tensor, keep_N: Tensor) -> Tensor:
        """Values of observations without an action, such as the last one of a truncated episode. No gradients."""
        return self.network.forward(self._weights, observation_NO.unsqueeze(0), state_NS, keep_N.unsqueeze(0))[1]

    def evaluate(self, observation_TBO: Tensor, state_BS: Tensor, keep_TB: Tensor, action_TB: Tensor) -> Evaluation:
        """Evaluate the actions of a rollout; T is 1 without an LSTM.

        No gradients: for them pass weights to `network.evaluate`.
        """
        return self.network.evaluate(self._weights, observation_TBO, state_BS, keep_TB, action_TB)

    def noise(self, *shape: int, generator: torch.Generator | None = None) -> Tensor:
        """The noise from which `act` samples, [*shape, A]; shape (T, N) gives it for an entire rollout."""
        if self.is_discrete:
            return gumbel(*shape, self.num_outputs, generator=generator, device=self.flat_P.device)
        return torch.randn(*shape, self.num_outputs, generator=generator, device=self.flat_P.device)

    def initial_state(self, num_envs: int) -> Tensor:
        return torch.zeros(num_envs, self.state_size, device=self.flat_P.device)

    # One flat vector

    def flat_views(self, flat_P: Tensor) -> list[tuple[nn.Parameter, Tensor]]:
        """Each parameter with its part of a flat vector, such as that of all gradients."""
        members = [p for group in self._groups().values() for p in group]
        parts = flat_P.split([p.numel() for p in members])
        return [(p, part.view(p.shape)) for p, part in zip(members, parts, strict=True)]

    def _groups(self) -> dict[str, list[nn.Parameter]]:
        """All parameters in the order of the flat vector; those that the two trunks use together are adjacent."""
        groups: dict[str, list[nn.Parameter]] = {}
        for layer, both in enumerate(zip(_linears(self.actor), _linears(self.critic), strict=True)):
            groups[f"weight {layer}"] = [linear.weight for linear in both]
            groups[f"bias {layer}"] = [linear.bias for linear in both]
        grouped = {id(p) for group in groups.values() for p in group}
        return groups | {name: [p] for name, p in self.named_parameters() if id(p) not in grouped}

    def _tie(self) -> None:
        """Make one vector of all parameters, and each parameter a view into it."""
        self.flat_P = torch.cat([p.detach().reshape(-1) for group in self._groups().values() for p in group])
        for parameter, view in self.flat_views(self.flat_P):
            parameter.data = view
        self._weights = self.network.weights(self.flat_P)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Policy":
        """Moving to a device or dtype gives each parameter its own memory, so they are tied again."""
        super()._apply(fn, recurse)
        self._tie()
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In a copy each parameter has its own memory, so they are tied again."""
        super().__setstate__(state)
        self._tie()

    def _draw_orthogonal(self) -> None:
        gains = (
            (self.actor, TRUNK_GAIN),
            (self.critic, TRUNK_GAIN),
            (self.action_head, ACTION_GAIN),
            (self.value_head, VALUE_GAIN),
        )
        for module, gain in gains:
            for linear in _linears(module):
                nn.init.orthogonal_(linear.weight, gain)
                nn.init.zeros_(linear.bias)


class CompiledAct:
    """`policy.act` as one full graph, which reads the weights at every call.

    Noise is required: the most likely action is computed eagerly.
    """

    def __init__(self, policy: Policy, backend: str = "inductor") -> None:
        self.policy = policy
        self.compiled = Compiled(_make_act, policy.network, name="the policy step", backend=backend)

    @torch.no_grad()  # type: ignore[untyped-decorator]  # always, since a graph is valid for one grad mode
    def __call__(self, observation_NO: Tensor, state_NS: Tensor, keep_N: Tensor, noise: Tensor) -> Act:
        # Returning an input unchanged costs a compiled function more than all its guards.
        if not self.policy.num_states:
            return Act(*self.compiled(self.policy.flat_P, observation_NO, None, keep_N, noise)[:3], state_NS)
        return self.compiled(self.policy.flat_P, observation_NO, state_NS, keep_N, noise)


def _make_act(network: Network) -> Callable[..., Act]:
    def act(flat_P: Tensor, observation_NO: Tensor, state_NS: Tensor, keep_N: Tensor, noise: Tensor) -> Act:
        return network.act(network.weights(flat_P), observation_NO, state_NS, keep_N, noise)

    return act


def _trunk(size: int, hidden: Sequence[int], activation: type[nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(size, width), activation()]
        size = width
    return nn.Sequential(*layers)


def _linears(module: nn.Module) -> list[nn.Linear]:
    return [layer for layer in module.modules() if isinstance(layer, nn.Linear)]


def _joint_shape(group: list[nn.Parameter]) -> tuple[int, ...]:
    """[2, out, in] for the weights of both trunks; [2, 1, out] for their biases, which are added to rows."""
    shape = tuple(group[0].shape)
    if len(group) == 1:
        return shape
    return (2, *shape) if len(shape) == 2 else (2, 1, *shape)


def _check(hidden: Sequence[int], lstm_size: int, activation: str) -> None:
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    if lstm_size < 0 or not all(width > 0 for width in hidden):
        raise ValueError(
            f"widths must be above 0 (lstm_size 0: no LSTM), got hidden {tuple(hidden)} and lstm_size {lstm_size}"
        )
