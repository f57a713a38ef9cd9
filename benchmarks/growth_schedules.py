"""Agents to compare with a trained one: random, always waiting, fixed schedules, and the best of these by search."""

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from torchtriage.rl.growth.environment import GrowthEnvironments
from torchtriage.rl.growth.lifecycle import ADVANCE, BLEND_STEPS, FIX, GERMINATE, WAIT, action_number

# N environments, O observation size, T steps of an episode.


class Agent(Protocol):
    def act(self, observation_NO: Tensor, step: int) -> Tensor:
        """Actions of all environments in a step of their episode."""


class AlwaysWait:
    def act(self, observation_NO: Tensor, step: int) -> Tensor:
        return torch.full((len(observation_NO),), WAIT)


class RandomAgent:
    """Every action has the same probability."""

    def __init__(self, num_actions: int, seed: int) -> None:
        self._num_actions, self._generator = num_actions, torch.Generator().manual_seed(seed)

    def act(self, observation_NO: Tensor, step: int) -> Tensor:
        return torch.randint(self._num_actions, (len(observation_NO),), generator=self._generator)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The same for every task: germinate some slots one after the other, advance each, and fix each."""

    num_seeds: int
    start: int  # the step of the first germination
    training_steps: int  # from a seed's germination to its advance
    holding_steps: int  # from a seed's full blending to its fixing

    def actions(self, num_slots: int, num_steps: int) -> list[int]:
        """One action per step. Seeds are treated one after the other; actions beyond the episode are omitted."""
        turns = max(self.num_seeds, 1)
        kinds = {
            GERMINATE: self.start,
            ADVANCE: self.start + max(self.training_steps, turns),
            FIX: self.start + max(self.training_steps, turns) + max(BLEND_STEPS + self.holding_steps, turns),
        }
        planned = {
            first + slot: action_number(kind, slot, num_slots)
            for kind, first in kinds.items()
            for slot in range(self.num_seeds)
        }
        return [planned.get(step, WAIT) for step in range(num_steps)]


class ScheduledAgent:
    def __init__(self, schedule: Schedule, num_slots: int, num_steps: int) -> None:
        self._action_T = torch.tensor(schedule.actions(num_slots, num_steps))

    def act(self, observation_NO: Tensor, step: int) -> Tensor:
        return self._action_T[step].expand(len(observation_NO)).clone()


def mean_return(environments: GrowthEnvironments, agent: Agent, *, seed: int, episodes: int = 1) -> float:
    """The mean return of an agent over `episodes` episodes of every environment;
    the same seed gives the same tasks to every agent.
    """
    observation_NO = environments.reset(seed)
    returns: list[float] = []
    for step in itertools.cycle(range(environments.settings.episode_steps)):
        outcome = environments.step(agent.act(observation_NO, step))
        observation_NO = outcome.observation_NO
        returns += [value for _, value, _ in outcome.episodes]
        if len(returns) == episodes * environments.num_envs:
            return statistics.fmean(returns)
    raise AssertionError("an episode has at least one step")


def all_schedules(num_slots: int, num_steps: int) -> list[Schedule]:
    """The schedules of the search: all numbers of seeds, early and late starts, short and long training and holding.

    Only schedules whose every action fits into the episode are included.
    """
    grid = itertools.product(range(1, num_slots + 1), (0, 6, 12), (4, 8), (2, 8, 14, 20))
    schedules = [
        Schedule(num_seeds=n, start=start, training_steps=training, holding_steps=holding)
        for n, start, training, holding in grid
    ]
    return [
        schedule
        for schedule in schedules
        if num_steps - schedule.actions(num_slots, num_steps).count(WAIT) == 3 * schedule.num_seeds
    ]


def best_schedule(
    environments: GrowthEnvironments,
    schedules: Sequence[Schedule],
    *,
    seed: int,
    episodes: int = 1,
) -> tuple[Schedule, float]:
    """The schedule with the highest mean return on the same tasks, and that return."""
    num_slots, num_steps = environments.settings.host.num_slots, environments.settings.episode_steps
    values = [
        (mean_return(environments, ScheduledAgent(s, num_slots, num_steps), seed=seed, episodes=episodes), s)
        for s in schedules
    ]
    value, schedule = max(values, key=lambda pair: pair[0])
    return schedule, value
