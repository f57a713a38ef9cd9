"""TT420 to TT455: what must hold in any training but did not."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from torchtriage.diagnosis.learning.finding import learning_findings
from torchtriage.diagnosis.learning.rule import short
from torchtriage.diagnosis.rules import finding, fingerprint_of, rule
from torchtriage.findings.model import YOU, Check, CheckKind, Evidence, Finding, Fix, Severity
from torchtriage.recording.facts import BrokenContract
from torchtriage.recording.recording import Process
from torchtriage.recording.series import PPO_KL
from torchtriage.text import and_more, counted, row

MAX_NAMED = 3
CALLED_STEPS = 4        # in which telemetry follows the output of a layer without a gradient


# What follows from a broken contract, by code: it is folded into the finding of the contract.
_NOTHING_LEARNED = ("TT409", "TT415", "TT416")
EFFECTS: Mapping[str, tuple[str, ...]] = {
    "TT420": ("TT421", "TT415", "TT620"),
    "TT421": ("TT406", *_NOTHING_LEARNED),
    "TT422": ("TT404", "TT408", "TT410", "TT414", "TT415", "TT418", "TT434"),
    "TT425": ("TT435", "TT620", *_NOTHING_LEARNED),
    "TT426": ("TT404", "TT406", "TT408", "TT410", "TT415", "TT417", "TT434"),
    "TT427": ("TT406", "TT411", "TT417", *_NOTHING_LEARNED),
    "TT428": ("TT405", "TT409", "TT413", "TT415"),
    "TT431": ("TT405", "TT411", "TT415"),
    "TT432": ("TT415",),
    "TT435": ("TT409", "TT415"),
    "TT436": ("TT408", "TT415", "TT434"),
    "TT440": ("TT410", "TT411", "TT415"),
    "TT442": ("TT410",),
    "TT443": ("TT415",),
    "TT444": ("TT415", "TT434", "TT452"),
    "TT446": ("TT404", "TT408", "TT410", "TT414", "TT415", "TT418", "TT434", "TT440"),
    "TT449": ("TT415",),
    "TT450": ("TT415", "TT414", "TT440"),
    "TT451": ("TT415", "TT440"),
    "TT452": ("TT405", "TT406", "TT410"),
    "TT454": ("TT415", "TT440"),
    "TT505": ("TT604",),
    "TT506": ("TT406", "TT604"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractTexts:
    """The sentences of one rule. The severity of a broken contract that may be deliberate is `milder`."""

    title: Callable[[BrokenContract], str]
    cause: Callable[[BrokenContract], str]
    fix: str
    fix_if_deliberate: str = ""
    milder: Severity | None = None


# What makes predictions no better than a guess, if it was found.
CAUSES_OF_A_GUESS = (
    "TT422", "TT423", "TT425", "TT426", "TT427", "TT431", "TT432", "TT435", "TT420", "TT421", "TT428", "TT436", "TT443",
    "TT444", "TT401", "TT402", "TT403", "TT434", "TT408", "TT406", "TT409", "TT416", "TT412", "TT442",
)

CAUSES_OF_A_LOSS_OF_SKILL = ("TT404", "TT414")      # of predictions that were better before


@rule
def broken_contracts(process: Process) -> Iterator[Finding]:
    """The loss, the gradients, the model and the optimizer do not belong together."""
    for broken in process.learning.contracts:
        texts = TEXTS.get(broken.code)
        is_critic = broken.code == "TT440" and PPO_KL in process.series     # TT605 knows what to expect of it
        if texts is not None and not is_critic:     # a later version knows more of them
            yield finding_of_contract(broken, texts, process)


def causes_of_contracts(process: Process) -> dict[str, str]:
    """For each learning finding that follows from a broken contract the fingerprint of that contract's finding."""
    contracts = {broken.code: broken for broken in process.learning.contracts}
    incidents = learning_findings(process) if contracts else {}
    causes: dict[str, str] = {}
    for code, broken in contracts.items():
        for effect in EFFECTS.get(code, ()):
            if effect in contracts and not broken.is_deliberate:
                causes[_fingerprint(contracts[effect], process)] = _fingerprint(broken, process)
            elif effect in incidents and incidents[effect].code == effect and not broken.is_deliberate:
                causes.setdefault(incidents[effect].fingerprint, _fingerprint(broken, process))
    guess = contracts.get("TT440")
    if guess is not None:
        for code in (*CAUSES_OF_A_GUESS, *(CAUSES_OF_A_LOSS_OF_SKILL if guess.total else ())):
            cause = _reported(code, contracts, incidents, process)
            if cause:
                causes[_fingerprint(guess, process)] = cause
                break
    return causes


