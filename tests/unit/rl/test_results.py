"""The results of a training, their summary over seeds, and the comparison with an earlier training."""

import io
import math
import statistics

from hypothesis import given
from hypothesis import strategies as st

from torchtriage.rl.progress import Progress
from torchtriage.rl.results import MAX_SPEEDS, NUM_LAST, Results, Tally, bootstrap, comparison, result_lines, summary


def results(
    seed: int = 0, returns: tuple[float, ...] = (), evaluated: tuple[float, ...] = (), speeds: tuple[float, ...] = ()
) -> Results:
    return Results(
        env="E",
        seed=seed,
        num_steps=1000,
        num_updates=4,
        num_episodes=len(returns),
        seconds=2.0,
        last_returns=returns,
        eval_returns=evaluated,
        speeds=speeds,
        seconds_by={"environment": 0.5, "update": 1.0},
    )


def test_the_score_is_the_evaluation_if_there_was_one() -> None:
    assert results(returns=(1.0, 3.0)).score == 2.0
    assert results(returns=(1.0, 3.0), evaluated=(5.0,)).score == 5.0
    assert math.isnan(results().score)


def test_results_survive_a_recording() -> None:
    one = results(returns=(1.0, 2.0), speeds=(3.0,))
    assert Results.from_dict({**one.to_dict(), "last_returns": [1.0, 2.0], "of a later version": 3}) == one


def test_the_lines_show_return_speed_and_time_by_part() -> None:
    lines = result_lines(results(returns=(1.0, 3.0), evaluated=(4.0, 6.0)))
    assert lines[0] == "E, seed 0: 1,000 steps, 4 updates, 2 episodes in 2.0 s, 500 steps/s"
    assert lines[1] == "  return  2.0 +- 1.4 over the last 2 episodes"
    assert lines[2] == "  evaluation  5.0 +- 1.4, minimum 4.0, over 2 episodes"
    assert lines[3] == "  time  environment 25%, update 50%, rest 25%"
    assert "no episode ended" in result_lines(results())[1]


def test_a_summary_has_one_row_per_seed_and_the_spread_over_them() -> None:
    lines = summary(
        [results(seed=1, evaluated=(480.0,)), results(seed=0, evaluated=(500.0,)), results(seed=2, evaluated=(490.0,))]
    )
    assert [line.split()[0] for line in lines[1:4]] == ["0", "1", "2"]
    assert lines[4].startswith(
        "evaluation over 3 seeds: mean 490.0, standard deviation 10.0, minimum 480.0, 95 % interval of the mean [48"
    )


def test_only_a_clear_difference_is_reported() -> None:
    before = results(returns=tuple(map(float, range(90, 110))), speeds=(1000.0, 1010.0, 990.0))
    alike = comparison([before], [before], "a.triage")
    assert [line.rpartition(": ")[2] for line in alike[1:]] == ["no difference shown, the intervals overlap"] * 2
    better = results(returns=tuple(map(float, range(190, 210))), speeds=(500.0, 510.0, 490.0))
    lines = comparison([better], [before], "a.triage")
    assert lines[0] == "compared with a.triage:"
    assert lines[1].startswith("  return  199.5 [")
    assert lines[1].endswith(": higher")
    assert lines[2].endswith(" steps/s before: lower")


def test_several_seeds_are_compared_by_seed_and_not_by_episode() -> None:
    many = tuple([100.0] * 50)
    lines = comparison([results(0, many), results(1, tuple([0.0] * 50))], [results(0, many), results(1, many)], "b")
    assert lines[1].endswith("no difference shown, the intervals overlap")  # over 100 episodes it would appear certain


def test_one_value_has_no_interval() -> None:
    assert bootstrap([1.0], statistics.fmean) is None
    assert "not compared" in comparison([results(returns=(1.0,))], [results(returns=(2.0,))], "a")[1]


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_an_interval_contains_the_mean_and_is_reproducible(values: list[float]) -> None:
    found = bootstrap(values, statistics.fmean)
    assert found is not None
    assert min(values) - 1e-6 <= found.low <= found.high <= max(values) + 1e-6
    assert found == bootstrap(values, statistics.fmean)


def test_a_tally_continues_from_its_state() -> None:
    tally = Tally("E", 3)
    tally.episodes_ended([(0, float(i), i) for i in range(NUM_LAST + 5)])
    tally.update_ended(256, 0.5, {})
    tally.update_ended(256, 0.5, {})
    tally.spent("update", 0.25)
    again = Tally("E", 3)
    again.load_state_dict(tally.state_dict())
    for one in (tally, again):
        one.update_ended(256, 9.0, {"update": 8.0})
        assert (one.num_steps, one.num_updates, one.num_episodes) == (768, 3, 105)
        assert (len(one.returns), one.returns[0]) == (NUM_LAST, 5.0)
        assert one.speeds == [512.0, 512.0]  # the speed of an update that compiled is not kept
    assert again.results(True) == tally.results(True)


def test_speeds_stay_bounded() -> None:
    tally = Tally("E", 0)
    for _ in range(5 * MAX_SPEEDS):
        tally.update_ended(1, 1.0, {})
    assert len(tally.speeds) < 2 * MAX_SPEEDS
    assert len(tally.results(True).speeds) <= MAX_SPEEDS


def test_compile_time_is_counted_separately_also_after_a_resume() -> None:
    tally = Tally("E", 0)
    for part, seconds in (("update", 5.0), ("policy", 2.0)):
        tally.spent(part, seconds)
    tally.update_ended(10, 7.0, {"update": 4.0})
    tally.update_ended(10, 7.0, {"update": 4.0, "policy": 1.0})
    tally.update_ended(10, 1.0, {"update": 4.0, "policy": 1.0})
    assert tally.seconds_by == {"update": 1.0, "policy": 1.0, "compile": 5.0}
    assert tally.speeds == [10.0]  # of the one update that compiled nothing
    resumed = Tally("E", 0)
    resumed.load_state_dict(tally.state_dict())
    resumed.spent("update", 3.0)
    resumed.update_ended(10, 3.0, {"update": 2.5})
    assert resumed.seconds_by == {"update": 1.5, "policy": 1.0, "compile": 7.5}


def test_progress_without_a_terminal_is_ten_lines() -> None:
    file = io.StringIO()
    with Progress(1000, label="seed 3", file=file) as progress:
        for steps in range(10, 1010, 10):
            progress(steps, {"rollout/ep_rew_mean": 21.5, "time/fps": 4000.0, "train/approx_kl": math.nan})
    lines = file.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[0] == "torchtriage: seed 3:  10%  100 steps, return 21.5, steps/s 4,000"


def test_quiet_progress_prints_nothing() -> None:
    file = io.StringIO()
    with Progress(10, quiet=True, file=file) as progress:
        progress(10, {})
        progress.say("news")
    assert file.getvalue() == ""
