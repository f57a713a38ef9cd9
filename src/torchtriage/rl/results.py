"""Results of a training: returns, speed, time by part, for one seed, several seeds, or against an earlier run."""

import dataclasses
import math
import random
import statistics
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from torchtriage.recording.series import EPISODE_LENGTH_MEAN, EPISODE_RETURN_MEAN
from torchtriage.text import counted

Return = Annotated[float, "may be infinite or NaN"]  # as recording/validation names it
NUM_LAST = 100  # episodes in the mean return, as in Stable-Baselines3 and RL Zoo
MAX_SPEEDS = 512  # updates whose speed is kept
NUM_DRAWS = 2000  # resamples of the bootstrap
SHARE = 0.95  # of an interval
PARTS = ("environment", "policy", "update", "telemetry", "compile", "profile", "checkpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results of one training.

    `seconds_by` splits its time by part; the remainder of `seconds` is Python overhead.
    """

    env: str
    seed: int
    num_steps: int
    num_updates: int
    num_episodes: int
    seconds: float
    last_returns: tuple[Return, ...] = ()  # of the last episodes, NUM_LAST at most
    eval_returns: tuple[Return, ...] = ()
    speeds: tuple[float, ...] = ()  # steps per second of single updates without compiles, thinned to MAX_SPEEDS
    seconds_by: Mapping[str, float] = field(default_factory=dict)
    is_complete: bool = True
    compiled: bool = False
    compile_reason: str = ""

    @property
    def mean_return(self) -> float:
        return _mean(self.last_returns)

    @property
    def eval_return(self) -> float:
        return _mean(self.eval_returns)

    @property
    def score(self) -> float:
        """The evaluation if there was one, else the mean of the last episodes."""
        return self.eval_return if self.eval_returns else self.mean_return

    @property
    def fps(self) -> float:
        """Environment steps per second over the entire training, including compiling, excluding the evaluation."""
        return self.num_steps / self.seconds if self.seconds > 0 else math.nan

    @property
    def steady_fps(self) -> float:
        """The median over updates: the speed at which a longer run would continue."""
        return statistics.median(self.speeds) if self.speeds else math.nan

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "Results":
        fields: dict[str, Any] = {}
        for name in (one.name for one in dataclasses.fields(Results)):
            if name in values:
                value = values[name]
                fields[name] = tuple(value) if isinstance(value, list) else value
        return Results(**fields)


class Tally:
    """Counts steps, episodes and seconds of a training; continues exactly from a saved state."""

    def __init__(self, env: str, seed: int) -> None:
        self.env, self.seed = env, seed
        self.num_steps = self.num_updates = self.num_episodes = 0
        self.seconds = 0.0
        self.seconds_by: dict[str, float] = {}
        self.returns: deque[float] = deque(maxlen=NUM_LAST)
        self.lengths: deque[int] = deque(maxlen=NUM_LAST)
        self.speeds: list[float] = []
        self.eval_returns: tuple[float, ...] = ()
        self.compiled, self.compile_reason = False, ""
        self.is_running = True
        self._compile_seconds: Mapping[str, float] = {}  # as of the last update

    def episodes_ended(self, episodes: Iterable[tuple[int, float, int]]) -> None:
        for _, episode_return, length in episodes:
            self.num_episodes += 1
            self.returns.append(episode_return)
            self.lengths.append(length)

    def update_ended(self, num_steps: int, seconds: float, compile_seconds: Mapping[str, float]) -> None:
        """Count an update; `compile_seconds` is the total in this process so far, by part.

        The speed of an update that compiled is not kept.
        """
        self.num_steps += num_steps
        self.num_updates += 1
        has_compiled = self._separate_compile_time(compile_seconds)
        if not has_compiled and seconds > 0:
            self.speeds.append(num_steps / seconds)
            if len(self.speeds) >= 2 * MAX_SPEEDS:
                self.speeds = self.speeds[::2]

    def spent(self, part: str, seconds: float) -> None:
        self.seconds_by[part] = self.seconds_by.get(part, 0.0) + seconds

    def _separate_compile_time(self, compile_seconds: Mapping[str, float]) -> bool:
        """Move new compile time from its part to "compile"; whether there was any."""
        has_compiled = False
        for part, total in compile_seconds.items():
            seconds = total - self._compile_seconds.get(part, 0.0)
            self.spent(part, -seconds)
            self.spent("compile", seconds)
            has_compiled = has_compiled or bool(seconds)
        self._compile_seconds = dict(compile_seconds)
        return has_compiled

    def rollout_metrics(self) -> dict[str, float]:
        """Mean return and length under the names of Stable-Baselines3; empty until an episode has ended."""
        if not self.returns:
            return {}
        return {EPISODE_RETURN_MEAN: _mean(self.returns), EPISODE_LENGTH_MEAN: _mean(self.lengths)}

    def results(self, is_complete: bool) -> Results:
        return Results(
            env=self.env,
            seed=self.seed,
            num_steps=self.num_steps,
            num_updates=self.num_updates,
            num_episodes=self.num_episodes,
            seconds=self.seconds,
            last_returns=tuple(self.returns),
            eval_returns=self.eval_returns,
            speeds=tuple(self.speeds[:MAX_SPEEDS]),
            seconds_by=dict(self.seconds_by),
            is_complete=is_complete,
            compiled=self.compiled,
            compile_reason=self.compile_reason,
        )

    def state_dict(self) -> dict[str, Any]:
        names = ("num_steps", "num_updates", "num_episodes", "seconds")
        return {
            **{name: getattr(self, name) for name in names},
            "seconds_by": dict(self.seconds_by),
            "returns": list(self.returns),
            "lengths": list(self.lengths),
            "speeds": list(self.speeds),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        before = self.state_dict()
        if state.keys() != before.keys():
            raise ValueError(f"expected the results {', '.join(before)}, found {', '.join(map(str, state))}")
        for name, value in state.items():
            if type(value) is not type(before[name]):
                raise ValueError(f"expected {type(before[name]).__name__} as {name}, found {type(value).__name__}")
            setattr(self, name, deque(value, maxlen=NUM_LAST) if name in ("returns", "lengths") else value)


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapInterval:
    middle: float
    low: float
    high: float

    def overlaps(self, other: "BootstrapInterval") -> bool:
        return self.low <= other.high and other.low <= self.high

    def __str__(self) -> str:
        return f"{number(self.middle)} [{number(self.low)}, {number(self.high)}]"


def bootstrap(
    values: Sequence[float], statistic: Callable[[Sequence[float]], float], seed: int = 0
) -> BootstrapInterval | None:
    """The interval that contains the statistic of 95 % of the resamples, which a fixed seed makes reproducible."""
    if len(values) < 2:
        return None
    draw = random.Random(seed)
    statistics_of_draws = sorted(statistic(draw.choices(values, k=len(values))) for _ in range(NUM_DRAWS))
    cut = round((1.0 - SHARE) / 2.0 * NUM_DRAWS)
    return BootstrapInterval(
        middle=statistic(values), low=statistics_of_draws[cut], high=statistics_of_draws[-1 - cut]
    )


def result_lines(results: Results) -> list[str]:
    """The results in a few lines."""
    last = results.last_returns
    steady = f" ({results.steady_fps:,.0f} steady)" if results.speeds else ""
    lines = [
        f"{results.env}, seed {results.seed}: {results.num_steps:,} steps, {results.num_updates:,} updates, "
        f"{results.num_episodes:,} episodes in {results.seconds:.1f} s, {results.fps:,.0f} steps/s{steady}"
    ]
    if last:
        lines.append(f"  return  {_spread(last)} over the last {counted(len(last), 'episode')}")
    else:
        lines.append("  return  no episode ended")
    if results.eval_returns:
        lines.append(
            f"  evaluation  {_spread(results.eval_returns)}, minimum {number(min(results.eval_returns))}, "
            f"over {counted(len(results.eval_returns), 'episode')}"
        )
    parts = {name: results.seconds_by.get(name, 0.0) for name in PARTS}
    parts["rest"] = max(0.0, results.seconds - sum(parts.values()))
    shares = []
    for name, seconds in parts.items():
        if results.seconds > 0 and seconds >= 0.005 * results.seconds:
            shares.append(f"{name} {seconds / results.seconds:.0%}")
    lines.append(f"  time  {', '.join(shares)}")
    return lines


def summary(runs: Sequence[Results]) -> list[str]:
    """A table with one row per seed, and below it the mean, standard deviation, minimum and interval over seeds."""
    ordered = sorted(runs, key=lambda run: run.seed)
    head = f"{'seed':>6} {'return':>10} {'evaluation':>11} {'steps/s':>9} {'seconds':>9}"
    rows = [
        f"{run.seed:>6} {number(run.mean_return):>10} {number(run.eval_return):>11} {run.fps:>9,.0f}"
        f" {run.seconds:>9.1f}{'' if run.is_complete else '  stopped early'}"
        for run in ordered
    ]
    lines = [head, *rows]
    scores = [run.score for run in ordered if math.isfinite(run.score)]
    interval = bootstrap(scores, statistics.fmean)
    if interval is not None:
        what = "evaluation" if all(run.eval_returns for run in ordered) else "return"
        lines.append(
            f"{what} over {len(scores)} seeds: mean {number(interval.middle)}, "
            f"standard deviation {number(statistics.stdev(scores))}, minimum {number(min(scores))}, "
            f"95 % interval of the mean [{number(interval.low)}, {number(interval.high)}]"
        )
    return lines


def comparison(now: Sequence[Results], before: Sequence[Results], name: str) -> list[str]:
    """Return and speed of two recordings, with intervals.

    The intervals are over seeds if a recording has several, else over episodes and updates.
    """
    lines = [f"compared with {name}:"]
    for what, unit, of, statistic in (
        ("return", "", _returns, statistics.fmean),
        ("speed", " steps/s", _speeds, statistics.median),
    ):
        ours, theirs = (bootstrap(of(runs), statistic) for runs in (now, before))
        if ours is None or theirs is None:
            lines.append(f"  {what}  not compared: both sides need at least two values")
            continue
        if ours.overlaps(theirs):
            verdict = "no difference shown, the intervals overlap"
        else:
            verdict = "higher" if ours.middle > theirs.middle else "lower"
        lines.append(f"  {what}  {ours}{unit} now, {theirs}{unit} before: {verdict}")
    return lines


def _returns(runs: Sequence[Results]) -> list[float]:
    if len(runs) > 1:
        return [run.score for run in runs if math.isfinite(run.score)]
    return [value for run in runs for value in run.eval_returns or run.last_returns]


def _speeds(runs: Sequence[Results]) -> list[float]:
    if len(runs) > 1:
        return [run.steady_fps for run in runs if run.speeds]
    return [speed for run in runs for speed in run.speeds]


def number(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:,.1f}" if abs(value) < 1e5 else f"{value:,.0f}"


def _spread(values: Sequence[float]) -> str:
    return number(_mean(values)) + (f" +- {number(statistics.stdev(values))}" if len(values) > 1 else "")


def _mean(values: Collection[float]) -> float:
    return statistics.fmean(values) if values else math.nan