def _reported(
    code: str, contracts: Mapping[str, BrokenContract], incidents: Mapping[str, Finding], process: Process,
) -> str:
    """The fingerprint of the finding of this code, unless what it reports is often meant."""
    if code in contracts:
        return "" if contracts[code].is_deliberate else _fingerprint(contracts[code], process)
    found = incidents.get(code)
    return found.fingerprint if found is not None and found.code == code and found.severity <= Severity.P3 else ""


def _fingerprint(broken: BrokenContract, process: Process) -> str:
    return fingerprint_of(broken.code, None, " ".join(sorted(broken.names)), process)


def finding_of_contract(broken: BrokenContract, texts: ContractTexts, process: Process) -> Finding:
    fix = texts.fix_if_deliberate if broken.is_deliberate and texts.fix_if_deliberate else texts.fix
    return finding(
        broken.code,
        title=texts.title(broken),
        cause=f"{texts.cause(broken)} Known since step {broken.step}.",
        fix=Fix(text=fix),
        owner=YOU,
        evidence=Evidence(num_events=broken.count, notes=_notes(broken)),
        verification=(Check(CheckKind.NO_FINDING_IN_TRAINING, code=broken.code),),
        steps=(broken.step,),
        ranks=() if process.rank is None else (process.rank,),
        fingerprint=_fingerprint(broken, process),
        **({"severity": _milder(broken, texts.milder)} if _is_often_meant(broken) and texts.milder is not None else {}),
    )


def _is_often_meant(broken: BrokenContract) -> bool:
    """BatchNorm in eval mode below a model that trains may be frozen."""
    return broken.is_deliberate or (broken.code == "TT424" and broken.value == 0.0)


def _milder(broken: BrokenContract, severity: Severity) -> Severity:
    """A layer whose output another layer receives has something to do there, even if the loss does not depend on it."""
    return Severity.P3 if broken.code == "TT421" and broken.value else severity


def _notes(broken: BrokenContract) -> tuple[str, ...]:
    return (f"in {row(broken.names, 20)}",) if len(broken.names) > MAX_NAMED else ()


def _names(broken: BrokenContract) -> str:
    named = broken.names[:MAX_NAMED]
    return row(named) + and_more(broken.count - len(named))


def _kind(broken: BrokenContract) -> str:
    return broken.names[0] if broken.names else "the optimizer"


def _pair(broken: BrokenContract) -> str:
    return f": the model has {broken.names[1]}, the state dict {broken.names[2]}" if len(broken.names) > 2 else ""


def _empty(broken: BrokenContract) -> str:
    return "zero" if _kind(broken) == "zero" else "None"


def _rate_words(broken: BrokenContract) -> str:
    return f"has fallen to {short(broken.value)}" if broken.value else "is 0"


def _highest_rate(broken: BrokenContract) -> str:
    return f", after {short(broken.share)} at most" if broken.share else ""


