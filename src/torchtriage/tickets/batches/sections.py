"""The parts of a batch report that follow from its tickets: each is a key and the text that stands between its markers."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from torchtriage.findings.model import Category, Severity
from torchtriage.tickets.files.reading import label_of
from torchtriage.tickets.markdown.lines import TEXT, scan
from torchtriage.tickets.model import ENDED, Status, Ticket

NOTHING = "Nothing written yet."
NO_FINDINGS = "No ticket of this batch names this file."
FINDINGS = "findings"       # the key of a file's own table, followed by its path
PRIORITIES = (("Blocking", ("P0",)), ("High Priority", ("P1", "P2")), ("Medium Priority", ("P3",)), ("Low Priority", ("P4",)))
_SEVERITIES = tuple(severity.name for severity in Severity)
_LONGEST_FIX = 300


def derived(tickets: Sequence[Ticket]) -> dict[str, str]:
    """Every derived part by its key, in the order of the report."""
    names = labels(file for ticket in tickets for file in ticket.files)
    return {
        "files": "\n".join(f"{number}. `{file}`" for number, file in enumerate(names, start=1)) or "No ticket names a file.",
        "executive-summary": _executive_summary(tickets, names),
        **{findings_key(file): _file_table([ticket for ticket in tickets if file in ticket.files]) for file in names},
        "cross-cutting": _cross_cutting([ticket for ticket in tickets if len(ticket.files) > 1], names),
        "missing-tests": _missing_tests([ticket for ticket in tickets if Category.TEST_GAP in ticket.categories], names),
        "memory": _memory([ticket for ticket in tickets if Category.RESOURCE in ticket.categories], names),
        "severity-summary": _severity_summary(tickets),
        "detailed-findings": _detailed(tickets, names),
        "recommendations": _recommendations([ticket for ticket in tickets if not _has_ended(ticket)]),
        "main-concerns": _main_concerns([ticket for ticket in tickets if not _has_ended(ticket)]),
    }


def findings_key(file: str) -> str:
    return f"{FINDINGS} {quote(file, safe='/~:@+,=')}"      # no `>` or line end of a file's name may end the marker


def labels(files: Iterable[str]) -> dict[str, str]:
    """Each path and the shortest end of it that no other path shares; in backticks where Markdown would make it bold."""
    paths = sorted(set(files) - {""})
    found = {}
    for path in paths:
        parts = path.replace("\\", "/").split("/")
        ends = ("/".join(parts[start:]) for start in range(len(parts) - 1, -1, -1))
        end = next((end for end in ends if end and sum(_ends_with(other, end) for other in paths) == 1), path)
        found[path] = f"`{end}`" if "__" in end else end
    return found


def _ends_with(path: str, end: str) -> bool:
    return f"/{path}".replace("\\", "/").endswith(f"/{end}")


def _has_ended(ticket: Ticket) -> bool:
    return ticket.status.lower() in ENDED


def severity_of(ticket: Ticket) -> str:
    """A severity of the list, whatever its case; else the word as it was written."""
    word = ticket.severity.strip()
    return word.upper() if word.upper() in _SEVERITIES else word or "none"


def text_cell(text: str) -> str:
    """Any text on one line of a table, unable to open a comment or a column."""
    return " ".join(text.split()).replace("|", "\\|").replace("<!--", "\\<!--") or "-"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join("-" * (len(name) + 2) for name in header) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(text_cell(cell) for cell in row) + " |" for row in rows)])


def _summary(ticket: Ticket) -> str:
    return ticket.summary or ticket.title


def _lines(ticket: Ticket, prefix: str = "") -> str:
    return prefix + ticket.lines if ticket.lines[:1].isdigit() else ticket.lines


def _in_files(ticket: Ticket, names: Mapping[str, str]) -> str:
    return ", ".join(names[file] for file in ticket.files if file)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _counted(words: Iterable[str], order: Sequence[str]) -> str:
    """`2 open, 1 closed`: known words in their order, the others after them."""
    counts = Counter(words)
    known = [word for word in order if counts[word]]
    return ", ".join(f"{counts[word]} {text_cell(word)}" for word in [*known, *sorted(counts.keys() - set(known))])


def _executive_summary(tickets: Sequence[Ticket], names: Mapping[str, str]) -> str:
    severities = _counted(map(severity_of, tickets), _SEVERITIES)
    statuses = _counted((ticket.status.lower() or "none" for ticket in tickets), list(Status))
    lines = [f"{count(len(tickets), 'finding')} in {count(len(names), 'file')}: {severities}. Status: {statuses}."]
    for label, field in (("Domains", "domain"), ("Reviewed by", "agent")):
        values = sorted({getattr(ticket, field) for ticket in tickets} - {""})
        lines += [f"{label}: {', '.join(map(text_cell, values))}."] if values else []
    return "\n".join(lines)


def _file_table(tickets: Sequence[Ticket]) -> str:
    rows = [(ticket.id, severity_of(ticket), _lines(ticket, "L"), _summary(ticket)) for ticket in tickets]
    return table(("ID", "Severity", "Location", "Issue"), rows)


def _cross_cutting(tickets: Sequence[Ticket], names: Mapping[str, str]) -> str:
    if not tickets:
        return "No ticket of this batch names more than one file."
    return table(("Risk", "Severity", "Details"), [
        (f"{ticket.id}: {ticket.title}", severity_of(ticket), f"In {_in_files(ticket, names)}. {_summary(ticket)}") for ticket in tickets
    ])


def _missing_tests(tickets: Sequence[Ticket], names: Mapping[str, str]) -> str:
    if not tickets:
        return f"No ticket of this batch has the category {Category.TEST_GAP}."
    return table(("Component", "Issue"), [
        (ticket.function or _in_files(ticket, names), f"{ticket.id}: {_summary(ticket)}") for ticket in tickets
    ])


def _memory(tickets: Sequence[Ticket], names: Mapping[str, str]) -> str:
    if not tickets:
        return f"No ticket of this batch has the category {Category.RESOURCE}."
    return table(("ID", "Severity", "File", "Line", "Issue"), [
        (ticket.id, severity_of(ticket), _in_files(ticket, names), _lines(ticket), _summary(ticket)) for ticket in tickets
    ])


def _severity_summary(tickets: Sequence[Ticket]) -> str:
    """Every finding is named, so the number of names is always the count."""
    found = {severity_of(ticket) for ticket in tickets}
    rows = []
    for severity in [*_SEVERITIES, *sorted(found - set(_SEVERITIES))]:
        of_it = [ticket for ticket in tickets if severity_of(ticket) == severity]
        rows.append((severity, str(len(of_it)), "; ".join(_key_issue(ticket) for ticket in of_it)))
    statuses = _counted((ticket.status.lower() or "none" for ticket in tickets), list(Status))
    return f"{table(('Severity', 'Count', 'Key Issues'), rows)}\n\nTotal: {count(len(tickets), 'finding')} ({statuses})."


def _key_issue(ticket: Ticket) -> str:
    return f"{ticket.id}: {ticket.title}".replace(";", ",")     # a semicolon begins the next one


def _detailed(tickets: Sequence[Ticket], names: Mapping[str, str]) -> str:
    return table(("ID", "File", "Line", "Severity", "Status", "Issue"), [
        (ticket.id, _in_files(ticket, names), _lines(ticket), severity_of(ticket), ticket.status, ticket.title or ticket.summary)
        for ticket in tickets
    ])


def _recommendations(tickets: Sequence[Ticket]) -> str:
    """What is still to be done, under the priority of its severity and numbered throughout."""
    listed = [(name, severities, [ticket for ticket in tickets if severity_of(ticket) in severities]) for name, severities in PRIORITIES]
    others = [ticket for ticket in tickets if severity_of(ticket) not in _SEVERITIES]
    parts: list[str] = []
    number = 0
    for name, severities, of_it in [*listed, ("Other", (), others)]:
        if not of_it and name in ("Blocking", "Other"):
            continue
        items = []
        for ticket in of_it:
            number += 1
            items.append(f"{number}. **{text_cell(ticket.id)}:** {fix_summary(ticket)}")
        span = f" ({'-'.join(severities)})" if severities else ""
        parts.append(f"### {name}{span}\n\n" + ("\n".join(items) or "Nothing to do."))
    return "\n\n".join(parts)


def fix_summary(ticket: Ticket) -> str:
    """A ticket's fix on one line: its options if it gives some, else its first paragraph that is not code."""
    lines = scan(ticket.fix)[0]
    labels = [label[1] for line in lines if (label := label_of(line))]
    options = "; ".join(label for label in labels if label.lower().startswith("option"))
    text = "\n".join(line.text if line.kind == TEXT else "" for line in lines)
    paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
    summary = options or next((part for part in paragraphs if part), "") or "no fix is written in the ticket"
    summary = summary if len(summary) <= _LONGEST_FIX else summary[: _LONGEST_FIX - 3] + "..."
    return summary.lstrip("# ").rstrip(": ").replace("<!--", "\\<!--")


def _main_concerns(tickets: Sequence[Ticket]) -> str:
    severe = [ticket for ticket in tickets if severity_of(ticket) in ("P0", "P1", "P2")]
    if not severe:
        return "No finding of P2 or worse is left to do."
    lines = [f"{count(len(severe), 'finding')} of P2 or worse left to do:", ""]
    for number, ticket in enumerate(sorted(severe, key=severity_of), start=1):
        lines.append(f"{number}. **{severity_of(ticket)}:** {text_cell(ticket.title)} ({text_cell(ticket.id)})")
    return "\n".join(lines)
