"""What a training came to: returns, speed, where the time went; summaries over seeds and comparison with an earlier run; no torch."""

import dataclasses
import math
import random
import statistics
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NUM_LAST = 100          # episodes in the mean return, as SB3 and RL Zoo take it
MAX_SPEEDS = 512        # updates whose speed is kept
NUM_DRAWS = 2000        # of the bootstrap
SHARE = 0.95            # of an interval
PARTS = ("environment", "policy", "update", "telemetry", "compile", "profile", "checkpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Of one training. `seconds_by` splits its time; what is left of `seconds` is Python in between."""

    env: str
    seed: int
    num_steps: int
    num_updates: int
    num_episodes: int
    seconds: float
    last_returns: tuple[float, ...] = ()        # of the last episodes, NUM_LAST at most
    eval_returns: tuple[float, ...] = ()
    speeds: tuple[float, ...] = ()              # steps a second of single updates, thinned out to MAX_SPEEDS, compiles left out
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
        """Environment steps a second over the whole training, compiling included, the evaluation not."""
        return self.num_steps / self.seconds if self.seconds > 0 else math.nan

    @property
    def steady_fps(self) -> float:
        """The median over updates: what a longer run would go on with."""
        return statistics.median(self.speeds) if self.speeds else math.nan

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "Results":
        known = {one.name: values[one.name] for one in dataclasses.fields(Results) if one.name in values}
        fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in known.items()}
        return Results(**fields)


