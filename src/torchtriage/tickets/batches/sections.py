"""The parts of a batch report that are derived from its tickets, each with the key of its markers."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from torchtriage.findings.model import Category, Severity
from torchtriage.text import counted
from torchtriage.tickets.markdown.lines import TEXT, scan
from torchtriage.tickets.markdown.lists import label_of
from torchtriage.tickets.model import ENDED, Status, Ticket
from torchtriage.tickets.naming import RECORDING_AGENT

EMPTY = "Nothing written yet."
NO_FINDINGS = "No ticket of this batch names this file."
FINDINGS = "findings"       # the key of a file's own table is this word and the file's path
PRIORITIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Blocking", ("P0",)), ("High Priority", ("P1", "P2")), ("Medium Priority", ("P3",)), ("Low Priority", ("P4",)),
)
_SEVERITIES = tuple(severity.name for severity in Severity)
_MAX_FIX = 300
_RULE = re.compile(r"TT\d{3}\b")


def derived_parts(tickets: Sequence[Ticket], more_files: Iterable[str] = ()) -> dict[str, str]:
    """Every derived part by its key, in the order of the report; no label fits one of `more_files` as well."""
    own = set(files_of(tickets))
    labels = {file: label for file, label in file_labels([*own, *more_files]).items() if file in own}
    unfinished = [ticket for ticket in tickets if ticket.status.lower() not in ENDED]
    file_tables = {
        findings_key(file): _file_table([ticket for ticket in tickets if file in ticket.files]) for file in labels
    }
    return {
        "files": _file_list(labels),
        "executive-summary": _executive_summary(tickets, labels),
        **file_tables,
        "cross-cutting": _cross_cutting([ticket for ticket in tickets if len(ticket.files) > 1], labels),
        "missing-tests": _missing_tests([t for t in tickets if Category.TEST_GAP in t.categories], labels),
        "memory": _memory([ticket for ticket in tickets if Category.RESOURCE in ticket.categories], labels),
        "severity-summary": _severity_summary(tickets),
        "detailed-findings": _detailed(tickets, labels),
        "recommendations": _recommendations(unfinished),
        "main-concerns": _main_concerns(unfinished),
    }


def findings_key(file: str) -> str:
    # Quoted, so that a `>` or line ending in a file's name cannot end the marker.
    return f"{FINDINGS} {quote(file, safe='/~:@+,=')}"


def files_of(tickets: Iterable[Ticket]) -> list[str]:
    return [file for ticket in tickets for file in ticket.files]


def file_labels(files: Iterable[str]) -> dict[str, str]:
    """Each path with its shortest unique suffix, in backticks where Markdown would make it bold."""
    paths = sorted(set(files) - {""})
    labels = {}
    for path in paths:
        label = _unique_suffix(path, paths)
        labels[path] = f"`{label}`" if "__" in label else label
    return labels


def _unique_suffix(path: str, paths: Sequence[str]) -> str:
    parts = path.replace("\\", "/").split("/")
    for start in range(len(parts) - 1, -1, -1):
        suffix = "/".join(parts[start:])
        if suffix and sum(_ends_with(other, suffix) for other in paths) == 1:
            return suffix
    return path


def _ends_with(path: str, suffix: str) -> bool:
    return f"/{path}".replace("\\", "/").endswith(f"/{suffix}")


def severity_of(ticket: Ticket) -> str:
    """A valid severity in upper case, any other word unchanged, or "none"."""
    word = ticket.severity.strip()
    return word.upper() if word.upper() in _SEVERITIES else word or "none"


def _safe_text(text: str) -> str:
    """Any text on one line, unable to open a comment or a table column."""
    return " ".join(text.split()).replace("|", "\\|").replace("<!--", "\\<!--") or "-"


def table(header: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join("-" * (len(name) + 2) for name in header) + "|"]
    for row in rows:
        lines.append("| " + " | ".join(_safe_text(cell) for cell in row) + " |")
    return "\n".join(lines)


def _summary(ticket: Ticket) -> str:
    return ticket.summary or ticket.title


def _lines(ticket: Ticket, prefix: str = "") -> str:
    return prefix + ticket.lines if ticket.lines[:1].isdigit() else ticket.lines


def _in_files(ticket: Ticket, labels: Mapping[str, str]) -> str:
    return ", ".join(labels[file] for file in ticket.files if file)


def _counts(words: Iterable[str], order: Sequence[str]) -> str:
    """`2 open, 1 closed`: the words of `order` first, then the others."""
    counts = Counter(words)
    in_order = [word for word in order if counts[word]]
    others = sorted(counts.keys() - set(in_order))
    return ", ".join(f"{counts[word]} {_safe_text(word)}" for word in [*in_order, *others])


def _status_counts(tickets: Sequence[Ticket]) -> str:
    return _counts((ticket.status.lower() or "none" for ticket in tickets), list(Status))


def _file_list(labels: Iterable[str]) -> str:
    lines = [f"{number}. `{file}`" for number, file in enumerate(labels, start=1)]
    return "\n".join(lines) or "No ticket names a file."


def _executive_summary(tickets: Sequence[Ticket], labels: Mapping[str, str]) -> str:
    if not tickets:
        return "No finding has a ticket of this batch."
    severities = _counts(map(severity_of, tickets), _SEVERITIES)
    totals = f"{counted(len(tickets), 'finding')} in {counted(len(labels), 'file')}"
    lines = [f"{totals}: {severities}. Status: {_status_counts(tickets)}."]
    for heading, field in (("Domains", "domain"), ("Reviewed by", "agent")):
        values = sorted({getattr(ticket, field) for ticket in tickets} - {""})
        if values:
            lines.append(f"{heading}: {', '.join(map(_safe_text, values))}.")
    return "\n".join(lines)


def _file_table(tickets: Sequence[Ticket]) -> str:
    rows = [(ticket.id, severity_of(ticket), _lines(ticket, "L"), _issue(ticket)) for ticket in tickets]
    return table(("ID", "Severity", "Location", "Issue"), rows)


def _issue(ticket: Ticket) -> str:
    """The summary that a person wrote; of a finding, whose summary is that of its rule, what it says itself."""
    cause = _first_paragraph(ticket.wrong) if ticket.fingerprint else ""
    return f"**{ticket.title}:** {cause}" if cause else _summary(ticket)


def _cross_cutting(tickets: Sequence[Ticket], labels: Mapping[str, str]) -> str:
    if not tickets:
        return "No ticket of this batch names more than one file."
    rows = [
        (f"{t.id}: {t.title}", severity_of(t), f"In {_in_files(t, labels)}. {_summary(t)}") for t in tickets
    ]
    return table(("Risk", "Severity", "Details"), rows)


def _missing_tests(tickets: Sequence[Ticket], labels: Mapping[str, str]) -> str:
    if not tickets:
        return f"No ticket of this batch has the category {Category.TEST_GAP}."
    rows = [(t.function or _in_files(t, labels), f"{t.id}: {_summary(t)}") for t in tickets]
    return table(("Component", "Issue"), rows)


def _memory(tickets: Sequence[Ticket], labels: Mapping[str, str]) -> str:
    if not tickets:
        return f"No ticket of this batch has the category {Category.RESOURCE}."
    rows = [(t.id, severity_of(t), _in_files(t, labels), _lines(t), _summary(t)) for t in tickets]
    return table(("ID", "Severity", "File", "Line", "Issue"), rows)


def _severity_summary(tickets: Sequence[Ticket]) -> str:
    """Every finding is named, so the number of names always equals the count."""
    unlisted = {severity_of(ticket) for ticket in tickets} - set(_SEVERITIES)
    rows = []
    for severity in [*_SEVERITIES, *sorted(unlisted)]:
        group = [ticket for ticket in tickets if severity_of(ticket) == severity]
        rows.append((severity, str(len(group)), "; ".join(_key_issue(ticket) for ticket in group)))
    rows_table = table(("Severity", "Count", "Key Issues"), rows)
    statuses = f" ({_status_counts(tickets)})" if tickets else ""
    return f"{rows_table}\n\nTotal: {counted(len(tickets), 'finding')}{statuses}."


def _key_issue(ticket: Ticket) -> str:
    return f"{ticket.id}: {ticket.title}".replace(";", ",")     # a semicolon begins the next issue


def _detailed(tickets: Sequence[Ticket], labels: Mapping[str, str]) -> str:
    """One row per ticket, with its rule if torchtriage found any of them."""
    rows = [
        (t.id, _in_files(t, labels), _lines(t), severity_of(t), t.status, rule_of(t), t.title or t.summary)
        for t in tickets
    ]
    header = ("ID", "File", "Line", "Severity", "Status", "Rule", "Issue")
    if any(rule_of(ticket) for ticket in tickets):
        return table(header, rows)
    return table([*header[:5], header[6]], [[*cells[:5], cells[6]] for cells in rows])


def rule_of(ticket: Ticket) -> str:
    """The code of the rule that a ticket is from; empty for a ticket that a person wrote."""
    match = _RULE.match(ticket.report_section)
    return match[0] if match and ticket.agent == RECORDING_AGENT else ""


def _recommendations(tickets: Sequence[Ticket]) -> str:
    """The fixes still to be made, under the priority of their severity and numbered throughout."""
    groups = [
        (name, severities, [ticket for ticket in tickets if severity_of(ticket) in severities])
        for name, severities in PRIORITIES
    ]
    groups.append(("Other", (), [ticket for ticket in tickets if severity_of(ticket) not in _SEVERITIES]))
    parts: list[str] = []
    number = 0
    for name, severities, group in groups:
        if not group and name in ("Blocking", "Other"):
            continue
        lines = []
        for ticket in group:
            number += 1
            lines.append(f"{number}. **{_safe_text(ticket.id)}:** {fix_summary(ticket)}")
        span = f" ({'-'.join(severities)})" if severities else ""
        parts.append(f"### {name}{span}\n\n" + ("\n".join(lines) or "Nothing to do."))
    return "\n\n".join(parts)


def fix_summary(ticket: Ticket) -> str:
    """A ticket's fix on one line: its options if it names any, otherwise its first paragraph that is not code."""
    summary = _fix_options(ticket.fix) or _first_paragraph(ticket.fix) or "no fix is written in the ticket"
    if len(summary) > _MAX_FIX:
        summary = summary[: _MAX_FIX - 3] + "..."
    return summary.lstrip("# ").rstrip(": ").replace("<!--", "\\<!--")


def _fix_options(fix: str) -> str:
    labels = [label[1] for line in scan(fix)[0] if (label := label_of(line))]
    return "; ".join(label for label in labels if label.lower().startswith("option"))


def _first_paragraph(text: str) -> str:
    prose = "\n".join(line.text if line.kind == TEXT else "" for line in scan(text)[0])
    paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", prose))
    return next((paragraph for paragraph in paragraphs if paragraph), "")


def _main_concerns(tickets: Sequence[Ticket]) -> str:
    severe = [ticket for ticket in tickets if severity_of(ticket) in ("P0", "P1", "P2")]
    if not severe:
        return "No finding of P2 or worse is left to do."
    lines = [f"{counted(len(severe), 'finding')} of P2 or worse left to do:", ""]
    for number, ticket in enumerate(sorted(severe, key=severity_of), start=1):
        lines.append(f"{number}. **{severity_of(ticket)}:** {_safe_text(ticket.title)} ({_safe_text(ticket.id)})")
    return "\n".join(lines)
