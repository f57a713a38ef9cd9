"""TT505, TT506, TT615 to TT627: what must hold in any update of PPO but did not."""

from collections.abc import Iterator, Mapping

from torchtriage.diagnosis.learning.contracts import ContractTexts, finding_of_contract
from torchtriage.diagnosis.learning.rule import short
from torchtriage.diagnosis.rules import rule
from torchtriage.findings.model import Finding
from torchtriage.recording.facts import BrokenContract
from torchtriage.recording.recording import Process
from torchtriage.text import counted, row

IN_A_ROW = "In three updates in a row"


@rule
def broken_policy_contracts(process: Process) -> Iterator[Finding]:
    """The terms of a PPO loss do not belong together, or not to the rollout."""
    for broken in process.learning.contracts:
        texts = TEXTS.get(broken.code)
        if texts is not None:
            yield finding_of_contract(broken, texts, process)


def _clipping_title(broken: BrokenContract) -> str:
    if broken.value is not None:
        return f"the probability ratio is not clipped: 1 +- {short(broken.value)} allows every ratio below 1"
    return f"the probability ratio is not clipped: {broken.names[0] if broken.names else 'nothing bounds it'}"


def _clipping_cause(broken: BrokenContract) -> str:
    if broken.names:
        return (
            f"{IN_A_ROW} the loss took the larger of the plain and the clipped objective. PPO takes the smaller one: "
            "the larger one never loses its gradient where the ratio has gone too far."
        )
    if broken.value is not None:
        return (
            f"{IN_A_ROW} the ratio was clamped to {short(1.0 - broken.value)} to {short(1.0 + broken.value)}. A ratio "
            "is never negative, so how far a probability falls has no limit, and how far it rises hardly one."
        )
    return (
        f"{IN_A_ROW} the ratio is multiplied by the advantages and neither clamped nor bounded by another term of the "
        f"loss; in the last of them {broken.share or 0.0:.0%} of the ratios are outside 0.8 to 1.2."
    )


def _broadcast_cause(broken: BrokenContract) -> str:
    pairs, result = "each value was compared with the target", "The critic learns the mean of all targets"
    if broken.names:
        pairs, result = "each ratio was multiplied by the advantage", "The policy learns from their mean"
    return (
        f"{IN_A_ROW} {pairs} of every sample: shapes such as [{broken.count}, 1] and [{broken.count}] broadcast to "
        f"[{broken.count}, {broken.count}]. {result}."
    )


