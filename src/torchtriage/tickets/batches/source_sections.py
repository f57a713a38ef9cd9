"""The parts of a batch report that follow from the reviewed source, each with the key of its markers."""

import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from torchtriage.findings.model import Category
from torchtriage.text import counted, listed, row, shortened
from torchtriage.tickets.batches.sections import file_labels, files_of, severity_of, table
from torchtriage.tickets.batches.source_facts import ModelAllocation, ReviewedFile, SourceFacts, UntestedName
from torchtriage.tickets.checks.matching import same_file
from torchtriage.tickets.files.render import CATEGORIES
from torchtriage.tickets.model import Ticket

ABOUT = "about"             # the key of what is said about one file is this word and the path of the file
FILES, CONCERNS, OTHERS = "files-reviewed", "key-concerns", "other-files"
FOCUS, COMPILES, UNTESTED = "focus", "compile-risks", "untested"
ALLOCATIONS, VERSIONS = "allocations", "versions"
SOURCE_KEYS = frozenset({FILES, CONCERNS, OTHERS, FOCUS, COMPILES, UNTESTED, ALLOCATIONS, VERSIONS})
MAX_PURPOSE = 300
MAX_UNTESTED = 40           # rows; a longer list is not read by people
MAX_NAMES = 8
FLOAT32_BYTES = 4
_UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "KB"))
_NO_DOCSTRING = "The file has no docstring."


def is_source_key(key: str) -> bool:
    """Whether a derived part needs the source: `ticket report`, which has only the tickets, leaves it unchanged."""
    return key in SOURCE_KEYS or key.startswith(f"{ABOUT} ")


def about_key(path: str) -> str:
    return f"{ABOUT} {quote(path, safe='/~:@+,=')}"


def source_parts(facts: SourceFacts, tickets: Sequence[Ticket]) -> dict[str, str]:
    """Every part that follows from the source, by its key."""
    labels = file_labels([*files_of(tickets), *(file.path for file in facts.files)])
    with_tickets = set(files_of(tickets))
    reviewed = {path: _reviewed(path, facts.files) for path in with_tickets}
    about = {about_key(path): _about(reviewed[path]) for path in labels if path in with_tickets}
    return {
        FOCUS: _focus(facts),
        FILES: _files(facts.files),
        CONCERNS: _concerns(tickets, facts),
        OTHERS: _others([each for each in facts.files if each not in reviewed.values()], labels),
        **about,
        COMPILES: _compile_risks(tickets, facts, labels),
        UNTESTED: _untested(facts, labels),
        ALLOCATIONS: _allocations(facts),
        VERSIONS: _versions(facts, labels),
    }


def _reviewed(path: str, files: Sequence[ReviewedFile]) -> ReviewedFile | None:
    """The reviewed file that a ticket names, also by the path of another machine if no other file ends like it."""
    same = [file for file in files if file.path == path] or [file for file in files if same_file(file.path, path)]
    return same[0] if len(same) == 1 else None


def _focus(facts: SourceFacts) -> str:
    runs = f", and what torch compiled in {listed(facts.recordings)}" if facts.recordings else ""
    return f"**Reviewer Focus:** PyTorch engineering: what `torchtriage lint` finds in the source{runs}"


def _files(files: Sequence[ReviewedFile]) -> str:
    lines = [f"{number}. `{file.path}`" for number, file in enumerate(files, start=1)]
    problems = [f"- `{file.path}` {_one_line(file.problem)}" for file in files if file.problem]
    if problems:
        lines += ["", "**Not reviewed, or not entirely:**", "", *problems]
    return "\n".join(lines) or "No Python file is below the given paths."


