"""Which series a scalar of a foreign logger is, by its name: in its files, or in its calls.

Only names with the same meaning are here: a value loss without the scale of its returns, or a KL divergence to another
model than the old policy, has no rule.
"""

import functools

from torchtriage.recording.series import (
    CLIP_RANGE,
    EPISODE_LENGTH_MEAN,
    EPISODE_RETURN_MEAN,
    GRAD_NORM,
    LEARNING_RATE,
    LOSS,
    PPO,
    PPO_CLIP_FRACTION,
    PPO_EXPLAINED_VARIANCE,
    PPO_KL,
    PPO_POLICY_LOSS,
    RECURRENT,
    STEPS_PER_SECOND,
    TRAINER,
    quantities,
)

_ALIASES = {
    # Trainers of supervised models: Transformers, TRL, Lightning.
    "loss": LOSS, "train_loss": LOSS, "train/loss": LOSS, "training_loss": LOSS, "loss/train": LOSS,
    "loss/total": LOSS, "losses/total_loss": LOSS, "train_loss_step": LOSS,
    "grad_norm": GRAD_NORM, "train/grad_norm": GRAD_NORM, "gradient_norm": GRAD_NORM, "losses/grad_norm": GRAD_NORM,
    "learning_rate": LEARNING_RATE, "train/learning_rate": LEARNING_RATE, "charts/learning_rate": LEARNING_RATE,
    "lr": LEARNING_RATE,
    # Stable-Baselines3, in progress.csv and in event files.
    "train/approx_kl": PPO_KL, "train/clip_fraction": PPO_CLIP_FRACTION, "train/clip_range": CLIP_RANGE,
    "train/explained_variance": PPO_EXPLAINED_VARIANCE, "train/policy_gradient_loss": PPO_POLICY_LOSS,
    "rollout/ep_rew_mean": EPISODE_RETURN_MEAN, "rollout/ep_len_mean": EPISODE_LENGTH_MEAN,
    "time/fps": STEPS_PER_SECOND,
    # CleanRL.
    "losses/approx_kl": PPO_KL, "losses/clipfrac": PPO_CLIP_FRACTION, "losses/policy_loss": PPO_POLICY_LOSS,
    "losses/explained_variance": PPO_EXPLAINED_VARIANCE, "charts/episodic_return": EPISODE_RETURN_MEAN,
    "charts/episodic_length": EPISODE_LENGTH_MEAN, "charts/sps": STEPS_PER_SECOND,
    # TorchRL, whose loss modules give these names; the KL divergence is the mean of the negative log-ratio.
    "kl_approx": PPO_KL, "loss_objective": PPO_POLICY_LOSS,
    # PPO and GRPO of TRL.
    "policy/approxkl_avg": PPO_KL, "policy/clipfrac_avg": PPO_CLIP_FRACTION, "loss/policy_avg": PPO_POLICY_LOSS,
    "clip_ratio/region_mean": PPO_CLIP_FRACTION,
}
TRAIN_PREFIX = "train/"     # Transformers puts it before each name; so do the examples of TorchRL
_STEPS = ("step", "global_step", "_step", "time/total_timesteps", "total_timesteps", "steps", "iteration", "update")
# Quantities of torchtriage's own logs. Those of a single tensor have a slash, and are known by what precedes it.
_OWN = frozenset(quantity.name for quantity in quantities())
# Those that a program may pass to its own logger; taps measure the others.
_REPORTED = frozenset(
    quantity.name for section in (RECURRENT, PPO, TRAINER) for quantity in quantities(section) if not quantity.subject
) | set(_ALIASES.values())
MAX_CACHED = 4096       # names of one run


def series_name(name: str) -> str | None:
    """The series that a scalar is; None if its name is unknown."""
    if name in _OWN or name.partition("/")[0] in _OWN:
        return name
    alias = name.strip().lower()
    return _ALIASES.get(alias) or _ALIASES.get(alias.removeprefix(TRAIN_PREFIX))


@functools.lru_cache(MAX_CACHED)
def logged_series_name(name: str) -> str | None:
    """The series that a scalar of the program's logger is; None for unknown names and for those of single tensors."""
    series = series_name(name)
    return series if series in _REPORTED else None


def step_name(names: list[str]) -> str | None:
    """The column that counts the steps, if there is one."""
    by_name = {name.strip().lower(): name for name in reversed(names)}
    return next((by_name[one] for one in _STEPS if one in by_name), None)
