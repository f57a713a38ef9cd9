"""What value clipping does to the gradient of a critic, so that it is not taken for a dead layer, nor its end for an explosion."""

from torchtriage.diagnosis.learning.limits import limits_from
from torchtriage.diagnosis.learning.memory import median
from torchtriage.diagnosis.learning.story import Story
from torchtriage.recording.series import GRAD_NORM, PPO_VALUE_CLIP_FRACTION, series_of

SHARE = PPO_VALUE_CLIP_FRACTION
CRITIC = ("critic", "value")    # in the names of its tensors, here and in Stable-Baselines3, CleanRL and TRL
HELD_BACK = 0.5                 # of the samples: from here on value clipping is what keeps a critic from learning


def clipped_share(story: Story) -> float:
    """Of the samples of an update in which value clipping left the critic no gradient, at the steps of a story of the critic; else 0."""
    shares = [share for step in story.steps if (share := story.at(SHARE, step)) is not None]
    is_critic = all(any(word in name for word in CRITIC) for name in story.subjects)
    return median(shares) if shares and is_critic else 0.0


def is_held_back(story: Story) -> bool:
    return clipped_share(story) >= HELD_BACK


def is_last_minibatch_only(story: Story) -> bool:
    """Zero gradients of a critic that value clipping left in the minibatch that was looked at, while it learned from others before."""
    return story.code == "TT406" and 0.0 < clipped_share(story) < HELD_BACK


def is_echo(story: Story, zeros: Story) -> bool:
    """Whether most norms that an explosion is measured by lack the gradient of the tensors that were zero."""
    series = story.process.series.get(series_of(GRAD_NORM, zeros.worst.subject))
    if story.code != "TT404" or series is None or story.first.step is None:
        return False
    before = [value for step, value in zip(series.steps, series.values, strict=False) if step < story.first.step]
    return bool(before) and median(before[-limits_from(story.process.learning.learning_limits).window:]) == 0.0
