"""TT420 to TT426: what must hold in any training and did not."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from torchtriage.diagnosis.learning.rule import short
from torchtriage.diagnosis.rules import finding, fingerprint_of, rule
from torchtriage.findings.model import YOU, Check, CheckKind, Evidence, Finding, Fix, Severity
from torchtriage.recording.facts import BrokenContract
from torchtriage.recording.recording import Process
from torchtriage.text import and_more, counted, row

MAX_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractTexts:
    """The sentences of one rule. The severity of a broken contract that may be deliberate is `milder`."""

    title: Callable[[BrokenContract], str]
    cause: Callable[[BrokenContract], str]
    fix: str
    fix_if_deliberate: str = ""
    milder: Severity | None = None


@rule
def broken_contracts(process: Process) -> Iterator[Finding]:
    """The loss, the gradients, the model and the optimizer do not belong together."""
    for broken in process.learning.contracts:
        texts = TEXTS.get(broken.code)
        if texts is not None:       # a later version knows more of them
            yield finding_of_contract(broken, texts, process)


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
        fingerprint=fingerprint_of(broken.code, None, " ".join(sorted(broken.names)), process),
        **({"severity": texts.milder} if broken.is_deliberate and texts.milder is not None else {}),
    )


def _notes(broken: BrokenContract) -> tuple[str, ...]:
    return (f"in {row(broken.names, 20)}",) if len(broken.names) > MAX_NAMED else ()


def _names(broken: BrokenContract) -> str:
    named = broken.names[:MAX_NAMED]
    return row(named) + and_more(broken.count - len(named))


def _kind(broken: BrokenContract) -> str:
    return broken.names[0] if broken.names else "the optimizer"


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
            "no loss that was followed leads to them: they do not learn."
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
        title=lambda broken: f"{_kind(broken)} trains in eval mode",
        cause=lambda broken: (
            f"At {counted(broken.count, 'look')} in a row its training flag was False while the optimizer made steps: "
            "dropout is off, and BatchNorm neither uses nor updates the statistics of its batch."
        ),
        fix="call model.train() before the training loop, and again after each evaluation; from_pretrained() returns a "
            "model in eval mode",
    ),
    "TT425": ContractTexts(
        title=lambda _: "the learning rate is 0",
        cause=lambda broken: (
            f"All parameter groups of {_kind(broken)} had a learning rate of 0 at {counted(broken.count, 'look')} in a "
            "row: its steps change nothing."
        ),
        fix="check the schedule: it ended before the training did (T_max, total_steps or num_training_steps is too "
            "small), or it is never stepped after a warm-up from 0",
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
}
