"""When telemetry looks: as often as its budget allows, by a clock of the test's own."""

import pytest

from torchtriage.telemetry.config import TelemetryConfig, TelemetryLevel
from torchtriage.telemetry.sampling.pace import DENSE_UPDATES, GRACE_SECONDS, Pace


class Run:
    """A training whose steps and looks take as long as it says."""

    def __init__(self, step: float, look: float, behind: float = 0.0, config: TelemetryConfig | None = None) -> None:
        self.now = 0.0
        self.config = config or TelemetryConfig()
        self.pace = Pace(self.config, clock=lambda: self.now)
        self.step, self.look, self.behind = step, look, behind
        self.looks: list[int] = []

    def go(self, num: int) -> "Run":
        for _ in range(num):
            looks = self.pace.is_due
            self.now += self.step
            if looks:
                self.looks.append(self.pace.num_updates + 1)
                self.now += self.look
                self.pace.spent(self.look)
                self.pace.spent_behind(self.behind, 1)
            self.pace.update_ended(looks)
        return self


def test_a_cheap_look_is_taken_at_the_interval_of_the_level() -> None:
    run = Run(step=0.1, look=1e-4).go(100)
    assert run.looks[:DENSE_UPDATES] == list(range(1, DENSE_UPDATES + 1))
    assert set(b - a for a, b in zip(run.looks[DENSE_UPDATES:], run.looks[DENSE_UPDATES + 1:], strict=False)) == {20}


def test_a_dear_look_is_taken_as_rarely_as_the_budget_asks() -> None:
    run = Run(step=0.01, look=0.01, behind=0.005).go(20_000)
    late = [step for step in run.looks if step > 10_000]
    share = 0.015 * len(late) / (0.01 * 10_000)
    assert 0.005 < share <= 0.0101
    assert run.pace.interval >= 150


def test_what_the_start_took_is_made_up_for() -> None:
    run = Run(step=0.01, look=0.01, behind=0.005).go(1000)
    assert run.pace.share > 0.02
    assert run.go(10_000).pace.share <= 0.0101


def test_work_on_other_threads_counts_towards_the_share() -> None:
    run = Run(step=0.01, look=0.0).go(10)
    run.pace.spent_behind(1.0)
    assert run.go(1).pace.own_seconds == 1.0


def test_weights_are_taken_less_often_than_gradients_but_at_the_start_and_while_escalated() -> None:
    run, seen = Run(step=0.1, look=0.0, config=TelemetryConfig(normal_interval=3, weight_track_interval=7)), []
    for update in range(1, 61):
        if update == 50:
            run.config.escalate()
        if run.pace.is_due and "weights" in run.pace.wanted():
            seen.append(update)
        run.go(1)
    assert seen == [*range(1, 21), 29, 38, 47, 50, 51, 52, 53, 54, 55]


def test_a_short_run_is_looked_at_whatever_it_costs() -> None:
    run = Run(step=0.001, look=0.005).go(100)
    assert len(run.looks) == DENSE_UPDATES + 4       # every one that was planned
    assert run.pace.own_seconds <= GRACE_SECONDS + 0.01


def test_one_slow_step_does_not_change_the_pace() -> None:
    run = Run(step=0.01, look=0.002).go(8000)
    before = run.pace.stretch
    run.now += 60.0
    run.go(50)
    assert abs(run.pace.stretch - before) <= 1


def test_updates_between_looks_are_not_timed_one_by_one_and_none_of_their_time_is_lost() -> None:
    run, asked = Run(step=0.1, look=1e-4).go(DENSE_UPDATES), []
    run.pace.clock = lambda: asked.append(run.now) or run.now
    run.go(200)
    assert len(asked) == 2 * 10         # at a look, and at the update before it
    assert run.pace.run_seconds == pytest.approx(run.now - run.step - run.look)       # how long the first took is not known
    assert run.config.update_count == run.pace.num_updates == DENSE_UPDATES + 200


def test_an_escalation_between_two_looks_is_followed_at_once() -> None:
    run = Run(step=0.1, look=1e-5).go(45)
    assert not run.pace.is_due
    run.config.escalate()
    run.go(3)
    assert run.looks[-2:] == [47, 48]


def test_off_never_looks_and_debug_always_within_the_budget() -> None:
    assert Run(step=0.1, look=0.0, config=TelemetryConfig(level=TelemetryLevel.OFF)).go(10).looks == []
    assert len(Run(step=0.1, look=1e-5, config=TelemetryConfig(level=TelemetryLevel.DEBUG)).go(50).looks) == 50


def test_an_escalation_looks_at_every_update() -> None:
    run = Run(step=0.1, look=1e-5).go(105)
    assert run.config.escalate()
    run.go(6)
    assert [step for step in run.looks if step > 106] == [107, 108, 109, 110, 111]
