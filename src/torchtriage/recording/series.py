"""The vocabulary of recorded series: names, units, meanings; docs/metrics.md is generated from it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

SHARD = "shard_"            # before the name of a series that covers only the shards of one rank
GROUP = "group:"            # before the name of a group of tensors: `grad_norm/group:actor`

# The writers of series.
RUN = "`torchtriage run`"
SHAPES = "`torchtriage shapes`"
TELEMETRY = "telemetry"                     # of a `Monitor`, and of `torchtriage run` for any training
TRAIN = "`torchtriage train`"
PROGRAM = "the program"                     # passes its own numbers to `Monitor.step`


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """The quantity that a series measures. The name of the series is `name`, or `name/SUBJECT` if it has a subject."""

    name: str
    meaning: str
    unit: str
    statistic: str              # how several numbers become the one that is recorded
    writer: str
    section: str                # the table of docs/metrics.md
    subject: str = ""           # what follows the slash: NAME of a parameter, GROUP, HEAD, MODULE
    healthy: str = "any"

    @property
    def pattern(self) -> str:
        """`grad_norm/NAME`, as docs/metrics.md writes it."""
        return f"{self.name}/{self.subject}" if self.subject else self.name


class SeriesParts(NamedTuple):
    """The parts of a series name: `shard_grad_norm/group:actor` is a shard of grad_norm of the group actor."""

    quantity: str
    subject: str = ""           # of a tensor, a group (without `group:`), a head; empty for the total
    is_group: bool = False
    is_shard: bool = False


_QUANTITIES: list[Quantity] = []


def _define(
    name: str, meaning: str, *, unit: str, statistic: str, writer: str, section: str, subject: str = "",
    healthy: str = "any",
) -> str:
    """Add a quantity to the vocabulary. Returns its name: a plain str, as it is a key in the hot paths."""
    _QUANTITIES.append(Quantity(
        name=name, meaning=meaning, unit=unit, statistic=statistic, writer=writer, section=section, subject=subject,
        healthy=healthy,
    ))
    return name


def quantities(section: str | None = None) -> Iterator[Quantity]:
    """All quantities in the order of docs/metrics.md, or those of one of its sections."""
    for quantity in _QUANTITIES:
        if section is None or quantity.section == section:
            yield quantity


def series_of(quantity: str, subject: str) -> str:
    """The series of one tensor, head, module or update group: `grad_norm/fc.weight`."""
    return f"{quantity}/{subject}"


def series_of_group(quantity: str, group: str) -> str:
    """The series of the total of a named group of tensors: `grad_norm/group:actor`."""
    return f"{quantity}/{GROUP}{group}"


def parts_of(name: str) -> SeriesParts:
    """Split the name of a series. A quantity whose own name has a slash, such as `ppo/kl`, is not split there."""
    is_shard = name.startswith(SHARD)
    rest = name.removeprefix(SHARD)
    if rest in _NAMES:
        return SeriesParts(rest, is_shard=is_shard)
    quantity, _, subject = rest.partition("/")
    if quantity not in _NAMES:
        for name_with_slash in _NAMES_WITH_SLASH:
            if rest.startswith(f"{name_with_slash}/"):
                quantity, subject = name_with_slash, rest.removeprefix(f"{name_with_slash}/")
    is_group = subject.startswith(GROUP)
    return SeriesParts(quantity, subject.removeprefix(GROUP), is_group, is_shard)


def is_of(name: str, quantity: str) -> bool:
    """Whether a series is that of the quantity, for the total or for any subject."""
    return name == quantity or name.startswith(f"{quantity}/")


def total_norm(norms: Sequence[float]) -> float:
    """The L2 norm of several tensors, from the norm of each. NaN takes precedence over Inf, as in clip_grad_norm_."""
    norm = math.hypot(*norms)       # no intermediate overflow or underflow, but it prefers Inf to NaN
    if math.isinf(norm) and any(map(math.isnan, norms)):
        return math.nan
    return norm


# Time

TIME = "Time"
STEP_SECONDS = _define(
    "step_seconds", "time of one training step, from the second step on", unit="s",
    statistic="mean over the steps of a point", writer=RUN, section=TIME,
)
CALL_SECONDS = _define(
    "call_seconds", "time of one outermost call of a compiled function", unit="s",
    statistic="mean over the calls of a point", writer=SHAPES, section=TIME, subject="NUMBER",
)
CALL_COMPILES = _define(
    "call_compiles", "compiles that one outermost call of a compiled function started", unit="count",
    statistic="mean over the calls of a point", writer=SHAPES, section=TIME, subject="NUMBER",
)

# Loss, gradients, weights of the complete model

TOTALS = "Gradients, weights, loss"
LOSS = _define(
    "loss", "the loss that `backward` was called on", unit="loss", statistic="sum over the losses of a step",
    writer=TELEMETRY, section=TOTALS, healthy="finite; decreases",
)
GRAD_NORM = _define(
    "grad_norm", "norm of all gradients, unscaled, before clipping, in double precision", unit="gradient",
    statistic="L2 norm", writer=TELEMETRY, section=TOTALS, healthy="within 10x of its median",
)
GRAD_NORM_AFTER_CLIP = _define(
    "grad_norm_after_clip", "the same after clipping, from the first step on that is observed to be clipped",
    unit="gradient", statistic="L2 norm", writer=TELEMETRY, section=TOTALS, healthy="close to `grad_norm`",
)
GRAD_NORM_DRIFT = _define(
    "grad_norm_drift",
    "distance of `grad_norm` from its moving average (momentum 0.99): `abs(x - average) / max(average, 1e-8)`",
    unit="fraction", statistic="relative deviation", writer=PROGRAM, section=TOTALS, healthy="below 0.5",
)
GRAD_HEALTH = _define(
    "grad_health",
    "`1 - 0.5 * vanishing fraction - 0.8 * exploding fraction` of the tensors; 0 if a norm is not finite",
    unit="0 to 1", statistic="score", writer=f"{TRAIN}, {PROGRAM}", section=TOTALS, healthy="near 1",
)
GRAD_HEALTH_DRIFT = _define(
    "grad_health_drift", "distance of `grad_health` from its moving average, as `grad_norm_drift`", unit="fraction",
    statistic="relative deviation", writer=PROGRAM, section=TOTALS, healthy="below 0.5",
)
WEIGHT_NORM = _define(
    "weight_norm", "norm of all weights before the update", unit="weight", statistic="L2 norm", writer=TELEMETRY,
    section=TOTALS, healthy="changes",
)
UPDATE_RATIO = _define(
    "update_ratio", "norm of the update over norm of the weights of a parameter group; `all` is the entire model",
    unit="fraction", statistic="ratio of L2 norms", writer=TELEMETRY, section=TOTALS, subject="GROUP",
    healthy="about 1e-3",
)
SCALER_PREFIX = "scaler/"
SCALER_SCALE = _define(
    "scaler/scale", "loss scale of GradScaler", unit="factor", statistic="latest", writer=TELEMETRY, section=TOTALS,
    healthy="1 and more",
)
SCALER_SKIPPED_TOTAL = _define(
    "scaler/skipped_total", "steps that GradScaler has skipped so far", unit="count", statistic="running total",
    writer=TELEMETRY, section=TOTALS, healthy="one in 2,000 steps after the first 16",
)

# Settings

SETTINGS = "Settings"
LEARNING_RATE = _define(
    "train/learning_rate", "learning rate of the first parameter group; `torchtriage train`: as scheduled", unit="",
    statistic="latest", writer=f"{TRAIN}, {RUN}", section=SETTINGS,
)
WEIGHT_DECAY = _define(
    "train/weight_decay", "weight decay of the first parameter group", unit="", statistic="latest", writer=RUN,
    section=SETTINGS,
)
MOMENTUM = _define(
    "train/momentum", "momentum of the first parameter group, or its first beta", unit="", statistic="latest",
    writer=RUN, section=SETTINGS,
)
for _name, _what in ((LEARNING_RATE, "learning rate"), (WEIGHT_DECAY, "weight decay"), (MOMENTUM, "momentum")):
    _define(
        _name, f"{_what} of another of the first 8 parameter groups, or of another optimizer", unit="",
        statistic="latest", writer=RUN, section=SETTINGS, subject="GROUP",
    )
BACKWARD_PASSES = _define(
    "train/backward_passes", "backward passes of a loss since the last step of the first optimizer: accumulation",
    unit="count", statistic="count", writer=RUN, section=SETTINGS,
)
CLIP_THRESHOLD = _define(
    "train/clip_threshold", "limit that was passed to clip_grad_norm_ or clip_grad_value_", unit="gradient",
    statistic="latest", writer=RUN, section=SETTINGS,
)

# Each tensor

TENSORS = "Each tensor"
_define(
    GRAD_NORM, "norm of its gradient", unit="gradient", statistic="L2 norm", writer=TELEMETRY, section=TENSORS,
    subject="NAME", healthy="1e-7 and more, except for a few",
)
_define(
    WEIGHT_NORM, "norm of the weight before the update", unit="weight", statistic="L2 norm", writer=TELEMETRY,
    section=TENSORS, subject="NAME", healthy="changes",
)
GRAD_NAN = _define(
    "grad_nan", "NaN elements of the gradient", unit="count", statistic="count", writer=TELEMETRY, section=TENSORS,
    subject="NAME", healthy="0",
)
GRAD_INF = _define(
    "grad_inf", "infinite elements of the gradient", unit="count", statistic="count", writer=TELEMETRY,
    section=TENSORS, subject="NAME", healthy="0",
)
WEIGHT_NAN = _define(
    "weight_nan", "NaN elements of the weight", unit="count", statistic="count", writer=TELEMETRY, section=TENSORS,
    subject="NAME", healthy="0",
)
WEIGHT_INF = _define(
    "weight_inf", "infinite elements of the weight", unit="count", statistic="count", writer=TELEMETRY,
    section=TENSORS, subject="NAME", healthy="0",
)
GRAD_ZERO_FRACTION = _define(
    "grad_zero_fraction", "gradient elements that are exactly zero", unit="fraction", statistic="fraction",
    writer=TELEMETRY, section=TENSORS, subject="NAME", healthy="below 0.9, except for embeddings",
)
GRAD_LARGE_FRACTION = _define(
    "grad_large_fraction", "gradient elements above 10 in magnitude", unit="fraction", statistic="fraction",
    writer=TELEMETRY, section=TENSORS, subject="NAME", healthy="below 0.1",
)
GRAD_SMALL_FRACTION = _define(
    "grad_small_fraction", "gradient elements below 1e-6 in magnitude, zeros included", unit="fraction",
    statistic="fraction", writer=TELEMETRY, section=TENSORS, subject="NAME", healthy="any; in float16 below 0.9",
)
GRAD_MEAN = _define(
    "grad_mean", "mean of the finite gradient elements; at level DEBUG", unit="gradient", statistic="mean",
    writer=TELEMETRY, section=TENSORS, subject="NAME",
)
GRAD_STD = _define(
    "grad_std", "standard deviation of the finite gradient elements; at level DEBUG", unit="gradient",
    statistic="population standard deviation", writer=TELEMETRY, section=TENSORS, subject="NAME",
)
GRAD_MAX_ABS = _define(
    "grad_max_abs", "largest magnitude of the finite gradient elements; at level DEBUG", unit="gradient",
    statistic="maximum", writer=TELEMETRY, section=TENSORS, subject="NAME",
)
GRAD_EXPONENTS = _define(
    "grad_exponents",
    "64 counts by the power of two of each gradient element; with `Monitor(histograms=True)`, not in the recording",
    unit="count", statistic="histogram", writer=TELEMETRY, section=TENSORS, subject="NAME",
)
ACTIVATION_NORM = _define(
    "activation_norm",
    "norm of the latest output of a module without children; at DEBUG, with `activation_monitoring=True`",
    unit="activation", statistic="L2 norm", writer=TELEMETRY, section=TENSORS, subject="MODULE",
)
ACTIVATION_ZERO_FRACTION = _define(
    "activation_zero_fraction", "elements of that output that are exactly zero", unit="fraction",
    statistic="fraction", writer=TELEMETRY, section=TENSORS, subject="MODULE",
)
ACTIVATION_MAX_ABS = _define(
    "activation_max_abs", "largest magnitude of that output", unit="activation", statistic="maximum",
    writer=TELEMETRY, section=TENSORS, subject="MODULE",
)

# The monitor itself

MONITOR = "The monitor itself"
MONITOR_PREFIX = "telemetry/"
MONITOR_SHARE = _define(
    "telemetry/share",
    "time of telemetry on the program's threads, plus its processor time behind them, over the time of the run",
    unit="fraction", statistic="running ratio", writer=TELEMETRY, section=MONITOR,
    healthy="below 0.01 once the first 0.25 s are made up for",
)
MONITOR_INTERVAL = _define(
    "telemetry/interval", "steps from one observation to the next; 1 in the first 20 steps and while escalated",
    unit="steps", statistic="latest", writer=TELEMETRY, section=MONITOR,
)

# Recurrent state

RECURRENT = "Recurrent state"
LSTM_PREFIX = "lstm/"
_STATE_WRITER = f"{TRAIN}, {PROGRAM}"
_PPO_WRITER = f"{TRAIN}, {RUN}, {PROGRAM}"
LSTM_H_RMS = _define(
    "lstm/h_rms", "magnitude of the hidden state, over all environments", unit="state", statistic="root mean square",
    writer=_PPO_WRITER, section=RECURRENT, healthy="1e-6 to 0.95",
)
LSTM_C_RMS = _define(
    "lstm/c_rms", "magnitude of the cell state, over all environments", unit="state", statistic="root mean square",
    writer=_PPO_WRITER, section=RECURRENT, healthy="1e-6 to 10",
)
LSTM_H_RMS_MAX = _define(
    "lstm/h_rms_max", "magnitude of the hidden state in the environment where it is largest", unit="state",
    statistic="maximum of root mean squares", writer=_PPO_WRITER, section=RECURRENT, healthy="below 10",
)
LSTM_C_RMS_MAX = _define(
    "lstm/c_rms_max", "magnitude of the cell state in the environment where it is largest", unit="state",
    statistic="maximum of root mean squares", writer=_PPO_WRITER, section=RECURRENT, healthy="below 10",
)
LSTM_HAS_NAN = _define(
    "lstm/has_nan", "whether the state holds NaN", unit="0 or 1", statistic="maximum", writer=_PPO_WRITER,
    section=RECURRENT, healthy="0",
)
LSTM_HAS_INF = _define(
    "lstm/has_inf", "whether the state holds Inf", unit="0 or 1", statistic="maximum", writer=_PPO_WRITER,
    section=RECURRENT, healthy="0",
)
for _state, _what in (("h", "hidden state"), ("c", "cell state")):
    for _name, _meaning, _statistic in (
        (f"{_state}_rms_mean", f"magnitude of the {_what}, averaged over environments", "mean of root mean squares"),
        (f"{_state}_rms_min", f"smallest magnitude of the {_what} in an environment", "minimum of root mean squares"),
        (f"{_state}_max_abs", f"largest magnitude of the {_what}", "maximum"),
        (f"{_state}_l2", f"norm of the {_what}, which grows with the number of its elements", "L2 norm"),
    ):
        _define(
            LSTM_PREFIX + _name, _meaning, unit="state", statistic=_statistic, writer=_STATE_WRITER, section=RECURRENT,
        )

# PPO, one update each

PPO = "PPO"
PPO_PREFIX = "ppo/"
PPO_RATIO_MAX = _define(
    "ppo/ratio_max", "largest probability ratio, `exp(new log-prob - old log-prob)`", unit="factor",
    statistic="maximum", writer=_PPO_WRITER, section=PPO, healthy="below 5",
)
PPO_RATIO_MIN = _define(
    "ppo/ratio_min", "smallest probability ratio", unit="factor", statistic="minimum", writer=_PPO_WRITER,
    section=PPO, healthy="above 0.1",
)
PPO_FIRST_RATIO_DEVIATION = _define(
    "ppo/first_ratio_deviation", "largest `abs(ratio - 1)` of the first minibatch, before any optimizer step",
    unit="fraction", statistic="maximum", writer=_PPO_WRITER, section=PPO, healthy="rounding error",
)
PPO_KL = _define(
    "ppo/kl", "`mean(exp(l) - 1 - l)` of the log-ratio `l`", unit="nats", statistic="mean", writer=_PPO_WRITER,
    section=PPO, healthy="about 0.015",
)
PPO_ENTROPY = _define(
    "ppo/entropy", "entropy over that of a uniform policy", unit="0 to 1", statistic="mean", writer=_PPO_WRITER,
    section=PPO, healthy="above 0.3 until returns are good",
)
_define(
    PPO_ENTROPY, "the same for one of several heads", unit="0 to 1", statistic="mean", writer=PROGRAM, section=PPO,
    subject="HEAD", healthy="above 0.3 until returns are good",
)
PPO_VALUE_LOSS = _define(
    "ppo/value_loss", "mean squared error of the critic", unit="return squared", statistic="mean", writer=_PPO_WRITER,
    section=PPO, healthy="below 5 for returns of unit variance",
)
PPO_BELLMAN_ERROR = _define(
    "ppo/bellman_error",
    "`abs(reward + gamma * next value - value)` over the rollout, with the values of the policy that acted",
    unit="return", statistic="mean", writer=_STATE_WRITER, section=PPO, healthy="below 5 for returns of unit variance",
)
PPO_EXPLAINED_VARIANCE = _define(
    "ppo/explained_variance", "`1 - Var(returns - values) / Var(returns)`; NaN where returns do not vary",
    unit="up to 1", statistic="ratio", writer=_PPO_WRITER, section=PPO,
    healthy="at least -0.5, -0.2, 0, 0.1 in the first 10 %, to 25 %, to 75 %, and after",
)
PPO_RETURNS_STD = _define(
    "ppo/returns_std", "spread of the returns that the critic learns", unit="return", statistic="standard deviation",
    writer=_PPO_WRITER, section=PPO,
)
PPO_RETURNS_MEAN = _define(
    "ppo/returns_mean", "mean of the returns that the critic learns", unit="return", statistic="mean",
    writer=f"{RUN}, {PROGRAM}", section=PPO,
)
PPO_CLIP_FRACTION = _define(
    "ppo/clip_fraction", "samples whose ratio is outside the clipping range", unit="fraction", statistic="fraction",
    writer=_PPO_WRITER, section=PPO, healthy="0.1 to 0.3",
)
PPO_VALUE_CLIP_FRACTION = _define(
    "ppo/value_clip_fraction",
    "samples in which value clipping leaves the critic no gradient; only with `--clip-value`", unit="fraction",
    statistic="fraction", writer=_STATE_WRITER, section=PPO, healthy="below 0.5",
)
PPO_ADVANTAGE_STD = _define(
    "ppo/advantage_std", "spread of the advantages before they are normalised", unit="return",
    statistic="standard deviation", writer=_PPO_WRITER, section=PPO, healthy="above 1e-6",
)
PPO_EARLY_STOPPED = _define(
    "ppo/early_stopped", "whether KL ended the update before its last epoch", unit="0 or 1", statistic="maximum",
    writer=_STATE_WRITER, section=PPO, healthy="mostly 0",
)
PPO_UPDATES_SKIPPED_TOTAL = _define(
    "ppo/updates_skipped_total", "updates skipped so far because the loss was not finite", unit="count",
    statistic="running total", writer=_STATE_WRITER, section=PPO, healthy="0",
)

# `torchtriage train`

TRAINER = "`torchtriage train`"
EPISODE_RETURN_MEAN = _define(
    "rollout/ep_rew_mean", "return of the last 100 episodes", unit="return", statistic="mean", writer=f"{TRAIN}, {RUN}",
    section=TRAINER,
)
EPISODE_LENGTH_MEAN = _define(
    "rollout/ep_len_mean", "length of the last 100 episodes", unit="steps", statistic="mean", writer=f"{TRAIN}, {RUN}",
    section=TRAINER,
)
STEPS_PER_SECOND = _define(
    "time/fps", "environment steps per second of this update", unit="1/s", statistic="ratio", writer=TRAIN,
    section=TRAINER,
)
CLIP_RANGE = _define(
    "train/clip_range", "clipping range of this update, as scheduled", unit="", statistic="latest", writer=TRAIN,
    section=TRAINER,
)
PPO_POLICY_LOSS = _define(
    "ppo/policy_loss", "clipped surrogate loss", unit="", statistic="mean", writer=TRAIN, section=TRAINER,
)
PPO_ENTROPY_NATS = _define(
    "ppo/entropy_nats", "entropy, not normalised", unit="nats", statistic="mean", writer=TRAIN, section=TRAINER,
)
PPO_MINIBATCHES_SKIPPED = _define(
    "ppo/minibatches_skipped", "minibatches whose loss was not finite", unit="count", statistic="sum", writer=TRAIN,
    section=TRAINER,
)
GRAD_RATIO = _define(
    "grad_ratio", "root-mean-square gradient of one group over that of another: `grad_ratio/actor:critic`",
    unit="factor", statistic="ratio of root mean squares", writer=TRAIN, section=TRAINER, subject="A:B",
)
GROWTH_PREFIX = "growth/"
GROWTH_ACCURACY = _define(
    "growth/accuracy", "accuracy at the end of episodes of the growth environment, all seeds active", unit="0 to 1",
    statistic="mean", writer=TRAIN, section=TRAINER,
)
GROWTH_HOST_ACCURACY = _define(
    "growth/host_accuracy", "the same with no seed active", unit="0 to 1", statistic="mean", writer=TRAIN,
    section=TRAINER,
)
GROWTH_KEPT_ACCURACY = _define(
    "growth/kept_accuracy", "the same with only the fixed seeds active", unit="0 to 1", statistic="mean",
    writer=TRAIN, section=TRAINER,
)
GROWTH_RENT = _define(
    "growth/rent", "rent that was paid in an episode of the growth environment", unit="0 to 1", statistic="mean",
    writer=TRAIN, section=TRAINER,
)
GROWTH_GRADIENT_RATIO = _define(
    "growth/seed_host_gradient_ratio", "`DualGradientStats.normalized_ratio` over the seeds that learn",
    unit="factor", statistic="mean", writer=TRAIN, section=TRAINER, healthy="0.05 to 0.2",
)

_NAMES = frozenset(quantity.name for quantity in _QUANTITIES)
_NAMES_WITH_SLASH = tuple(name for name in _NAMES if "/" in name)
