"""The one table of limits of the learning rules: from which number on something counts as sick, and why that number."""

import dataclasses
import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningLimits:
    """Every number that a TT4xx, TT5xx or TT6xx rule compares with.

    A patience counts observations in a row, not steps: telemetry may look only at every twentieth step.
    """

    # Robust limits look at the values before: a median of fewer than 20 moves by itself, 50 are forgotten soon enough.
    warmup: int = 20
    window: int = 50

    # TT404. Ten times is what the seeds call exploding (there of the clip norm). Norms are heavy-tailed, so the spread is taken of their
    # logarithm: with a spread of 0.5, common in RL, six of them are a factor of 20.
    grad_norm_factor: float = 10.0
    grad_norm_sigmas: float = 6.0
    grad_norm_clear: float = 0.5            # once exploding, it is over below half of the limit
    grad_norm_max: float = math.inf         # an absolute bound knows nothing of the model's scale; set it where you know it

    # TT405. Tensor norm below 1e-7 as in the seeds and SageMaker's VanishingGradient. A share, as some tensors vanish by nature: the
    # gradient of an attention's key bias is zero but for rounding, one of about sixteen tensors of a block.
    vanishing_norm: float = 1e-7
    vanishing_share: float = 0.1
    vanishing_patience: int = 5

    zero_patience: int = 5                  # TT406: a branch that the loss skips now and then gives zeros for a step or two
    norm_ratio_max: float = 1000.0          # TT407: the seeds' bound of health between the largest and the smallest tensor norm
    norm_ratio_patience: int = 5

    # TT408, TT409. About 1e-3 is usual. An update of a tenth of the weight turns it over in ten steps, which is told after the warm-up:
    # weights that begin at zero (LoRA, biases) have no other way. 1e-7 is lost in rounding (float32 has 1.2e-7), and stays for long
    # where the learning rate warms up, hence the longer patience.
    update_ratio_max: float = 0.1
    update_ratio_min: float = 1e-7
    update_large_patience: int = 3
    update_small_patience: int = 20

    # TT410, TT411: the seeds' 0.5, against an average of about a hundred observations.
    drift_max: float = 0.5
    drift_momentum: float = 0.99
    drift_short_momentum: float = 0.8       # about five observations: of norms with a spread of 0.3, 0.5 is then five deviations away
    drift_most: float = 3.0                 # times the average: more of a single value does not count, so that a spike is no drift
    drift_floor: float = 1e-8               # keeps the drift finite where the average is near zero

    # TT412. GradScaler starts at 65536: sixteen halvings are calibration, and later one in 2,000 steps is its probing.
    skip_warmup: int = 100
    skip_window: int = 100
    skip_share: float = 0.05                # severity P2 begins where 5 % is lost
    skip_count: int = 5
    scale_min: float = 1.0                  # below this it is not the scale that overflows, but the gradient

    # TT413
    clipped_share: float = 0.9
    clipped_window: int = 100
    clipped_count: int = 50

    # TT414. Lightning's SpikeDetection asks for twice a running mean; ten spreads keep noise out of it. A loss that has come down to a
    # hundredth of where it began jumps by large factors and harms nobody.
    loss_spike_factor: float = 2.0
    loss_spike_sigmas: float = 10.0
    loss_spike_floor: float = 0.01

    # TT415: four blocks without a median that is clearly below the start. A plateau after progress is no finding.
    loss_start: int = 5
    loss_block: int = 50
    loss_blocks: int = 4
    loss_min_gain: float = 0.01

    unchanged_patience: int = 20            # TT416: a norm that stays the same to the last bit of a float32
    unchanged_rtol: float = 0.0

    # TT417, TT418: the seeds' per-layer score (zeros above 0.9: dead, values above 10 in more than 0.1: sick). TT419: below 1e-6 a
    # float16 is subnormal and keeps four bits or fewer; other types have the range, so they are not held to it.
    zero_fraction_max: float = 0.9
    large_fraction_max: float = 0.1
    small_fraction_max: float = 0.9
    fraction_patience: int = 5

    # TT502, TT503: RMS in (1e-6, 10), the seeds' range. TT504: with |h| <= 1, an RMS of 0.95 means that at least four units of five
    # are above 0.7, where the slope of tanh has halved.
    rms_max: float = 10.0
    rms_min: float = 1e-6
    rms_saturated: float = 0.95

    # TT602, TT603: the seeds' range of the probability ratio.
    ratio_max: float = 5.0
    ratio_min: float = 0.1
    # TT604. Nothing was updated yet, so only rounding may differ: float32 log-probs agree to about 1e-5, those of 16 bits to some 1e-2.
    first_ratio_max: float = 1e-3
    first_ratio_max_half: float = 5e-2

    # TT605. Calibrated by the seeds on 400 updates with normalised returns: healthy value loss up to 3.0 (p99 1.01), Bellman error up to
    # 3.44. A critic that explains half of the variance has not collapsed, whatever the scale of its loss.
    value_loss_max: float = 5.0
    bellman_error_max: float = 5.0
    explained_variance_healthy: float = 0.5
    # Explained variance alone gave false alarms; by phase it is a diagnostic.
    warmup_until: float = 0.10
    early_until: float = 0.25
    mid_until: float = 0.75
    explained_variance_warmup: float = -0.5
    explained_variance_early: float = -0.2
    explained_variance_mid: float = 0.0
    explained_variance_late: float = 0.1

    # TT606, TT607: normalised entropy, 1 is uniform.
    entropy_collapse: float = 0.1
    entropy_low: float = 0.3
    entropy_patience: int = 3
    entropy_clear: float = 1.5              # times the limit

    kl_extreme: float = 0.5                 # TT608
    kl_spike: float = 0.1                   # TT609: seven times the usual target of 0.015

    # TT610: a stop at every update means that the planned epochs are never run.
    early_stop_share: float = 0.9
    early_stop_window: int = 20

    advantage_std_min: float = 1e-6         # TT611: dividing by this makes rounding the signal
    clip_fraction_max: float = 0.5          # TT612: half of the samples give the policy no gradient
    clip_fraction_patience: int = 3
    flat_returns_patience: int = 20         # TT614: observations from the first on with one and the same mean return
    skipped_updates_dead: int = 3           # TT613: in a row; the trainer stops there

    def __post_init__(self) -> None:
        for name in ("window", "clipped_window", "early_stop_window", "loss_block", "loss_start", "warmup"):
            if getattr(self, name) < 2:
                raise ValueError(f"{name} must be at least 2 observations, got {getattr(self, name)}; raise it")

    def changed(self) -> dict[str, Any]:
        """The fields that differ from the default: what a recording keeps, so that a report repeats the verdicts."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if getattr(self, f.name) != f.default}


DEFAULT = LearningLimits()

# The numbers of SageMaker Debugger's built-in rules, for those that exist here. They are absolute and blind to scale, and its
# VanishingGradient takes the mean of |g| where this takes the norm of the tensor, which is larger.
SAGEMAKER = LearningLimits(
    vanishing_norm=1e-7, vanishing_share=0.0, vanishing_patience=1, zero_patience=1, update_ratio_min=1e-8, update_ratio_max=10.0,
    update_large_patience=1, update_small_patience=1, unchanged_patience=3, unchanged_rtol=1e-5, loss_start=2, loss_block=10,
    loss_blocks=1, loss_min_gain=0.0,
)
PRESETS: Mapping[str, LearningLimits] = {"default": DEFAULT, "sagemaker": SAGEMAKER}


def limits_for(preset: str = "default", **changes: Any) -> LearningLimits:
    """A preset with some of its fields changed; a name that does not exist is refused with the nearest that does."""
    if preset not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {preset!r}")
    known = {f.name for f in dataclasses.fields(LearningLimits)}
    for name in changes.keys() - known:
        near = difflib.get_close_matches(name, known, n=1)
        raise TypeError(f"there is no limit named {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    return dataclasses.replace(PRESETS[preset], **changes)


def limits_from(recorded: Mapping[str, float]) -> LearningLimits:
    """The limits that the run itself was watched with: those that its recording has changed. Limits of a later version are left out."""
    fields = {f.name: f.default for f in dataclasses.fields(LearningLimits)}
    changes: dict[str, Any] = {k: v for k, v in recorded.items() if k in fields and _fits(v, fields[k])}
    try:
        return dataclasses.replace(DEFAULT, **changes)
    except ValueError:
        return DEFAULT


def _fits(value: object, default: object) -> bool:
    return isinstance(value, int if isinstance(default, int) else (int, float)) and not isinstance(value, bool)
