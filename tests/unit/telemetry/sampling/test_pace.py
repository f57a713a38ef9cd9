"""Telemetry samples as often as its budget allows, measured by a simulated clock."""

import pytest

from torchtriage.telemetry.config import TelemetryConfig, TelemetryLevel
from torchtriage.telemetry.sampling.pace import DENSE_UPDATES, GRACE_SECONDS, Pace


class Run:
    """A training whose steps and samples take a given time."""

    def __init__(
        self, step: float, sample: float, background: float = 0.0, config: TelemetryConfig | None = None
    ) -> None:
        self.now = 0.0
        self.config = config or TelemetryConfig()
        self.pace = Pace(self.config, clock=lambda: self.now)
        self.step, self.sample, self.background = step, sample, background
        self.samples: list[int] = []

    def go(self, num: int) -> "Run":
        for _ in range(num):
            is_sampled = self.pace.is_due
            self.now += self.step
            if is_sampled:
                self.samples.append(self.pace.num_updates + 1)
                self.now += self.sample
                self.pace.charge(self.sample)
                self.pace.charge_background(self.background, 1)
            self.pace.update_ended(is_sampled)
        return self


def test_cheap_sample_is_taken_at_the_interval_of_the_level() -> None:
    run = Run(step=0.1, sample=1e-4).go(100)
    assert run.samples[:DENSE_UPDATES] == list(range(1, DENSE_UPDATES + 1))
    assert set(b - a for a, b in zip(run.samples[DENSE_UPDATES:], run.samples[DENSE_UPDATES + 1 :], strict=False)) == {
        20
    }


def test_expensive_sample_is_taken_as_rarely_as_the_budget_requires() -> None:
    run = Run(step=0.01, sample=0.01, background=0.005).go(20_000)
    late = [step for step in run.samples if step > 10_000]
    share = 0.015 * len(late) / (0.01 * 10_000)
    assert 0.005 < share <= 0.0101
    assert run.pace.interval >= 150


def test_cost_of_the_start_is_compensated() -> None:
    run = Run(step=0.01, sample=0.01, background=0.005).go(1000)
    assert run.pace.share > 0.02
    assert run.go(10_000).pace.share <= 0.0101


def test_work_on_other_threads_counts_towards_the_share() -> None:
    run = Run(step=0.01, sample=0.0).go(10)
    run.pace.charge_background(1.0)
    assert run.go(1).pace.own_seconds == 1.0


def test_weights_are_sampled_rarely_except_at_the_start_and_while_escalated() -> None:
    run, seen = Run(step=0.1, sample=0.0, config=TelemetryConfig(normal_interval=3, weight_track_interval=7)), []
    for update in range(1, 61):
        if update == 50:
            run.config.escalate()
        if run.pace.is_due and "weights" in run.pace.wanted():
            seen.append(update)
        run.go(1)
    assert seen == [*range(1, 21), 29, 38, 47, 50, 51, 52, 53, 54, 55]


def test_short_run_is_sampled_whatever_it_costs() -> None:
    run = Run(step=0.001, sample=0.005).go(100)
    assert len(run.samples) == DENSE_UPDATES + 4       # all that were planned
    assert run.pace.own_seconds <= GRACE_SECONDS + 0.01


def test_one_slow_step_does_not_change_the_pace() -> None:
    run = Run(step=0.01, sample=0.002).go(8000)
    before = run.pace.stretch
    run.now += 60.0
    run.go(50)
    assert abs(run.pace.stretch - before) <= 1


def test_updates_between_samples_are_timed_together() -> None:
    run, asked = Run(step=0.1, sample=1e-4).go(DENSE_UPDATES), []
    run.pace.clock = lambda: asked.append(run.now) or run.now
    run.go(200)
    assert len(asked) == 2 * 10         # at a sample, and at the update before it
    # The duration of the first update is unknown.
    assert run.pace.run_seconds == pytest.approx(run.now - run.step - run.sample)
    assert run.config.update_count == run.pace.num_updates == DENSE_UPDATES + 200


def test_escalation_between_two_samples_takes_effect_immediately() -> None:
    run = Run(step=0.1, sample=1e-5).go(45)
    assert not run.pace.is_due
    run.config.escalate()
    run.go(3)
    assert run.samples[-2:] == [47, 48]


def test_off_never_samples_and_debug_always_within_the_budget() -> None:
    assert Run(step=0.1, sample=0.0, config=TelemetryConfig(level=TelemetryLevel.OFF)).go(10).samples == []
    assert len(Run(step=0.1, sample=1e-5, config=TelemetryConfig(level=TelemetryLevel.DEBUG)).go(50).samples) == 50


def test_escalation_samples_every_update() -> None:
    run = Run(step=0.1, sample=1e-5).go(105)
    assert run.config.escalate()
    run.go(6)
    assert [step for step in run.samples if step > 106] == [107, 108, 109, 110, 111]


@pytest.mark.parametrize("stalled", [2, 3, 15])
def test_one_sample_during_which_the_machine_stood_still_does_not_end_the_sampling(stalled: int) -> None:
    """As when the process is starved, or a page is read from a slow disk, for a second."""
    run = Run(step=0.002, sample=2e-5).go(stalled - 1)
    run.sample = 1.0
    run.go(1)
    run.sample = 2e-5
    run.go(2000)
    assert len([step for step in run.samples if step > stalled]) > 50
