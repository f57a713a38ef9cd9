"""What to change for each learning rule, with the numbers of the run where they say how far."""

from collections.abc import Callable

from torchtriage.diagnosis.learning.memory import median
from torchtriage.diagnosis.learning.rule import short
from torchtriage.diagnosis.learning.story import Story
from torchtriage.diagnosis.learning.value_clipping import clipped_share, is_held_back
from torchtriage.recording.series import GRAD_NORM, GRAD_NORM_AFTER_CLIP


def fix(story: Story) -> str:
    words = _FIXES[story.code]
    return words(story) if callable(words) else words


def _batch(story: Story) -> str:
    """The step where it was first seen, or all since the observation before."""
    step, last = story.first.step, story.step_before
    if step is None:
        return "look at the batch"
    return f"look at the batch of step {step}" if last is None or step - last < 2 else f"look at the batches of steps {last + 1} to {step}"


def _found_in(story: Story) -> str:
    return f"go back to a checkpoint before it and {_batch(story)}; torch.autograd.set_detect_anomaly(True) there names the operation"


def _forward(story: Story) -> str:
    return f"{_found_in(story)}. Use log_softmax, cross_entropy and the like, and no log or division without a floor"


def _backward(story: Story) -> str:
    return f"{_found_in(story)}. Put a floor inside sqrt, norm, log and divisions, also behind a torch.where"


def _lr(story: Story) -> str:
    rates = dict.fromkeys(story.process.learning.optimizer_lr)
    return f" (now {', '.join(f'{rate:.3g}' for rate in rates)})" if rates else ""


def _clip_it(story: Story) -> str:
    norms = story.before(GRAD_NORM)
    if not norms:
        return f"{_batch(story)}; clip with torch.nn.utils.clip_grad_norm_, or lower the learning rate{_lr(story)}"
    middle = median(norms)
    clipped = story.at(GRAD_NORM_AFTER_CLIP, story.worst.step)
    if clipped is not None and clipped < story.worst.value:
        return f"{_batch(story)}; clipping to {short(clipped)} caught it; the median before was {short(middle)}"
    return (
        f"{_batch(story)}; clip at about {short(2 * middle)}, twice the median {short(middle)} before it: "
        f"torch.nn.utils.clip_grad_norm_(parameters, {short(2 * middle)}); or lower the learning rate{_lr(story)}"
    )


def _clip_higher(story: Story) -> str:
    norms = story.before(GRAD_NORM)
    usual = f": the median before clipping is {short(median(norms))}" if norms else ""
    return (
        f"raise max_norm to what is usual{usual}; or leave it: the gradient is then a direction, and the learning rate{_lr(story)} "
        "its length"
    )


def _smaller_lr(story: Story) -> str:
    factor = median([breach.value for breach in story.breaches]) / 1e-3
    return f"lower the learning rate{_lr(story)} of {story.worst.subject} by about {short(factor)}x, for a ratio of 1e-3, or warm it up"


def _no_value_clipping(otherwise: str) -> Callable[[Story], str]:
    def words(story: Story) -> str:
        return _UNCLIPPED.format(share=clipped_share(story)) if is_held_back(story) else otherwise

    return words