def _concerns(tickets: Sequence[Ticket], facts: SourceFacts) -> str:
    """The findings of P2 or worse by category, and those that have a ticket in another batch."""
    severe = [ticket for ticket in tickets if severity_of(ticket) in ("P0", "P1", "P2")]
    lines = []
    for category in CATEGORIES:
        group = sorted((t for t in severe if category in t.categories), key=lambda t: (severity_of(t), t.id))
        if group:
            head = f"{counted(len(group), 'finding')}, the worst {severity_of(group[0])}"
            lines.append(f"- {CATEGORIES[category]}: {head} ({row(t.id for t in group)})")
    text = "\n".join(["**Key Concerns:**", "", *lines]) if lines else "**Key Concerns:** no finding of P2 or worse."
    if facts.elsewhere:
        text += f"\n\nFindings of this source with a ticket of another batch: {row(facts.elsewhere)}."
    return text


def _about(file: ReviewedFile | None) -> str:
    if file is None:
        return "This file was not among the reviewed ones."
    names = _torch_names(file)
    relevance = f"uses {names}." if names else "names nothing of torch."
    return f"**Purpose:** {_purpose(file)}\n\n**PyTorch Relevance:** {relevance}"


def _is_unread(file: ReviewedFile) -> bool:
    return bool(file.problem) and not file.num_lines


def _purpose(file: ReviewedFile) -> str:
    if _is_unread(file):
        return f"The file {_one_line(file.problem)}."
    return shortened(_one_line(file.purpose), MAX_PURPOSE) or _NO_DOCSTRING


def _torch_names(file: ReviewedFile) -> str:
    return row((f"`{name}`" for name in file.torch_names), MAX_NAMES)


def _others(files: Sequence[ReviewedFile], labels: Mapping[str, str]) -> str:
    files = [file for file in files if not _is_unread(file)]
    if not files:
        return "Every reviewed file has a finding."
    rows = [(labels[file.path], _purpose(file), _torch_names(file)) for file in files]
    head = f"{counted(len(files), 'reviewed file')} without a finding:"
    return f"{head}\n\n{table(('File', 'Purpose', 'Names of torch'), rows)}"


def _compile_risks(tickets: Sequence[Ticket], facts: SourceFacts, labels: Mapping[str, str]) -> str:
    calls, reached = counted(facts.num_compile_calls, "call"), counted(facts.num_reached, "function")
    head = f"The source has {calls} of torch.compile"
    head += f", from which lint reaches {reached}." if facts.num_compile_calls else "."
    group = [ticket for ticket in tickets if Category.COMPILE in ticket.categories]
    if not group:
        return f"{head} No finding concerns torch.compile."
    rows = [(f"{t.id}: {t.title}", severity_of(t), f"In {row(labels[f] for f in t.files)}. {t.summary}") for t in group]
    return f"{head}\n\n{table(('Risk', 'Severity', 'Details'), rows)}"


def _untested(facts: SourceFacts, labels: Mapping[str, str]) -> str:
    if not facts.tests_read:
        return "Names without tests are unknown: no test was found, or the extent of the project is not known."
    if not facts.untested:
        return "A test names every public class and function of these files."
    ranked = sorted(facts.untested, key=lambda each: (not each.has_state, each.kind != "class", each.path, each.line))
    rows = [(each.name, f"{_untested_issue(each)} ({labels[each.path]}:{each.line})") for each in ranked[:MAX_UNTESTED]]
    classes = sum(each.kind == "class" for each in ranked)
    functions = len(ranked) - classes
    plural = f"{counted(classes, 'class', 'classes')} and {counted(functions, 'function')}"
    more = f" The first {MAX_UNTESTED} are listed." if len(ranked) > MAX_UNTESTED else ""
    return f"No test names {plural}.{more}\n\n{table(('Component', 'Issue'), rows)}"


def _untested_issue(each: UntestedName) -> str:
    state = ", and it saves and loads its state" if each.has_state else ""
    return f"no test names this {each.kind}{state}"


