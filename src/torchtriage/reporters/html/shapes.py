"""The section on shape policies: the advice, the table, a chart of the totals, the evidence."""

from collections.abc import Iterable

from torchtriage.findings.model import Location
from torchtriage.findings.shape_study import ShapeStudy
from torchtriage.reporters import shape_text
from torchtriage.reporters.html.markup import Scope, block, items, note, section, table, text
from torchtriage.reporters.html.shape_chart import chart
from torchtriage.reporters.shape_text import PolicyRow

MAX_SIZES = 100


def shapes_section(scope: Scope) -> str:
    study = scope.report.shapes
    if study is None:
        return ""
    overrides = [f"{policy}: {call}" for policy, calls in shape_text.overrides(study) for call in calls]
    return section(
        "shapes", f"Shape policy: {text(shape_text.verdict(study))}",
        _advice(study), _table(study), note(shape_text.how_measured(study)),
        _list("Crossovers", (shape_text.crossover(study, c) for c in study.crossovers)), chart(study),
        _tree(study), _functions(study), _sizes(scope, study),
        _list("Calls whose own dynamic= was overridden", overrides), _list("Notes", study.notes),
        note(f"Measuring took {shape_text.spent(study)}."),
    )


def _advice(study: ShapeStudy) -> str:
    advice = study.advice
    why, needs = shape_text.reason(study), shape_text.needs(study)
    reason = f"<p>{text(why)}</p>" if why else ""
    needed = f"<p><b>What would settle it:</b> {text(needs)}</p>" if needs else ""
    if not advice.setting:
        return f'<div class="lead">{reason}{needed}</div>' if reason or needed else ""
    lines = block("\n".join(advice.setting))
    return (f'<div class="lead">{reason}{needed}</div><div class="fix"><div><h3>Set</h3>'
            f'<button type="button" class="copy with-script">Copy</button></div><pre data-copied>{lines}</pre></div>')


def _table(study: ShapeStudy) -> str:
    rows = [_row(row) for row in shape_text.rows(study)]
    head = [*map(text, shape_text.headings(study)), "remarks"]
    return table("Shape policies", head, rows, numbers=range(1, 7)) if rows else ""


def _row(row: PolicyRow) -> list[str]:
    cells = [row.policy, row.compiles, row.compiling, row.first_call, row.steady, row.memory, row.total]
    shown = [f"<b>{text(cell)}</b>" if row.is_advised else text(cell) for cell in cells]
    remarks = text("; ".join(row.remarks))
    return [*shown, f'<span class="bad">{remarks}</span>' if row.is_bare else remarks]


def _tree(study: ShapeStudy) -> str:
    rows = []
    for b in study.branches:
        question, answer, evidence = shape_text.branch_cells(study, b)
        rows.append([text(question), f"<b>{text(answer)}</b>", text(evidence)])
    if not rows:
        return ""
    return f"<h3>Decision tree</h3>{table('Decision tree', ['Question', 'Answer', 'Measured'], rows)}"


def _functions(study: ShapeStudy) -> str:
    rows = [[f"<code>{text(function)}</code>", text(policy)] for function, policy in shape_text.functions(study)]
    if len(rows) < 2:
        return ""
    return f"<h3>Best for each function</h3>{table('Best for each function', ['Function', 'Policy'], rows)}"


def _sizes(scope: Scope, study: ShapeStudy) -> str:
    rows = [
        [scope.place(Location(path=s.path, line=s.line, function=s.function)),
         f"<code>{text(shape_text.size_name(s))}</code>", f"{s.num_values:,}", f"{s.num_calls:,}",
         text(", ".join(shape_text.size_values(s))), text("; ".join(shape_text.size_marks(s)))]
        for s in study.sizes[:MAX_SIZES]
    ]
    if not rows:
        return ""
    head = ["Function", "Size", "Values", "Calls", "Most frequent", "Marked"]
    more = note(f"{len(study.sizes) - MAX_SIZES} more not listed.") if len(study.sizes) > MAX_SIZES else ""
    return f"<h3>Sizes that vary</h3>{table('Sizes that vary', head, rows, numbers=(2, 3))}{more}"


def _list(title: str, lines: Iterable[str]) -> str:
    listed = items(lines)
    return f"<h3>{title}</h3><ul>{listed}</ul>" if listed else ""
