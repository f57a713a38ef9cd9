"""TT4xx gradients, weights, numerics; TT5xx recurrent state; TT6xx PPO: recorded series and live anomalies to findings."""

from collections import defaultdict
from collections.abc import Iterator

from torchtriage.diagnosis.learning.fixes import fix
from torchtriage.diagnosis.learning.limits import limits_from
from torchtriage.diagnosis.learning.replay import breaches
from torchtriage.diagnosis.learning.rule import Breach, short
from torchtriage.diagnosis.learning.story import Story, cause, course, lasting, order_of_origin, title
from torchtriage.diagnosis.learning.value_clipping import is_echo, is_held_back, is_last_minibatch_only
from torchtriage.diagnosis.rules import finding, fingerprint_of, rule
from torchtriage.findings.catalogue import rule as catalogue_rule
from torchtriage.findings.model import YOU, Check, CheckKind, Evidence, Finding, Fix, SampledValue, Severity
from torchtriage.findings.severity import P1_SHARE
from torchtriage.recording.recording import Process
from torchtriage.recording.series import EPISODE_RETURN_MEAN, GRAD_NORM_AFTER_CLIP, LOSS, SCALER_SCALE, WEIGHT_NORM

# A noisy quantity passes its limit now and then. Live that is an anomaly; a finding it is from so many observations on, and from such a
# share of them. What is not listed is a finding at once.
WORTH_TELLING = {
    "TT410": (10, 0.1), "TT411": (10, 0.1), "TT418": (3, 0.01), "TT503": (3, 0.0), "TT504": (3, 0.0), "TT602": (3, 0.01),
    "TT603": (3, 0.05), "TT609": (3, 0.05),
}
SETTLED_BY_RETURNS = frozenset({"TT605", "TT606", "TT607", "TT614"})     # they hurt the returns, or they hurt nothing
# These divide each gradient by its own size, so that tensors of unequal gradients learn alike.
ADAPTIVE = frozenset({"Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "RAdam", "RMSprop", "Rprop"})
COLLAPSED_FOR = 3       # TT605: observations in a row; one bad rollout makes one
NAMED_BY_TENSORS = frozenset({"TT406", "TT416", "TT417"})   # which tensors it is about is part of the problem's name
MILDER = {"TT606": "TT607", "TT608": "TT609"}               # the same at a lower limit
MAX_NAMED = 50


@rule
def gradients_and_weights(process: Process) -> Iterator[Finding]:
    """Gradients, weights or the loss are not as they should be."""
    return _family("TT4", process)


@rule
def recurrent_state(process: Process) -> Iterator[Finding]:
    """The state of a recurrent network is not finite, explodes, vanishes or is saturated."""
    return _family("TT5", process)


@rule
def ppo(process: Process) -> Iterator[Finding]:
    """An update of PPO goes too far, or learns nothing."""
    return _family("TT6", process)


def _family(prefix: str, process: Process) -> Iterator[Finding]:
    return (found for code, found in told(process).items() if code == found.code and code.startswith(prefix))


def told(process: Process) -> dict[str, Finding]:
    """The finding of each rule that has one, worked out once."""
    return process.once(_told)


def _told(process: Process) -> dict[str, Finding]:
    """For each rule that has something to tell its finding; what follows from another rule's finding is told there."""
    groups: dict[str, list[Breach]] = defaultdict(list)
    for breach in breaches(process):
        groups[breach.code].append(breach)
    stories: dict[str, Story] = {}
    groups["TT605"] = lasting(groups["TT605"], process, COLLAPSED_FOR)
    for code in sorted(code for code, group in groups.items() if group):
        story = Story(code=code, breaches=groups[code], process=process, others=stories)
        if _is_known(code) and _is_worth_telling(story):
            stories[code] = story
    if (zeros := stories.get("TT406")) is not None and is_last_minibatch_only(zeros):
        for code in [code for code, story in stories.items() if story is zeros or is_echo(story, zeros)]:
            del stories[code]
    under = _told_under(stories)
    found = {
        code: _finding(story, [stories[other] for other, main in under.items() if main == code])
        for code, story in stories.items() if code not in under
    }
    return {code: found[under.get(code, code)] for code in stories}


def _told_under(stories: dict[str, Story]) -> dict[str, str]:
    """For the code of a story that follows from another one the code of that."""
    under = {milder: worse for worse, milder in MILDER.items() if worse in stories and milder in stories}
    zeros, collapse = stories.get("TT406"), stories.get("TT605")
    if zeros is not None and is_held_back(zeros):
        main = "TT605" if collapse is not None and is_held_back(collapse) else "TT406"
        under |= {code: main for code in ("TT404", "TT406") if code in stories and (code == "TT406" or is_echo(stories[code], zeros))}
        under.pop(main, None)
    chain = order_of_origin(stories)
    for code in chain[1:]:
        if stories[code].steps[0] <= stories[chain[0]].steps[-1] + 1:   # NaN that came much later is another one
            under[code] = chain[0]
    return under


def _is_known(code: str) -> bool:
    """A recording of a later version may tell of rules that this one has no page for."""
    try:
        return catalogue_rule(code).code[:3] in ("TT4", "TT5", "TT6")
    except KeyError:
        return False


def _is_worth_telling(story: Story) -> bool:
    if story.code == "TT415":   # a loss that came down in the end has no problem
        series = story.process.series.get(LOSS)
        last_block = limits_from(story.process.learning.learning_limits).loss_block
        return series is None or len(series.steps) <= last_block or not story.steps or story.steps[-1] >= series.steps[-last_block]
    if story.code == "TT614" and (returns := story.series) is not None and story.steps[-1] < returns.steps[-1]:
        return False        # they moved in the end
    if story.code in SETTLED_BY_RETURNS and _is_solved(story.process):
        return False
    if story.code == "TT407" and (names := story.process.learning.optimizers) and ADAPTIVE.issuperset(names):
        return False
    least, share = WORTH_TELLING.get(story.code, (1, 0.0))
    observed = len(story.series.values) if story.series is not None else 0
    return story.num_observations >= max(least, share * observed)


def _is_solved(process: Process) -> bool:
    """Whether the returns ended above what the environment calls solved: a sure policy is the aim then, whenever it became sure."""
    threshold, returns = process.learning.return_threshold, process.series.get(EPISODE_RETURN_MEAN)
    if threshold is None or returns is None or not len(returns.values):
        return False
    return returns.values[-1] >= threshold


def _finding(story: Story, followers: list[Story]) -> Finding:
    reason = " ".join(sorted(story.subjects)[:MAX_NAMED]) if story.code in NAMED_BY_TENSORS else ""
    rank = story.process.rank
    return finding(
        story.code, title=title(story), cause=cause(story), fix=Fix(text=fix(story)), owner=YOU,
        severity=min(_severity(one) for one in (story, *followers)),
        evidence=Evidence(
            num_events=story.num_observations, values=_values(story),
            reasons=tuple(dict.fromkeys(b.text for b in story.breaches[:20]))[:5], notes=_notes(story),
            folded=tuple(f"{title(other)}, {other.code}" for other in followers),
        ),
        verification=(Check(CheckKind.NO_FINDING_IN_TRAINING, code=story.code),),
        steps=tuple(story.steps[:MAX_NAMED]), ranks=() if rank is None else (rank,),
        fingerprint=fingerprint_of(story.code, None, reason, story.process),
    )


def _values(story: Story) -> tuple[SampledValue, ...]:
    return tuple(SampledValue(text=short(value), number=value, step=step) for step, value in course(story))


def _notes(story: Story) -> tuple[str, ...]:
    if len(story.subjects) < 2:
        return ()
    named = ", ".join(story.subjects[:MAX_NAMED])
    left = len(story.subjects) - MAX_NAMED
    return (f"in {named}" + (f" and {left} more" if left > 0 else ""),)


def _severity(story: Story) -> Severity:
    """The rule's own, but for what came of it."""
    default = catalogue_rule(story.code).severity
    worst = story.worst
    if story.code == "TT402" and _weights_stayed_finite(story):
        return Severity.P2
    if story.code == "TT404":
        clipped = story.at(GRAD_NORM_AFTER_CLIP, worst.step)
        return Severity.P3 if clipped is not None and clipped < worst.value else default
    if story.code == "TT412" and (worst.quantity == SCALER_SCALE or worst.value >= P1_SHARE):
        return Severity.P1
    if story.code == "TT613" and worst.value >= limits_from(story.process.learning.learning_limits).skipped_updates_dead:
        return Severity.P0
    return default


def _weights_stayed_finite(story: Story) -> bool:
    """Weights were seen after the first such gradient, and all were finite: somebody left that step out."""
    step = story.first.step
    if step is None or any(b.code == "TT403" for b in breaches(story.process)):
        return False
    weights = [series for name, series in story.process.series.items() if name.startswith(f"{WEIGHT_NORM}/")]
    return any(len(series.steps) and series.steps[-1] > step for series in weights)