# What nll_loss receives, by the name that telemetry gives it.
_NOT_LOGS = {
    "probabilities": "Its input lies between 0 and 1, and sums to 1 over the classes: the loss is minus the "
                     "probability itself, whose gradient vanishes where the model is wrong.",
    "scores": "The exponentials of its input do not sum to 1 over the classes: a score may grow without another one "
              "falling, so the loss has no lower bound.",
}

_INPUTS: Mapping[str, tuple[str, str]] = {
    "same": (
        "the targets are the tokens that the model receives at the same places",
        "every target is equal to the input token at its own place, so the model only has to repeat it.",
    ),
    "previous": (
        "the targets are the tokens before those that the model receives",
        "every target is equal to the input token one place before: the model has already seen it.",
    ),
    "later": (
        "the attention of a next-token model sees later tokens",
        "every target is the input token one place later, and an attention over these places gives weight to later "
        "ones: the model can copy what it is to predict.",
    ),
}


def _is_unlearned(broken: BrokenContract) -> str:
    return f"in {counted(int(broken.value or 0), 'backward pass', 'backward passes')} no optimizer made a step"


def _cut_off(broken: BrokenContract) -> str:
    if not broken.value:
        return ""
    return (
        f" In each step of {CALLED_STEPS} another layer received the output of {counted(int(broken.value), 'layer')} "
        "with some of them, but without its gradient, as after detach()."
    )


def _is_or_are(broken: BrokenContract) -> str:
    return "is" if broken.count == 1 else "are"


def _start(broken: BrokenContract, place: int) -> str:
    return broken.names[place] if place < len(broken.names) else "its start"


def _padding(broken: BrokenContract) -> str:
    return f"{broken.value or 0.0:.0f}"


def _simplest(broken: BrokenContract) -> str:
    return "predicting 0" if broken.names else "equal probabilities"


def _leak_title(broken: BrokenContract) -> str:
    if _kind(broken) in _INPUTS:
        return _INPUTS[_kind(broken)][0]
    return f"{counted(int(broken.value or 0), 'column')} of the inputs {_tell(broken)} the targets"


def _leak_cause(broken: BrokenContract) -> str:
    looks = f"At {counted(broken.count, 'look')} in a row "
    if _kind(broken) in _INPUTS:
        return looks + _INPUTS[_kind(broken)][1]
    return (
        f"{looks}{int(broken.value or 0)} of the {broken.total} columns that the first layer receives {_tell(broken)} "
        "the targets of the batch exactly, without noise: the answer can be read there."
    )


def _tell(broken: BrokenContract) -> str:
    return "gives" if broken.value == 1.0 else "give"


