"""The ranked findings: each is one line that opens to its source, cause, values, fix, checks."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from torchtriage.findings.checks import sentence
from torchtriage.findings.model import Check, Cost, Finding, Fix, OwnerKind, RemedyProof, SampledValue, SourceLine
from torchtriage.findings.proof.remedy import proof_sentence
from torchtriage.findings.report import SHAPES
from torchtriage.reporters.html.markup import Scope, attributes, block, items, note, section, text
from torchtriage.reporters.html.rules import rule_link
from torchtriage.reporters.html.verdict import badge
from torchtriage.reporters.summary import cost_text
from torchtriage.text import and_more, counted, row

NUM_OPEN = 1            # the first is open, as a page of closed lines would not show what a finding contains
MAX_VALUES = 60         # listed per finding
SPARK_WIDTH, SPARK_HEIGHT, SPARK_MARGIN = 96, 20, 2
MIN_POINTS = 3          # below this a line shows nothing
GROUP = 40              # findings that the browser lays out together, or skips together while they are out of view


def findings_section(scope: Scope) -> str:
    findings = scope.report.findings
    if not findings:
        return section("findings", "Findings", note("No findings in the parts of the run that were watched."))
    blocks = [_finding(scope, number) for number in range(len(findings))]
    groups = []
    for first in range(0, len(blocks), GROUP):
        group = "\n".join(blocks[first : first + GROUP])
        groups.append(f'<div class="group">{group}</div>')
    return section(
        "findings", "Findings", _filter(scope), '<div id="list">', *groups, "</div>",
        '<p id="none" class="quiet" hidden>No finding passes the filter.</p>',
    )


def _filter(scope: Scope) -> str:
    """The controls of the filter, with the number of findings per option; visible only if the script runs."""
    findings = scope.report.findings
    levels = Counter(f.severity for f in findings)
    boxes = "".join(
        f'<label class="pill"><input type="checkbox" name="severity" value="{level.name}" checked>'
        f"{badge(level)} {number}</label>"
        for level, number in sorted(levels.items())
    )
    selects = (
        _select("code", "Code", (f.code for f in findings)),
        _select("owner", "Owner", (str(f.owner) for f in findings)),
        _select("file", "File", (scope.file(f.location) for f in findings)),
    )
    return (
        '<form id="filter" class="with-script" role="search" aria-label="Filter findings">'
        '<label class="field"><span>Text</span>'
        '<input type="search" name="text" placeholder="any word" autocomplete="off" spellcheck="false"></label>'
        f'{"".join(selects)}<div class="last">'
        f'<fieldset class="pills"><legend class="unseen">Severity</legend>{boxes}</fieldset>'
        '<div class="right"><output id="shown" aria-live="polite"></output>'
        '<button type="button" id="open-all">Open all</button><button type="reset">Reset</button></div></div></form>'
    )


def _select(name: str, label: str, values: Iterable[str]) -> str:
    counts = Counter(values)
    options = [f"<option{attributes(value=value)}>{text(value)} ({counts[value]})</option>" for value in sorted(counts)]
    return (
        f'<label class="field"><span>{label}</span><select name="{name}">'
        f'<option value="">all ({len(counts)})</option>{"".join(options)}</select></label>'
    )


def _finding(scope: Scope, number: int) -> str:
    f = scope.report.findings[number]
    head = attributes(
        class_="finding",
        id=scope.ids[number],
        data_code=f.code,
        data_severity=f.severity.name,
        data_owner=str(f.owner),
        data_file=scope.file(f.location),
        open=number < NUM_OPEN,
    )
    place = scope.place(f.location)
    if place:
        place = f'<span class="place">{place}{_owner(f)}</span>'
    return (
        f'<details{head}>\n<summary>{badge(f.severity)}<span class="code">{text(f.code)}</span><h3>{text(f.title)}</h3>'
        f'<span class="cost">{_cost(f.cost)}</span>{place}</summary>\n'
        f'<div class="body"><div class="story">\n{_story(f)}</div>\n'
        f'<dl class="facts">{_facts(scope, f)}</dl></div></details>'
    )


def _owner(f: Finding) -> str:
    return "" if f.owner.kind in (OwnerKind.YOU, OwnerKind.UNKNOWN) else _tag(str(f.owner))


def _tag(words: str | None) -> str:
    return f' <span class="tag">{text(words)}</span>' if words else ""


def _cost(cost: Cost) -> str:
    shown = cost_text(replace(cost, note="", share=None)).removesuffix(f" ({cost.kind})")
    return f"{text(shown)} <small>{cost.kind}</small>" if shown else '<span class="quiet">not measured</span>'


def _story(f: Finding) -> str:
    evidence = f.evidence
    parts = [
        _source(evidence.source),
        f"<h4>Why</h4><p>{text(f.cause)}{_tag(f.upstream)}</p>",
        _values(evidence.values),
        _fix(f.fix, f.proof),
        _checks(f.verification),
        _folded("Messages from torch", evidence.reasons, code=True),
        _folded("Included in this finding", evidence.folded),
        _folded("Notes", evidence.notes),
    ]
    return "\n".join(part for part in parts if part)


def _source(lines: tuple[SourceLine, ...]) -> str:
    """The lines around the place, with the line of the place highlighted."""
    while lines and not lines[-1].text.strip():
        lines = lines[:-1]      # the last lines of a file are often blank
    rows = []
    for line in lines:
        tag = "mark" if line.is_place else "span"
        rows.append(f"<{tag}><i>{line.number}</i> {text(line.text.expandtabs(4))}</{tag}>")
    return f'<pre class="source">{"".join(rows)}</pre>' if rows else ""


def _values(values: tuple[SampledValue, ...]) -> str:
    if not values:
        return ""
    listed = ", ".join(f"<code>{text(value)}</code>" for value in values[:MAX_VALUES])
    more = and_more(len(values) - MAX_VALUES)
    return f'<h4>Values over time</h4><p class="values">{sparkline(values)}{listed}{more}</p>'


def sparkline(values: Sequence[SampledValue]) -> str:
    """The values as a small line chart; empty if they are too few, not all numbers, or of several quantities."""
    numbers = [value.number for value in values if value.number is not None and not value.part]
    if len(numbers) < max(MIN_POINTS, len(values)) or not all(map(math.isfinite, numbers)):
        return ""
    if not math.isfinite(max(numbers) - min(numbers)):
        return ""
    steps = [value.step for value in values if value.step is not None]
    across = _scaled(steps if len(steps) == len(numbers) else range(len(numbers)), SPARK_WIDTH)
    up = _scaled(numbers, SPARK_HEIGHT)
    points = " ".join(f"{x:.1f},{SPARK_HEIGHT - y:.1f}" for x, y in zip(across, up, strict=True))
    label = f"{len(numbers)} values, from {min(numbers):g} to {max(numbers):g}"
    return (
        f'<svg class="spark" role="img" aria-label="{label}" viewBox="0 0 {SPARK_WIDTH} {SPARK_HEIGHT}">'
        f'<polyline points="{points}"/></svg>'
    )


def _scaled(numbers: Sequence[float], length: int) -> list[float]:
    """The numbers as positions between the two margins of a length."""
    low, high = min(numbers), max(numbers)
    span = (high - low) or 1.0
    return [SPARK_MARGIN + (length - 2 * SPARK_MARGIN) * (number - low) / span for number in numbers]


def _fix(fix: Fix, proof: RemedyProof | None) -> str:
    """The text of the fix, and its edit as a diff; the Copy button copies the edit if there is one, else the text.

    Below it the proof of an edit that was verified.
    """
    safety = "check it: may change the program's behaviour"
    if fix.safe:
        safety = "safe: does not change the program's results"
    if fix.edit is None:
        body = f"<p data-copied>{text(fix.text)}</p>"
    else:
        body = f'<p>{text(fix.text)}</p><pre class="diff" data-copied>{_diff(fix.edit)}</pre>'
    if proof is not None:
        body += f"<p><b>Verified</b>: {text(proof_sentence(proof))}</p>"
    return (
        f'<div class="fix"><div><h4>Fix</h4><span class="tag">{safety}</span>'
        f'<button type="button" class="copy with-script">Copy</button></div>{body}</div>'
    )


def _checks(checks: Sequence[Check]) -> str:
    if not checks:
        return ""
    return f'<h4>How to verify</h4><ul class="checks">{items(map(sentence, checks))}</ul>'


def _diff(edit: str) -> str:
    tags = {"+": "ins", "-": "del"}
    lines = []
    for line in edit.strip("\n").split("\n"):
        tag = "span" if line.startswith(("+++", "---")) else tags.get(line[:1], "span")
        lines.append(f"<{tag}>{block(line)}\n</{tag}>")
    return "".join(lines)


def _folded(title: str, lines: tuple[str, ...], *, code: bool = False) -> str:
    if not lines:
        return ""
    listed = "".join(f"<li><code>{text(line)}</code></li>" for line in lines) if code else items(lines)
    return f"<details><summary>{title} ({len(lines)})</summary><ul>{listed}</ul></details>"


def _facts(scope: Scope, f: Finding) -> str:
    rows = [
        ("Cost", _cost_facts(f.cost)),
        ("Raised at", scope.place(f.raised_at) if f.raised_at else ""),
        ("Owner", text(f.owner)),
        ("Category", text(f.category)),
        ("Seen", counted(f.evidence.num_events, "time") if f.evidence.num_events else ""),
        ("Steps", _shortened(f.steps)),
        ("Ranks", row(f.ranks)),
        ("Compile ids", _shortened(f.evidence.compile_ids)),
        ("Related", _related(scope, f)),
        ("Rule", rule_link(f.code, f"{text(f.code)} {text(f.slug)}")),
        ("Status", text(f.status) if f.status != "open" else ""),
        ("Fingerprint", f"<code>{text(f.fingerprint)}</code>" if f.fingerprint else ""),
    ]
    return "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows if value)


def _cost_facts(cost: Cost) -> str:
    shown = cost_text(replace(cost, note="")) or str(cost.kind)
    return f"<b>{text(shown)}</b>" + (f"<br>{text(cost.note)}" if cost.note else "")


def _shortened(values: tuple[object, ...], most: int = 12) -> str:
    return text(row(values, most))


def _related(scope: Scope, f: Finding) -> str:
    links = []
    if SHAPES in f.related and scope.report.shapes is not None:
        links.append('<a href="#shapes">shape policies measured</a>')
    for fingerprint in f.related:
        other = scope.finding(fingerprint)
        if other is not None:
            links.append(scope.link(fingerprint, f"{text(other.code)} {text(other.slug)}"))
    return "<br>".join(links)
