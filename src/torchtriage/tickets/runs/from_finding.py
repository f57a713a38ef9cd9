"""Turn a finding into a ticket: what is wrong, what it costs, what to change, how to verify the fix."""

import re
import textwrap
from collections.abc import Mapping, Sequence

from torchtriage.findings.catalogue import rule
from torchtriage.findings.checks import sentence
from torchtriage.findings.model import UNKNOWN_PLACE, Cost, CostKind, Finding, OwnerKind
from torchtriage.text import duration, ranges, row, short_path
from torchtriage.tickets.model import Box, Relation, Ticket
from torchtriage.tickets.naming import RECORDING_AGENT

MAX_LISTED = 12         # more values, reasons or steps than this are not read by people


def ticket_from(
    finding: Finding, *, ticket_id: str, batch: str, today: str, source: str, roots: Sequence[str],
    ticket_ids: Mapping[str, str],
) -> Ticket:
    """The ticket of a finding.

    `source` is the name of the recording, `roots` are the folders that paths are relative to, and `ticket_ids` maps
    the fingerprints of other findings to their tickets.
    """
    place = finding.location
    path = "" if place == UNKNOWN_PLACE else ticket_path(place.path, roots)
    return Ticket(
        id=ticket_id, title=finding.title, severity=finding.severity.name, batch=batch, agent=RECORDING_AGENT,
        domain=path.rpartition("/")[0] if not path.startswith("/") else "", created=today, updated=today,
        files=(path,) if path else (), lines=str(place.line or ""), function=place.function or "",
        summary=rule(finding.code).summary, categories=frozenset({finding.category}),
        wrong=_wrong(finding, roots), impact=_impact(finding), fix=_fix(finding),
        verification=tuple(Box(text=sentence(check)) for check in finding.verification),
        related=tuple(Relation(ticket_id=ticket_ids[mark]) for mark in finding.related if mark in ticket_ids),
        report_file=source, report_section=f"{finding.code} {finding.slug} (torchtriage explain {finding.code})",
        fingerprint=finding.fingerprint,
    )


def ticket_path(path: str, roots: Sequence[str]) -> str:
    """A path as tickets name it: below site-packages or the first root that contains it, with forward slashes."""
    return short_path(path.replace("\\", "/"), roots)


def cost_text(cost: Cost) -> str:
    """The measured cost and how it was obtained, `1.24 s in total, 12.0 ms per step (observed)`; or "not measured"."""
    parts = []
    if cost.seconds is not None:
        parts.append(f"{duration(cost.seconds)} in total")
    if cost.ms_per_step is not None:
        parts.append(f"{duration(cost.ms_per_step / 1000.0)} per step")
    if cost.share is not None:
        parts.append(f"{cost.share:.0%} of steady state")
    if not parts or cost.kind is CostKind.NOT_MEASURED:
        return f"not measured ({cost.note})" if cost.note else "not measured"
    origin = f"{cost.kind}: {cost.note}" if cost.note else str(cost.kind)
    return f"{row(parts)} ({origin})"


def _fence(code: str, language: str = "") -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", code)), default=2)
    ticks = "`" * (longest + 1)
    return f"{ticks}{language}\n{code}\n{ticks}"


def _wrong(finding: Finding, roots: Sequence[str]) -> str:
    evidence = finding.evidence
    upstream = f" ({finding.upstream}, see `torchtriage explain {finding.upstream}`)" if finding.upstream else ""
    parts = [f"{finding.cause}{upstream}"]
    if evidence.source:
        parts.append(_source(finding, roots))
    if evidence.values:
        parts.append(f"Values over time: {row(evidence.values, MAX_LISTED)}")
    parts.append(_list("Reasons given by PyTorch:", evidence.reasons))
    parts.append(_list("Also affected:", evidence.folded))
    parts.append(_list("Notes:", evidence.notes))
    return "\n\n".join(part for part in parts if part)


def _source(finding: Finding, roots: Sequence[str]) -> str:
    """The lines around the place; code that is not from the ticket's file is headed by its own place."""
    code = textwrap.dedent("\n".join(line.text for line in finding.evidence.source)).strip("\n")
    place = finding.raised_at
    if place is None:
        return _fence(code, "python")
    return f"At `{ticket_path(place.path, roots)}:{place.line}`:\n\n{_fence(code)}"


def _list(head: str, texts: Sequence[str]) -> str:
    items = [f"- {' '.join(text.split())}" for text in texts[:MAX_LISTED] if text.strip()]
    return "\n".join([head, "", *items]) if items else ""


def _impact(finding: Finding) -> str:
    lines = [f"Cost: {cost_text(finding.cost)}"]
    if finding.evidence.num_events:
        lines.append(f"Events: {finding.evidence.num_events}")
    if finding.steps:
        lines.append(f"Steps: {ranges(finding.steps, MAX_LISTED)}")
    if finding.ranks:
        lines.append(f"Ranks: {ranges(finding.ranks, MAX_LISTED)}")
    if finding.owner.kind is not OwnerKind.UNKNOWN:
        lines.append(f"Owner: {finding.owner}")
    return "\n".join(f"- {line}" for line in lines)


def _fix(finding: Finding) -> str:
    fix = finding.fix
    if not fix.edit:
        return fix.text
    advice = "This edit is safe." if fix.safe else "Review this edit before you apply it."
    return f"{fix.text}\n\n{_fence(fix.edit)}\n\n{advice}"