TEXTS: Mapping[str, ContractTexts] = {
    "TT420": ContractTexts(
        title=lambda broken: f"no optimizer holds {_names(broken)}, which the loss depends on",
        cause=lambda broken: (
            f"The graph behind the loss leads to {counted(broken.total, 'trained tensor')}; "
            f"{broken.count} of them get a gradient that no optimizer uses: they keep their first values."
        ),
        fix="build the optimizer after the last change of the model (a new head, a moved or wrapped module), from all "
            "of its parameters, or add them with optimizer.add_param_group",
        fix_if_deliberate="if these layers are frozen on purpose, requires_grad_(False) saves their backward pass; if "
                          "not, give their parameters to the optimizer",
        milder=Severity.P3,
    ),
    "TT421": ContractTexts(
        title=lambda broken: f"the loss does not depend on {_names(broken)}, which an optimizer holds",
        cause=lambda broken: (
            f"{broken.count} of the {counted(broken.total, 'tensor')} that optimizers hold never had a gradient, and "
            f"no loss that was followed leads to them: they do not learn.{_cut_off(broken)}"
        ),
        fix="give the optimizer the parameters of the model in use: it holds those of a model, or of a layer, that was "
            "replaced, or the loss is computed from a detached tensor",
        fix_if_deliberate="nothing to do if the layer is unused on purpose; else check that its output reaches the "
                          "loss without detach() or torch.no_grad()",
        milder=Severity.P4,
    ),
    "TT422": ContractTexts(
        title=lambda _: "gradients are not cleared between steps",
        cause=lambda broken: (
            f"In {counted(broken.count, 'step')} in a row the backward pass began with the gradient of the step before "
            "and added to it, so the optimizer uses the sum over all steps."
        ),
        fix="call optimizer.zero_grad() once per step, before the backward pass; with gradient accumulation, after the "
            "optimizer's step",
    ),
    "TT423": ContractTexts(
        title=lambda broken: f"the optimizer was created again at least {broken.count} times for the same parameters",
        cause=lambda _: (
            "Each one made one or two steps. Its state, the averages of Adam or the momentum of SGD, begins at zero "
            "every time, and so does its learning rate schedule."
        ),
        fix="make the optimizer once, before the loop",
    ),
    "TT424": ContractTexts(
        title=lambda broken: (
            f"{_kind(broken)} trains in eval mode" if broken.value is None
            else f"the BatchNorm layer {_kind(broken)} normalises with statistics that it never had"
        ),
        cause=lambda broken: (
            f"At {counted(broken.count, 'look')} in a row the layer was in eval mode and had counted no batch: its "
            "running mean is 0 and its running variance 1, so it normalises nothing."
            if broken.value is not None else
            f"At {counted(broken.count, 'look')} in a row its training flag was False while the optimizer made steps: "
            "dropout is off, and BatchNorm neither uses nor updates the statistics of its batch."
        ),
        fix="call model.train() before the training loop, and again after each evaluation; from_pretrained() returns a "
            "model in eval mode",
        milder=Severity.P3,
    ),
    "TT425": ContractTexts(
        title=lambda broken: f"the learning rate {_rate_words(broken)}",
        cause=lambda broken: (
            f"The largest learning rate of {_kind(broken)} was {short(broken.value or 0.0)} at "
            f"{counted(broken.count, 'look')} in a row{_highest_rate(broken)}: its steps change next to nothing."
        ),
        fix="check the schedule: it ended before the training did (T_max, total_steps or num_training_steps is too "
            "small, or scheduler.step() is called per batch where its numbers count epochs), or it is never stepped "
            "after a warm-up from 0",
    ),
    "TT426": ContractTexts(
        title=lambda broken: (
            f"weight decay {short(broken.value or 0.0)} shrinks the weights by {broken.share or 0.0:.1%} per step"
        ),
        cause=lambda broken: (
            f"{_kind(broken)} multiplies each weight by 1 - lr * weight_decay = {1 - (broken.share or 0.0):.3g} "
            "per step. The gradient has to make up for that before anything is learned."
        ),
        fix="lower weight_decay: 0.01 to 0.1 is usual for AdamW, 1e-4 for SGD",
    ),
    "TT427": ContractTexts(
        title=lambda broken: f"the optimizer steps while all of its gradients are {_empty(broken)}",
        cause=lambda broken: (
            f"In {counted(broken.count, 'step')} in a row a backward pass ran, and a loss leads to these parameters, "
            f"but when the optimizer stepped the gradients of all {counted(int(broken.value or 0), 'parameter')} were "
            f"{_empty(broken)}."
        ),
        fix="call zero_grad() before the backward pass or after the step, not between the two, and backward() before "
            "step(); if the order is right and they are zero, the loss does not depend on these parameters",
    ),
    "TT428": ContractTexts(
        title=lambda broken: (
            f"gradients are clipped while they are still multiplied by the loss scale of {short(broken.value or 0.0)}"
            if _kind(broken) == "scaled" else "gradients are clipped before the backward pass, not after it"
        ),
        cause=lambda broken: (
            f"In {counted(broken.count, 'step')} in a row clipping came before GradScaler divided the gradients by its "
            "scale: the limit holds for gradients that are too large by that factor, so almost nothing is left."
            if _kind(broken) == "scaled" else
            f"In {counted(broken.count, 'step')} in a row the only clipping came before the first backward pass of the "
            "step: the optimizer used gradients that were not clipped."
        ),
        fix="the order of a step is backward(), scaler.unscale_(optimizer) if there is a GradScaler, "
            "clip_grad_norm_(), step()",
    ),
    "TT429": ContractTexts(
        title=lambda _: "data were evaluated in training mode",
        cause=lambda broken: (
            f"The BatchNorm layer {_kind(broken)} counted {short(broken.value or 0.0)} forward passes in training mode "
            f"that no backward pass followed, in {short(broken.share or 2.0)} pauses between two steps: it normalised "
            "with the statistics of these "
            "batches, and added them to its running statistics."
        ),
        fix="call model.eval() before the evaluation and model.train() after it",
    ),
    "TT430": ContractTexts(
        title=lambda broken: f"{row(broken.names, MAX_NAMED)} never changes",
        cause=lambda broken: (
            f"It has the form of the trained model, and its weights were the same at every look during {broken.count} "
            "updates of the optimizer."
        ),
        fix="copy or average the weights of the trained model into it every N steps; nothing to do if it is "
            "fixed on purpose",
    ),
    "TT431": ContractTexts(
        title=lambda broken: (
            f"nll_loss receives {_kind(broken)}, and expects log-probabilities" if _kind(broken) in _NOT_LOGS
            else f"the loss receives the output of {_kind(broken)}, and expects logits"
        ),
        cause=lambda broken: _NOT_LOGS[_kind(broken)] if _kind(broken) in _NOT_LOGS else (
            f"In the graph next to the loss the result of {_kind(broken)} goes into an operation that applies "
            f"{_kind(broken)} itself: the loss has a floor above 0, and its gradients are small."
        ),
        fix="give cross_entropy or binary_cross_entropy_with_logits the logits, without softmax or sigmoid at the end "
            "of the model; for nll_loss end the model with log_softmax over the dimension of the classes",
    ),
    "TT432": ContractTexts(
        title=lambda broken: f"the loss compares {broken.value or 0:.0f} predictions with each of as many targets",
        cause=lambda broken: (
            f"Prediction and target have the shapes [{broken.value or 0:.0f}, 1] and [{broken.value or 0:.0f}], and "
            f"are broadcast to [{broken.value or 0:.0f}, {broken.value or 0:.0f}]: each prediction is drawn "
            "to the mean of all targets."
        ),
        fix="give both the same shape: prediction.squeeze(-1), or target.unsqueeze(-1)",
    ),
    "TT435": ContractTexts(
        title=lambda _: "the steps of the optimizer change no weight",
        cause=lambda broken: (
            f"At {counted(broken.count, 'look')} in a row {counted(int(broken.share or 0), 'tensor')} of "
            f"{_kind(broken)} with a gradient had the same bits before and after the step, at a learning rate of "
            f"{short(broken.value or 0.0)}: the update is lost in rounding."
        ),
        fix="raise the learning rate, or check whether its schedule has already ended; if the weights have 16 bits, "
            "keep them in float32 and compute in 16 bits with torch.autocast",
    ),
    "TT440": ContractTexts(
        title=lambda broken: (
            f"the predictions are no {'longer ' if broken.total else ''}better than a guess by the targets alone"
        ),
        cause=lambda broken: (
            f"At the last {counted(broken.count, 'look')} the loss per target was {short(broken.value or 0.0)} on "
            f"average; always predicting the {_kind(broken)} of the targets gives "
            f"{short(broken.share or 0.0)}: the model uses nothing of its inputs."
        ),
        fix="overfit one batch first: if that works, check that inputs and targets belong together (shuffled apart, "
            "another order, wrong column), and that they differ from batch to batch; if it fails, the learning rate, "
            "the loss or a connection of the model is wrong. Nothing to do if the task needs more steps to begin",
    ),
    "TT441": ContractTexts(
        title=lambda broken: (
            f"load_state_dict left {broken.count} of the {counted(broken.total, 'tensor')} of {_kind(broken)} as "
            "they were: the names do not match"
        ),
        cause=lambda broken: (
            f"With strict=False names that do not match are skipped silently{_pair(broken)}."
        ),
        fix="rename the keys of the state dict (remove or add the prefix, such as module. or _orig_mod.), and load "
            "with strict=True, or check the missing_keys of the result",
    ),
    "TT442": ContractTexts(
        title=lambda broken: (
            f"the first loss per target is {short(broken.value or 0.0)}; {_simplest(broken)} would give "
            f"{short(broken.share or 0.0)}"
        ),
        cause=lambda broken: (
            "The predictions of the untrained model are far larger than the targets. The weights begin too large, or "
            "the inputs are not normalised."
            if broken.names else
            "An untrained classifier should not know: here its logits are so large that it is sure, and wrong. The "
            "weights begin too large, or the inputs are not normalised."
        ),
        fix="normalise the inputs to a standard deviation near 1, and initialise with the default of the layers or by "
            "fan-in (kaiming_, xavier_)",
    ),
    "TT443": ContractTexts(
        title=lambda broken: (
            f"the gradients of {short(broken.share or 0.0)} of {short(broken.value or 0.0)} backward passes per step "
            "are cleared before the optimizer uses them"
        ),
        cause=lambda broken: (
            f"In {counted(broken.count, 'step')} in a row the gradients of a backward pass were empty when the next "
            "one began, with the same weights and no step between: only the last pass of each step counts."
        ),
        fix="call zero_grad() once per step of the optimizer, not once per backward pass",
    ),
    "TT444": ContractTexts(
        title=lambda broken: f"the optimizer of {_names(broken)} makes no step",
        cause=lambda broken: (
            f"A loss leads to these parameters, and an optimizer holds them, but {_is_unlearned(broken)}: they keep "
            "their first values."
            if broken.value is not None else
            f"A loss leads to these parameters, and an optimizer holds them, but in {counted(broken.total, 'update')} "
            "of the other optimizers it made none: they keep their first values."
        ),
        fix="call step() of this optimizer as well; nothing to do if it begins later on purpose",
    ),
    "TT446": ContractTexts(
        title=lambda broken: (
            "the optimizer maximizes the error of the predictions" if _kind(broken) == "maximize"
            else "the loss is minus the error of the predictions"
        ),
        cause=lambda broken: (
            f"At {counted(broken.count, 'look')} in a row the only comparison with targets in the loss had "
            + ("a plus, and the optimizer was made with maximize=True"
               if _kind(broken) == "maximize" else "a minus, and the optimizer minimizes")
            + ": each step makes the predictions worse."
        ),
        fix="remove the minus sign (or maximize=True); nothing to do if the error is to grow on purpose",
    ),
    "TT448": ContractTexts(
        title=_leak_title,
        cause=_leak_cause,
        fix="remove the target, or what is computed from it, from the inputs; for tokens give the model tokens[:, "
            ":-1] and the loss tokens[:, 1:], with a causal mask",
        fix_if_deliberate="for a language model give the model tokens[:, :-1] and the loss tokens[:, 1:]; nothing to "
                          "do for an autoencoder, which is to repeat its input",
        milder=Severity.P3,
    ),
    "TT449": ContractTexts(
        title=lambda broken: f"every batch is the same {counted(broken.total, 'sample')}",
        cause=lambda broken: (
            f"At {counted(broken.count, 'look')} the model received the same numbers, bit by bit: the training sees no "
            "other data."
        ),
        fix="draw other samples in each step: check the seed, the indices and next(iter(loader)) inside the loop; "
            "nothing to do if these are all the data",
    ),
    "TT450": ContractTexts(
        title=lambda broken: (
            f"every target is class {broken.share or 0.0:.0f}" if broken.total == 1
            else "each batch has targets of a single class"
        ),
        cause=lambda broken: (
            f"{counted(broken.count, 'batch', 'batches')} of about {counted(int(broken.value or 0), 'target')} were "
            "looked at: " + ("all have this class." if broken.total == 1 else
                       f"{broken.total} classes in all, but nearly always only one in a batch. A step then moves the "
                       "model towards one class only.")
        ),
        fix="shuffle the data (shuffle=True of DataLoader, torch.randperm) if they are sorted by class; if there is "
            "only one class, look at how the targets are made",
    ),
    "TT451": ContractTexts(
        title=lambda _: "the latent variables do not depend on the inputs",
        cause=lambda broken: (
            f"At the last {counted(broken.count, 'look')} the means of {counted(broken.total, 'latent variable')} "
            f"varied by at most {short(broken.value or 0.0)} over the samples of a batch (below 0.01 counts as "
            "unused): the decoder receives noise, and the posterior has collapsed onto the prior."
        ),
        fix="lower the weight of the KL term, raise it slowly from 0, or keep a free minimum of it (free bits); check "
            "that reconstruction and KL are both sums, or both means, over the same elements",
    ),
    "TT452": ContractTexts(
        title=lambda broken: (
            f"two losses drift apart: one fell to {short(broken.value or 0.0)}, the other rose to "
            f"{short(broken.share or 0.0)}"
        ),
        cause=lambda broken: (
            f"Of two optimizers, each with a loss of its own, one loss fell from {_start(broken, 0)} to "
            f"{short(broken.value or 0.0)} while the other rose from {_start(broken, 1)} to "
            f"{short(broken.share or 0.0)} (medians of the last {broken.count} losses): in a GAN one network has won, "
            "and the other has little to learn from."
        ),
        fix="in a GAN slow the winner down: a lower learning rate, fewer steps, label smoothing, noise on its inputs "
            "or a gradient penalty",
    ),
    "TT453": ContractTexts(
        title=lambda broken: f"padding counts as a target: {broken.share or 0.0:.0%} of the targets are token "
                             f"{_padding(broken)}",
        cause=lambda broken: (
            f"An embedding of the same vocabulary has padding_idx={_padding(broken)}, and the loss does not ignore "
            "this token: its mean is over tokens that carry nothing, which are easy to predict."
        ),
        fix="pass ignore_index=padding_idx to cross_entropy, or set these targets to -100",
    ),
    "TT454": ContractTexts(
        title=lambda broken: f"{int(broken.value or 0)} units of {counted(int(broken.share or 0), 'layer')} stay equal",
        cause=lambda broken: (
            f"The weights began as one number, and after {broken.step - 1} updates all rows of a layer are still the "
            "same: its units get the same gradient in each step and act as one."
        ),
        fix="initialise the weights at random: the default of the layers, kaiming_uniform_ or xavier_uniform_",
    ),
    "TT455": ContractTexts(
        title=lambda broken: f"{_names(broken)} {_is_or_are(broken)} frozen at random values",
        cause=lambda broken: (
            f"An optimizer holds {counted(broken.count, 'weight')} with requires_grad=False; the values have the "
            "range of the default initialisation, and layers before are trained: nothing was loaded, and nothing is "
            "learned there."
        ),
        fix="remove requires_grad_(False) for these layers; if they are frozen on purpose, load their weights, and "
            "leave them out of the optimizer",
    ),
    "TT436": ContractTexts(
        title=lambda broken: f"the step counter of {_kind(broken)} does not advance",
        cause=lambda broken: (
            f"At {counted(broken.count, 'look')} in a row it was not above the one of the look before (now "
            f"{short(broken.value or 0.0)}), although the optimizer had made steps."
        ),
        fix="look for code that loads, replaces or clears the state of the optimizer in the loop",
    ),
}