def _allocations(facts: SourceFacts) -> str:
    if not facts.allocations:
        return "No call that allocates with the parameters of a model was found."
    size = facts.num_parameters
    given = f"a model of {size:,} parameters" if size else "each parameter of the model"
    note = (
        f"Estimated for {given}, with {FLOAT32_BYTES} bytes per element (float32) where the code sets no other type. "
        "A line says what one call allocates; gradients and activations are not included."
    )
    lines: list[str] = []
    for function, group in _by_function(facts.allocations):
        lines += [function, *(_allocation_line(each, size) for each in group), f"  - {_peak(group, size)}", ""]
    text = "\n".join(lines).rstrip()
    ticks = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{note}\n\n{ticks}text\n{text}\n{ticks}"


def _by_function(allocations: Iterable[ModelAllocation]) -> list[tuple[str, list[ModelAllocation]]]:
    groups: dict[str, list[ModelAllocation]] = {}
    for each in allocations:
        groups.setdefault(f"{each.function} ({each.path}):", []).append(each)
    return list(groups.items())


def _bytes_of(each: ModelAllocation, num_parameters: int) -> int:
    return each.num_copies * num_parameters * (each.element_bytes or FLOAT32_BYTES)


def _allocation_line(each: ModelAllocation, size: int | None) -> str:
    life = "kept" if each.is_kept else "temporary"
    return f"  - line {each.line}: {each.call}: {each.content}, {_amount(_bytes_of(each, size or 1), size)} ({life})"


def _peak(group: Sequence[ModelAllocation], size: int | None) -> str:
    kept = sum(_bytes_of(each, size or 1) for each in group if each.is_kept)
    largest = max((_bytes_of(each, size or 1) for each in group if not each.is_kept), default=0)
    parts = [f"{_amount(kept, size)} kept"] if kept else []
    parts += [f"{_amount(largest, size)} temporary"] if largest else []
    return f"Peak: {' and '.join(parts)}"


def _amount(num_bytes: int, size: int | None) -> str:
    if size is None:
        return f"{counted(num_bytes, 'byte')} per parameter"
    for unit, name in _UNITS:
        if num_bytes >= unit:
            return f"{num_bytes / unit:.3g} {name}" if num_bytes < 1000 * unit else f"{num_bytes / unit:,.0f} {name}"
    return counted(num_bytes, "byte")


def _versions(facts: SourceFacts, labels: Mapping[str, str]) -> str:
    """The names that not every release has, the oldest release with all of them, and the names that are unknown."""
    known = [feature for feature in facts.features if feature.since and "earlier" not in feature.since]
    unknown = [feature.name for feature in facts.features if not feature.since]
    num_old = len(facts.features) - len(known) - len(unknown)
    if not facts.features:
        return "The reviewed files name nothing of torch."
    parts = []
    if known:
        rows = [(f"`{f.name}`", f.since, row((labels[path] for path in f.files), MAX_NAMES)) for f in known]
        parts.append(table(("Feature", "Minimum Version", "Used In"), rows))
    if num_old:
        verb = "is" if num_old == 1 else "are"
        parts.append(f"{counted(num_old, 'other name')} of torch {verb} in 1.6 already, the oldest release compared.")
    if unknown:
        names = row((f"`{name}`" for name in unknown), 4 * MAX_NAMES)
        parts.append(f"Unknown, as the table of releases does not have them: {names}.")
    parts.append(_oldest([feature.since for feature in known], facts.torch_minimum))
    return "\n\n".join(parts)


def _oldest(versions: Sequence[str], required: str) -> str:
    newest = max(versions, key=_number, default="1.6")
    needs = "No name needs more than torch 1.6."
    if versions:
        needs = f"The names in the table need torch {newest} or newer."
    if not required:
        return f"{needs} The project names no oldest torch."
    if _number(required) >= _number(newest):
        return f"{needs} The project requires torch {required} or newer."
    return f"{needs} The project allows torch {required}, which is older."


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _one_line(text: str) -> str:
    """Any text on one line, unable to open a comment."""
    return " ".join(text.split()).replace("<!--", "\\<!--")