_UNCLIPPED = (
    "value clipping leaves the critic no gradient in {share:.0%} of the samples: leave it out (--clip-value 0), give it the scale of the "
    "returns, or normalise those"
)
_DEAD = (
    "see that the tensor takes part in the loss: no detach(), no torch.no_grad() on its way, no ReLU that is always off, no weight of 0 on "
    "its loss term; if it is meant to rest, requires_grad_(False) says so"
)
_FIXES: dict[str, str | Callable[[Story], str]] = {
    "TT401": _forward, "TT402": _backward, "TT404": _clip_it,
    "TT403": "go back to a checkpoint before it, optimizer state included; keep weights and that state in float32, with an eps that their "
             "type can hold (1e-8 is 0 in float16), and see that the learning rate is finite",
    "TT405": "shorten the path to these layers: residual connections, normalisation, an initialisation by fan-in (kaiming_, xavier_), or "
             "ReLU and its kin for sigmoid and tanh; in 16 bits scale the loss",
    "TT406": _no_value_clipping(_DEAD),
    "TT407": "give the two layers learning rates of their own, or normalise between them; an adaptive optimizer (Adam) evens it out",
    "TT408": _smaller_lr,
    "TT409": "raise the learning rate, or see whether its schedule has run to the end; weights in bfloat16 lose such updates: keep "
             "float32 copies",
    "TT410": "see whether the learning rate, the data or the loss terms changed at the first of these steps; where that is meant, nothing",
    "TT411": "look at the layers that vanish or explode from the first of these steps on (TT404, TT405 name them)",
    "TT412": "find the operation that overflows float16 (softmax of large logits, sums of squares) and run it in float32, or use bfloat16, "
             "which needs no scaler",
    "TT413": _clip_higher,
    "TT414": lambda story: f"{_batch(story)}; lower the learning rate or clip gradients if the loss does not come back by itself",
    "TT415": "overfit one batch first: if that fails too, the labels, the loss or the wiring are wrong; else try 10x and 0.1x the "
             "learning rate",
    "TT416": "see that the optimizer holds this tensor (a module built after the optimizer is not in it) and that its learning rate is not "
             "0; weights of 16 bits may lose updates that are too small: keep float32 copies",
    "TT417": "see whether the units behind it are off (ReLU) or the inputs are sparse by nature, as in an embedding; then nothing is wrong",
    "TT418": "clip gradients or lower the loss weight, and see whether inputs and targets are normalised",
    "TT419": "scale the loss with torch.amp.GradScaler, or use bfloat16",
    "TT501": "look at the step before it for an observation that is not finite, or weights that are not (TT403); the state carries it "
             "on until it is reset, so reset it once the cause is gone",
    "TT502": "reset the state at the end of each episode, normalise observations, and clip gradients through time; a forget gate that "
             "stays at 1 makes the cell a counter",
    "TT503": "see that the state is passed on from step to step and not reset at each of them, and that its inputs are not all zero",
    "TT504": "normalise observations and advantages, and lower the learning rate: a saturated tanh passes no gradient on",
    "TT601": "see that log-probabilities of masked actions are large and negative, not -inf, and clamp the log-ratio (to 20) before exp; "
             "skip an update whose loss is not finite",
    "TT602": "lower the learning rate or the number of epochs an update, stop at 1.5 times the target KL, and clamp the log-ratio",
    "TT603": "lower the learning rate or the number of epochs an update; see that masks are the same as when the actions were sampled",
    "TT604": "compute the old log-probabilities as the new ones are: same masks, same dropout (eval or train), same normalisation "
             "statistics, same recurrent state, same action after squashing",
    "TT605": _no_value_clipping("normalise returns, lower the value loss weight or the learning rate, clip gradients; give the critic a "
                                "body of its own if the policy's gradient disturbs it"),
    "TT606": "raise the entropy coefficient (double it) and lower the learning rate; a collapsed policy seldom recovers, so go back to a "
             "checkpoint",
    "TT607": "raise the entropy coefficient if returns are not yet what they should be; at the end of training a low entropy is the aim",
    "TT608": "stop the epochs at 1.5 times the target KL, lower the learning rate, and look at the advantages of that update",
    "TT609": "lower the learning rate or the number of epochs, or stop at 1.5 times the target KL",
    "TT610": "plan fewer epochs an update or lower the learning rate: as it is, the KL decides how long an update is",
    "TT611": "see whether all rewards are equal or the critic returns a constant; put a floor below the deviation before dividing by it",
    "TT612": "lower the learning rate or the number of epochs an update; more samples an update help too",
    "TT613": "find what is not finite in the first skipped update (TT401, TT402, TT601), and see that old log-probabilities are finite",
    "TT614": "no episode was better than another, so nothing tells good actions from bad ones: explore more (a larger entropy coefficient, "
             "more environments, longer episodes), shape the reward or begin episodes nearer to it, and see that rewards are passed on",
}
