"""The parts of a training that can be compiled: policy step, update, growth environment.

They run eagerly until compiling pays off. This file is not in rl/compile, which the policy and the update import.
"""

from collections.abc import Callable
from typing import Any

import torch

from torchtriage.rl.compile import compile_times
from torchtriage.rl.compile.choice import CompileChoice, choice_by_flag, compile_choice
from torchtriage.rl.compile.compiled import Timed
from torchtriage.rl.config import TrainConfig
from torchtriage.rl.envs.protocol import Environments, make_environments
from torchtriage.rl.policy.policy import CompiledAct, Policy
from torchtriage.rl.ppo.losses import LossSettings
from torchtriage.rl.ppo.update import Update, UpdateSettings

GROWTH = "growth"
MEASURED_UPDATE = 2  # its time decides whether to compile; the first one warms up


class Engine:
    """Holds `act(observation, state, keep, noise)`, `update` and `environments`, compiled or eager."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.choice: CompileChoice | None = None
        self.environments = new_environments(config, compiles=config.compile == "yes")
        torch.manual_seed(config.seed)
        self.policy = Policy(
            self.environments.spaces,
            hidden=config.hidden,
            activation=config.activation,
            orthogonal=config.orthogonal,
            lstm_size=config.lstm_size if config.lstm else 0,
            critic_lstm=config.critic_lstm,
        )
        self.act: Callable[..., Any] = self.policy.act
        self.update = self._new_update(compiles=False)
        if config.compile != "auto":
            self.choose(choice_by_flag(config.compile))

    def decide(self, update: int, seconds: float) -> CompileChoice | None:
        """The choice, if it is made after this update, which took `seconds`; else None."""
        if self.choice is not None or update < MEASURED_UPDATE:
            return None
        if self.config.env == GROWTH:
            kind = GROWTH
        else:
            kind = "lstm" if self.config.lstm else "mlp"
        compile_time = compile_times.load(self._key)
        choice = compile_choice(
            kind,
            seconds,
            self.config.num_updates - update,
            is_cached=compile_time is not None,
            warm_seconds=None if compile_time is None else compile_time.warm_seconds,
        )
        return self.choose(choice)

    def choose(self, choice: CompileChoice) -> CompileChoice:
        """Apply the choice; the next call of a function compiles it."""
        self.choice = choice
        if choice.compiles:
            state = self.update.state_dict()
            self.update = self._new_update(compiles=True)
            self.update.load_state_dict(state)
            # An MLP's step is faster eager (0.094 against 0.121 ms for 8 rows), so it is compiled only on request.
            if self.policy.state_size or self.config.compile == "yes":
                self.act = CompiledAct(self.policy)
            if self.config.env == GROWTH and self.config.compile == "auto":
                environment_state = self.environments.state()
                self.environments = new_environments(self.config, compiles=True)
                self.environments.load_state(environment_state)
        return choice

    @property
    def compile_seconds(self) -> dict[str, float]:
        """Seconds spent so far in calls that compiled, by part of the training."""
        return {part: function.first_seconds for part, function in self._compiled.items() if function.first_seconds}

    def remember_compile(self) -> None:
        """Save the compile time for `auto` in the next run.

        It is not saved if another training in this process compiled a part: then this training measured no compile.
        """
        functions = self._compiled.values()
        if functions and all(function.is_first and function.first_seconds for function in functions):
            compile_times.save(self._key, sum(self.compile_seconds.values()))

    @property
    def _compiled(self) -> dict[str, Timed[..., Any]]:
        parts: dict[str, Any] = {"policy": self.act, "update": self.update, "environment": self.environments}
        functions = {name: getattr(part, "compiled", None) for name, part in parts.items()}
        return {name: function for name, function in functions.items() if function is not None}

    @property
    def _key(self) -> str:
        c = self.config
        return compile_times.key_of(
            self.environments.spaces,
            c.lstm,
            c.lstm_size,
            c.critic_lstm,
            c.hidden,
            c.activation,
            c.envs,
            c.steps,
            c.batch,
            c.entropy,
            c.value_coef,
            c.clip_value,
            c.max_grad_norm,
            c.target_kl,
            c.normalize_advantage,
        )

    def _new_update(self, compiles: bool) -> Update:
        c = self.config
        loss = LossSettings(
            value_coef=c.value_coef,
            entropy_coef=c.entropy,
            clip_value=c.clip_value,
            normalize_advantage=c.normalize_advantage,
        )
        return Update(
            self.policy,
            UpdateSettings(loss=loss, max_grad_norm=c.max_grad_norm, target_kl=c.target_kl),
            compile=compiles,
        )


def new_environments(config: TrainConfig, *, compiles: bool) -> Environments:
    if config.env != GROWTH:
        return make_environments(config.env, config.envs, config.stepping)
    from torchtriage.rl.growth.environment import GrowthEnvironments

    return GrowthEnvironments(config.envs, compile=compiles)
