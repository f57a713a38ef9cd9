"""N growth environments behind the protocol that the trainer steps."""

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from torchtriage.rl.compile.compiled import Timed
from torchtriage.rl.envs.protocol import Outcome
from torchtriage.rl.envs.spaces import Spaces
from torchtriage.rl.growth import lifecycle
from torchtriage.rl.growth.program import GrowthProgram, GrowthSettings
from torchtriage.rl.growth.reports import EpisodeReport, reports_of
from torchtriage.telemetry.gradients.health import DualGradientStats

# N environments, S slots, O observation size.
STATE_VERSION = 1


class GrowthEnvironments:
    """A batch of small host networks; an agent decides when each of them grows which seed.

    Every episode draws a new task, host and seeds, and lasts `settings.episode_steps` steps; all environments begin and
    end together. `lifecycle` defines the actions, `program` the observations and rewards. An action that is not
    possible in the stage of its slot is a wait.
    """

    def __init__(
        self,
        num_envs: int = 16,
        settings: GrowthSettings | None = None,
        *,
        compile: bool = True,
        backend: str = "inductor",
    ) -> None:
        self.settings = settings or GrowthSettings()
        self.num_envs = num_envs
        num_actions = lifecycle.num_actions(self.settings.host.num_slots)
        self.spaces = Spaces(observation_size=self.settings.observation_size, num_actions=num_actions)
        self._last_action = num_actions - 1
        self.program = GrowthProgram(num_envs, self.settings)
        self.compiled = Timed(torch.compile(self.program.forward, fullgraph=True, backend=backend)) if compile else None
        self._step = self.compiled or self.program.forward
        self._generator = torch.Generator()
        self._observation_NO = torch.zeros(num_envs, self.settings.observation_size)
        self._steps = -1  # of the episode; -1 before the first one. The program also has it, as a tensor
        self._num_episodes = 0  # per environment, since the reset
        self._reports: list[EpisodeReport] = []
        self._wait_N = torch.full((num_envs,), lifecycle.WAIT)

    def reset(self, seed: int) -> Tensor:
        """Start again; the same seed gives the same tasks, hosts and seeds, independent of the global generator."""
        self._generator.manual_seed(seed)
        self._num_episodes = 0
        self._reports.clear()
        return self._begin()

    def step(self, actions: Tensor) -> Outcome:
        self._check(actions)
        final_NO, reward_N = self._step(actions)
        self._steps += 1
        is_end = self._steps == self.settings.episode_steps
        episodes: list[tuple[int, float, int]] = []
        if is_end:
            reports = reports_of(self.program, self._num_episodes)
            self._reports += reports
            episodes = [(report.environment, report.episode_return, report.length) for report in reports]
            self._num_episodes += 1
            self._begin()
        else:
            self._observation_NO = final_NO
        none_N, ended_N = torch.zeros(self.num_envs, dtype=torch.bool), torch.full((self.num_envs,), is_end)
        return Outcome(
            observation_NO=self._observation_NO,
            reward_N=reward_N,
            terminated_N=ended_N,
            truncated_N=none_N,
            final_NO=final_NO,
            dead_N=none_N,
            starts_N=ended_N,
            episodes=episodes,
        )

    def episode_reports(self) -> list[EpisodeReport]:
        """Reports of the episodes that ended since the last call; `report.emit(emitter)` emits one."""
        reports, self._reports = self._reports, []
        return reports

    def gradient_stats(self) -> list[list[DualGradientStats | None]]:
        """Gradient norms of seed and host in the last step, by environment and slot; None where no seed learns."""
        host_size, seed_size = self.settings.host.host_size, self.settings.host.seed_size
        host_norms, seed_norms = self.program.host_grad_N.tolist(), self.program.seed_grad_NS.tolist()
        learns = lifecycle.learns(self.program.stage_NS).tolist()
        stats: list[list[DualGradientStats | None]] = []
        for environment, host_norm in enumerate(host_norms):
            row: list[DualGradientStats | None] = []
            for slot, seed_norm in enumerate(seed_norms[environment]):
                slot_stats = DualGradientStats(
                    host_norm=host_norm, host_count=host_size, seed_norm=seed_norm, seed_count=seed_size
                )
                row.append(slot_stats if learns[environment][slot] else None)
            stats.append(row)
        return stats

    def state(self) -> dict[str, Any]:
        return {
            "version": STATE_VERSION,
            "settings": asdict(self.settings),
            "num_envs": self.num_envs,
            "program": {name: value.clone() for name, value in self.program.state_dict().items()},
            "generator": self._generator.get_state(),
            "observation_NO": self._observation_NO.clone(),
            "steps": self._steps,
            "num_episodes": self._num_episodes,
            "reports": [report.to_dict() for report in self._reports],
        }

    def load_state(self, state: dict[str, Any]) -> Tensor:
        actual = state.get("version"), state.get("settings"), state.get("num_envs")
        expected = STATE_VERSION, asdict(self.settings), self.num_envs
        if actual != expected:
            raise ValueError(
                f"GrowthEnvironments expects a state with version, settings and number of environments {expected}, "
                f"found {actual}; construct them as they were when the state was saved, or reset"
            )
        self.program.load_state_dict(state["program"])
        self._generator.set_state(state["generator"])
        self._observation_NO = state["observation_NO"].clone()
        self._steps, self._num_episodes = state["steps"], state["num_episodes"]
        self._reports = [EpisodeReport(**report) for report in state["reports"]]
        return self._observation_NO

    def close(self) -> None:
        """Nothing to release: the garbage collector frees everything."""

    def _begin(self) -> Tensor:
        self.program.begin(self._generator)
        self._steps = 0
        for _ in range(self.settings.warmup_steps):
            self._observation_NO, _ = self._step(self._wait_N)
        return self._observation_NO

    def _check(self, actions: Tensor) -> None:
        if self._steps < 0:
            raise RuntimeError("step was called before the first episode; call reset(seed) or load_state(state) first")
        if actions.shape != (self.num_envs,) or actions.dtype != torch.int64:
            raise ValueError(
                f"expected one int64 action for each of {self.num_envs} environments, "
                f"got {actions.dtype} of shape {tuple(actions.shape)}"
            )
        low, high = actions.aminmax()
        if int(low) < 0 or int(high) > self._last_action:
            raise ValueError(f"expected actions from 0 to {self._last_action}, got some from {int(low)} to {int(high)}")