TEXTS: Mapping[str, ContractTexts] = {
    "TT505": ContractTexts(
        title=lambda broken: f"the state of {broken.names[0]} survives the end of every episode",
        cause=lambda broken: (
            f"{counted(broken.count, 'episode')} ended in the rollouts that were observed. After each of them "
            f"{broken.names[0]} was given the state that it had returned before, twice in a row; not one started again."
        ),
        fix="multiply the state by 1 - done, per environment, before the first observation of a new episode is passed "
            "in, in the rollout and in the update; keep it only if the task continues from episode to episode",
    ),
    "TT506": ContractTexts(
        title=lambda broken: f"{broken.names[0]} starts from a zero state at every step",
        cause=lambda broken: (
            f"In all {broken.count} steps inside of episodes that were observed {broken.names[0]} was given a state of "
            "zeros or none, although it had returned another one in the step before. It remembers nothing."
        ),
        fix="pass the state that the module returned into its next call; a mask that resets it is 1 inside of an "
            "episode and 0 at its start",
    ),
    "TT615": ContractTexts(
        title=lambda broken: f"the loss of PPO differentiates its {row(broken.names)}",
        cause=lambda broken: (
            f"{IN_A_ROW} the graph behind the loss leads through the {row(broken.names)}. They describe the rollout "
            "and are constants: a gradient through them cancels or distorts that of the policy or the critic."
        ),
        fix="compute them under torch.no_grad() when the rollout is collected, or detach() them before the loss",
    ),
    "TT616": ContractTexts(
        title=lambda broken: f"wrong sign in the loss of PPO: {row(broken.names)}",
        cause=lambda broken: (
            f"{IN_A_ROW} the graph behind the loss has this sign for {row(broken.names)}. The optimizer minimises the "
            "loss, so the update does the opposite of what the term is for."
        ),
        fix="ratio = exp(new log-probability - old log-probability); loss = policy loss - entropy coefficient * "
            "entropy + value coefficient * squared error",
    ),
    "TT617": ContractTexts(
        title=lambda broken: (
            f"the {'policy loss has ' if broken.names else 'value loss has '}{broken.total} "
            f"{'products' if broken.names else 'errors'} for {counted(broken.count, 'sample')}"
        ),
        cause=_broadcast_cause,
        fix="give both the same shape before they are combined: x.squeeze(-1) of the one with the last dimension of 1",
    ),
    "TT618": ContractTexts(
        title=_clipping_title,
        cause=_clipping_cause,
        fix="loss = -torch.min(ratio * advantages, ratio.clamp(1 - eps, 1 + eps) * advantages).mean(), with eps of "
            "0.1 to 0.3",
    ),
    "TT619": ContractTexts(
        title=lambda _: "the probability ratio stays 1 while the policy changes",
        cause=lambda broken: (
            f"{IN_A_ROW} all ratios of an update are exactly 1, although a weight of the policy changed in its "
            f"{counted(broken.count, 'later minibatch', 'later minibatches')}: the old log-probabilities are those of "
            "the current policy, so clipping never limits an update."
        ),
        fix="store the log-probabilities when the actions are sampled, and use those in all minibatches of the update",
    ),
    "TT620": ContractTexts(
        title=lambda _: "the policy does not change within its updates",
        cause=lambda broken: (
            f"{IN_A_ROW} the parameter of the policy nearest to the log-probabilities has the same values in all "
            f"{broken.count + 1} minibatches, and the probability ratio stays 1."
        ),
        fix="check that an optimizer holds the parameters of the policy in use, that it makes a step after each "
            "backward pass of the policy loss, and that its learning rate is not 0",
    ),
    "TT621": ContractTexts(
        title=lambda _: "the policy loss makes better actions less likely",
        cause=lambda broken: (
            f"{IN_A_ROW} the factor by which the loss raises the probability of an action falls with its advantage, "
            f"target minus value (correlation {short(broken.value or 0.0)} in the first minibatch; 1 is expected)."
        ),
        fix="check the sign of the policy loss, which is minus the mean of ratio * advantage, and that advantages are "
            "returns minus values",
    ),
    "TT622": ContractTexts(
        title=lambda _: "advantages do not belong to the value targets",
        cause=lambda broken: (
            f"{IN_A_ROW} the advantages of the first minibatch have a correlation of {short(broken.value or 0.0)} with "
            "target minus value of the same samples; computed from one rollout it is 1."
        ),
        fix="index all tensors of the rollout with the same indices, flatten them in the same order, and compute "
            "targets and advantages from the values of the policy that acted",
    ),
    "TT623": ContractTexts(
        title=lambda broken: (
            f"every minibatch of an {'epoch' if broken.names else 'update'} has the same {broken.count} of "
            f"{broken.total} samples"
        ),
        cause=lambda broken: (
            f"{IN_A_ROW} the advantages of all minibatches{' of each epoch' if broken.names else ''} are the same "
            f"numbers. The other samples are {'not used in that epoch' if broken.names else 'never used'}."
        ),
        fix="draw a new permutation of all samples per epoch, and take the next part of it for each minibatch",
    ),
    "TT624": ContractTexts(
        title=lambda _: "value targets continue past the end of episodes",
        cause=lambda broken: (
            f"{counted(broken.count, 'step')} of the last rollout ended an episode. After the end nothing follows, so "
            f"the target of each is its reward, {short(broken.value or 0.0)}; no target of the rollout has such a "
            f"value (the smallest is {short(broken.share or 0.0)}), so the value of the next episode is added. So it "
            "was in three updates in a row."
        ),
        fix="multiply the next value and the carried advantage by 1 - terminated in the recursion of the advantages; "
            "check that the flag belongs to the step whose action ended the episode",
    ),
    "TT626": ContractTexts(
        title=lambda _: "the rewards of the environment are not in the value targets",
        cause=lambda broken: (
            f"{IN_A_ROW} every step of the environment returned the reward {short(broken.value or 0.0)}. The target of "
            f"each of the {counted(broken.count, 'step')} that ended an episode in the last rollout is 0, and no "
            f"target is larger than {short(broken.share or 0.0)}."
        ),
        fix="store the reward of each step before the next one, and check the shape and dtype of the buffer: one of "
            "integers cuts rewards below 1 off",
    ),
    "TT627": ContractTexts(
        title=lambda _: "the entropy bonus outweighs the advantages",
        cause=lambda broken: (
            f"{IN_A_ROW} the coefficient of the entropy was {short(broken.value or 0.0)} times that of the policy "
            f"loss, whose advantages had a standard deviation of {short(broken.share or 0.0)}. A usual coefficient is "
            "0 to 0.1 per unit of it: the policy is trained to be random."
        ),
        fix="use an entropy coefficient of 0 to 0.05 with normalised advantages",
    ),
    "TT625": ContractTexts(
        title=lambda _: "value targets hold nothing of the future",
        cause=lambda broken: (
            f"{IN_A_ROW} all rewards were equal and {counted(broken.count, 'step')} of the last rollout ended an "
            f"episode. The target of an end is {short(broken.value or 0.0)}, and the mean of all targets "
            f"{short(broken.share or 0.0)}: the rewards that follow are not added, or are subtracted."
        ),
        fix="delta = reward + gamma * next value * (1 - terminated) - value; gamma is near 1, and 0 ignores all that "
            "follows",
    ),
}
