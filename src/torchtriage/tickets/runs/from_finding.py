"""A finding becomes a ticket: what is wrong, what it costs, what to change, and how to see that it helped."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from torchtriage.findings.catalogue import rule
from torchtriage.findings.checks import sentence
from torchtriage.findings.model import UNKNOWN_PLACE, Cost, CostKind, Finding, Location, OwnerKind
from torchtriage.tickets.model import Box, Relation, Ticket
from torchtriage.tickets.naming import OURS

MAX_LISTED = 12         # values, reasons and steps that a person still reads
_INSTALLED = re.compile(r"/(?:site|dist)-packages/")


def ticket_from(
    finding: Finding, *, ticket_id: str, batch: str, today: str, source: str, roots: Sequence[str], ticket_ids: Mapping[str, str],
) -> Ticket:
    """`source` is the recording, `roots` the folders that paths are shown below, `ticket_ids` the tickets of other fingerprints."""
    place = finding.location
    path = "" if place == UNKNOWN_PLACE else relative(place.path, roots)
    return Ticket(
        id=ticket_id, title=finding.title, severity=finding.severity.name, batch=batch, agent=OURS,
        domain=path.rpartition("/")[0] if not path.startswith("/") else "", created=today, updated=today,
        files=(path,) if path else (), lines=str(place.line or ""), function=place.function or "",
        summary=rule(finding.code).summary, categories=frozenset({finding.category}),
        wrong=_wrong(finding, roots), impact=_impact(finding), fix=_fix(finding),
        verification=tuple(Box(text=sentence(check)) for check in finding.verification),
        related=tuple(Relation(ticket_id=ticket_ids[mark]) for mark in finding.related if mark in ticket_ids),
        report_file=source, report_section=f"{finding.code} {finding.slug} (torchtriage explain {finding.code})",
        fingerprint=finding.fingerprint,
    )


def relative(path: str, roots: Sequence[str]) -> str:
    """A path below the first root that holds it, or below site-packages, with forward slashes; else as it is."""
    path = path.replace("\\", "/")
    if _INSTALLED.search(path):
        return _INSTALLED.split(path)[-1]
    for root in (root.replace("\\", "/").rstrip("/") for root in roots if root):
        if path.startswith(root + "/"):
            return path[len(root) + 1:]
    return path


def cost_sentence(cost: Cost) -> str:
    """What was measured, and that it was; every number as the finding gives it."""
    parts = []
    if cost.seconds is not None:
        parts.append(f"{cost.seconds:.3g} s in all")
    if cost.ms_per_step is not None:
        parts.append(f"{cost.ms_per_step:.3g} ms a step")
    if cost.share is not None:
        parts.append(f"{cost.share:.0%} of steady state")
    if not parts or cost.kind is CostKind.NOT_MEASURED:
        return f"not measured ({cost.note})" if cost.note else "not measured"
    return f"{', '.join(parts)} ({cost.kind}{': ' + cost.note if cost.note else ''})"


def some(values: Iterable[object]) -> str:
    """The first values, and how many more there are."""
    texts = [str(value) for value in values]
    more = f" and {len(texts) - MAX_LISTED} more" if len(texts) > MAX_LISTED else ""
    return ", ".join(texts[:MAX_LISTED]) + more


def fenced(code: str, language: str = "") -> str:
    ticks = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`{3,}", code)), 3)
    return f"{ticks}{language}\n{code}\n{ticks}"


def _wrong(finding: Finding, roots: Sequence[str]) -> str:
    evidence = finding.evidence
    upstream = f" ({finding.upstream}, see `torchtriage explain {finding.upstream}`)" if finding.upstream else ""
    parts = [f"{finding.cause}{upstream}"]
    if evidence.source:
        parts.append(_source(finding, roots))
    if evidence.values:
        parts.append(f"Values over time: {some(evidence.values)}")
    parts.append(_listing("Reasons that PyTorch gives:", evidence.reasons))
    parts.append(_listing("Drawn in with it:", evidence.folded))
    parts.append(_listing("Notes:", evidence.notes))
    return "\n\n".join(part for part in parts if part)


def _source(finding: Finding, roots: Sequence[str]) -> str:
    """The lines around the place; code of another file than the ticket's says which."""
    code = textwrap.dedent("\n".join(line.text for line in finding.evidence.source)).strip("\n")
    if finding.raised_at is None:
        return fenced(code, "python")
    place: Location = finding.raised_at
    return f"At `{relative(place.path, roots)}:{place.line}`:\n\n{fenced(code)}"


def _listing(head: str, texts: Sequence[str]) -> str:
    items = [f"- {' '.join(text.split())}" for text in texts[:MAX_LISTED] if text.strip()]
    return "\n".join([head, "", *items]) if items else ""


def _impact(finding: Finding) -> str:
    lines = [f"Cost: {cost_sentence(finding.cost)}"]
    if finding.evidence.num_events:
        lines.append(f"Events: {finding.evidence.num_events}")
    if finding.steps:
        lines.append(f"Steps: {some(finding.steps)}")
    if finding.ranks:
        lines.append(f"Ranks: {some(finding.ranks)}")
    if finding.owner.kind is not OwnerKind.UNKNOWN:
        lines.append(f"Owner: {finding.owner}")
    return "\n".join(f"- {line}" for line in lines)


def _fix(finding: Finding) -> str:
    safe = "" if not finding.fix.edit else "\n\nThis edit is safe." if finding.fix.safe else "\n\nRead it before you apply it."
    edit = f"\n\n{fenced(finding.fix.edit)}" if finding.fix.edit else ""
    return f"{finding.fix.text}{edit}{safe}"