class Tally:
    """Counts what happens in a training; goes on from its state as if nothing had been between."""

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
        self._compile_seconds: Mapping[str, float] = {}     # as last told

    def episodes_ended(self, episodes: Iterable[tuple[int, float, int]]) -> None:
        for _, episode_return, length in episodes:
            self.num_episodes += 1
            self.returns.append(episode_return)
            self.lengths.append(length)

    def update_ended(self, num_steps: int, seconds: float, compile_seconds: Mapping[str, float]) -> None:
        """`compile_seconds`: in this process so far, by the part it happened in. The speed of an update that compiled is no other's."""
        self.num_steps += num_steps
        self.num_updates += 1
        is_compiled = self._take_out(compile_seconds)
        if not is_compiled and seconds > 0:
            self.speeds.append(num_steps / seconds)
            if len(self.speeds) >= 2 * MAX_SPEEDS:
                self.speeds = self.speeds[::2]

    def spent(self, part: str, seconds: float) -> None:
        self.seconds_by[part] = self.seconds_by.get(part, 0.0) + seconds

    def _take_out(self, compile_seconds: Mapping[str, float]) -> bool:
        new = {part: seconds - self._compile_seconds.get(part, 0.0) for part, seconds in compile_seconds.items()}
        self._compile_seconds = dict(compile_seconds)
        for part, seconds in new.items():
            self.spent(part, -seconds)
            self.spent("compile", seconds)
        return any(new.values())

    def rollout_metrics(self) -> dict[str, float]:
        """By the names of Stable-Baselines3; nothing before an episode has ended."""
        if not self.returns:
            return {}
        return {"rollout/ep_rew_mean": _mean(self.returns), "rollout/ep_len_mean": _mean(self.lengths)}

    def results(self, is_complete: bool) -> Results:
        return Results(
            env=self.env, seed=self.seed, num_steps=self.num_steps, num_updates=self.num_updates, num_episodes=self.num_episodes,
            seconds=self.seconds, last_returns=tuple(self.returns), eval_returns=self.eval_returns, speeds=tuple(self.speeds[:MAX_SPEEDS]),
            seconds_by=dict(self.seconds_by), is_complete=is_complete, compiled=self.compiled, compile_reason=self.compile_reason,
        )

    def state_dict(self) -> dict[str, Any]:
        names = ("num_steps", "num_updates", "num_episodes", "seconds")
        return {
            **{name: getattr(self, name) for name in names}, "seconds_by": dict(self.seconds_by), "returns": list(self.returns),
            "lengths": list(self.lengths), "speeds": list(self.speeds),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, deque(value, maxlen=NUM_LAST) if name in ("returns", "lengths") else value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    middle: float
    low: float
    high: float

    def overlaps(self, other: "Interval") -> bool:
        return self.low <= other.high and other.low <= self.high

    def __str__(self) -> str:
        return f"{number(self.middle)} [{number(self.low)}, {number(self.high)}]"


def bootstrap(values: Sequence[float], statistic: Callable[[Sequence[float]], float], seed: int = 0) -> Interval | None:
    """The interval that holds the statistic of 95 % of the resamples; the draws are fixed, so the same values give the same interval."""
    if len(values) < 2:
        return None
    draw = random.Random(seed)
    found = sorted(statistic(draw.choices(values, k=len(values))) for _ in range(NUM_DRAWS))
    cut = round((1.0 - SHARE) / 2.0 * NUM_DRAWS)
    return Interval(middle=statistic(values), low=found[cut], high=found[-1 - cut])


def told(results: Results) -> list[str]:
    """The results in a few lines."""
    last = results.last_returns
    lines = [f"{results.env}, seed {results.seed}: {results.num_steps:,} steps, {results.num_updates:,} updates, "
             f"{results.num_episodes:,} episodes in {results.seconds:.1f} s, {results.fps:,.0f} steps/s"
             + (f" ({results.steady_fps:,.0f} steady)" if results.speeds else "")]
    lines.append(f"  return  {_spread(last)} over the last {len(last)} episodes" if last else "  return  no episode ended")
    if results.eval_returns:
        lines.append(f"  evaluation  {_spread(results.eval_returns)}, {number(min(results.eval_returns))} at least, "
                     f"over {len(results.eval_returns)} episodes")
    parts = [(name, results.seconds_by.get(name, 0.0)) for name in PARTS]
    rest = results.seconds - sum(seconds for _, seconds in parts)
    shares = [f"{name} {seconds / results.seconds:.0%}" for name, seconds in (*parts, ("rest", max(0.0, rest)))
              if results.seconds > 0 and seconds >= 0.005 * results.seconds]
    lines.append(f"  time  {', '.join(shares)}")
    return lines


def summary(runs: Sequence[Results]) -> list[str]:
    """A table of seeds, and below it mean, standard deviation, least and the interval over seeds."""
    ordered = sorted(runs, key=lambda run: run.seed)
    head = f"{'seed':>6} {'return':>10} {'evaluation':>11} {'steps/s':>9} {'seconds':>9}"
    rows = [f"{run.seed:>6} {number(run.mean_return):>10} {number(run.eval_return):>11} {run.fps:>9,.0f} {run.seconds:>9.1f}"
            f"{'' if run.is_complete else '  stopped early'}" for run in ordered]
    lines = [head, *rows]
    scores = [run.score for run in ordered if math.isfinite(run.score)]
    interval = bootstrap(scores, statistics.fmean)
    if interval is not None:
        what = "evaluation" if all(run.eval_returns for run in ordered) else "return"
        lines.append(f"{what} over {len(scores)} seeds: mean {number(interval.middle)}, "
                     f"standard deviation {number(statistics.stdev(scores))}, least {number(min(scores))}, "
                     f"95 % interval of the mean [{number(interval.low)}, {number(interval.high)}]")
    return lines


def comparison(now: Sequence[Results], before: Sequence[Results], name: str) -> list[str]:
    """Return and speed of two recordings with their intervals: over seeds where both have several, else over episodes and updates."""
    lines = [f"compared with {name}:"]
    for what, unit, of, statistic in (
        ("return", "", _returns, statistics.fmean), ("speed", " steps/s", _speeds, statistics.median),
    ):
        ours, theirs = (bootstrap(of(runs), statistic) for runs in (now, before))
        if ours is None or theirs is None:
            lines.append(f"  {what}  not compared: it takes two values or more on both sides")
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
    return [value for run in runs for value in (run.eval_returns or run.last_returns)]


def _speeds(runs: Sequence[Results]) -> list[float]:
    return [run.steady_fps for run in runs if run.speeds] if len(runs) > 1 else [speed for run in runs for speed in run.speeds]


def number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.1f}" if abs(value) < 1e5 else f"{value:,.0f}"


def _spread(values: Sequence[float]) -> str:
    return number(_mean(values)) + (f" +- {number(statistics.stdev(values))}" if len(values) > 1 else "")


def _mean(values: Collection[float]) -> float:
    return statistics.fmean(values) if values else math.nan
