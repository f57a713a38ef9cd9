"""The agents for comparison follow their definitions, and growing pays off."""

import pytest
import torch

from benchmarks.growth_schedules import (
    AlwaysWait,
    RandomAgent,
    Schedule,
    ScheduledAgent,
    all_schedules,
    best_schedule,
    mean_return,
)
from torchtriage.rl.growth.environment import GrowthEnvironments
from torchtriage.rl.growth.lifecycle import ADVANCE, FIX, GERMINATE, WAIT, action_number
from torchtriage.rl.growth.program import GrowthSettings

SHORT = GrowthSettings(
    episode_steps=9, warmup_steps=1, minibatches=1, num_minibatches=2, minibatch_rows=16, validation_rows=32
)
TO_THE_END = Schedule(num_seeds=4, start=0, training_steps=4, holding_steps=14)


def test_a_schedule_treats_its_slots_in_sequence() -> None:
    actions = Schedule(num_seeds=2, start=1, training_steps=3, holding_steps=1).actions(4, 12)
    planned = {step: action for step, action in enumerate(actions) if action != WAIT}
    kinds = ((1, GERMINATE), (4, ADVANCE), (8, FIX))
    assert planned == {step + slot: action_number(kind, slot, 4) for step, kind in kinds for slot in range(2)}


def test_every_schedule_of_the_search_fixes_all_its_seeds_in_time() -> None:
    schedules = all_schedules(4, 40)
    assert {schedule.num_seeds for schedule in schedules} == {1, 2, 3, 4}
    for schedule in schedules:
        actions = schedule.actions(4, 40)
        for kind in (GERMINATE, ADVANCE, FIX):
            assert [actions.count(action_number(kind, slot, 4)) for slot in range(4)] == [
                slot < schedule.num_seeds for slot in range(4)
            ]
    assert len(all_schedules(4, 15)) < len(schedules)


def test_the_best_schedule_is_the_one_with_the_highest_return_on_the_same_tasks() -> None:
    environments = GrowthEnvironments(8, SHORT, compile=False)
    schedules = [Schedule(num_seeds=n, start=0, training_steps=2, holding_steps=0) for n in (1, 2)]
    values = [mean_return(environments, ScheduledAgent(s, 4, 9), seed=4) for s in schedules]
    assert best_schedule(environments, schedules, seed=4) == (schedules[values.index(max(values))], max(values))


def test_a_random_agent_is_reproducible_by_its_seed() -> None:
    observation_NO = torch.zeros(64, 3)
    first, again, other = (RandomAgent(17, seed).act(observation_NO, 0) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert (int(first.min()), int(first.max()) < 17) == (0, True)


@pytest.mark.thorough
def test_growing_beats_waiting_and_waiting_beats_random_actions() -> None:
    environments = GrowthEnvironments(32, compile=False)
    waiting = mean_return(environments, AlwaysWait(), seed=0)
    acting = mean_return(environments, RandomAgent(17, 0), seed=0)
    growing = mean_return(environments, ScheduledAgent(TO_THE_END, 4, 40), seed=0)
    assert growing > waiting + 0.3 > acting + 0.3
