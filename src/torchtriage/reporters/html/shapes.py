"""What measuring the program under several shape policies showed: what to do, the table, the totals as lines, what it rests on."""

from collections.abc import Iterable

from torchtriage.findings.model import Location
from torchtriage.findings.shape_study import ShapeStudy
from torchtriage.reporters import shape_words as words
from torchtriage.reporters.html.markup import Scope, block, items, note, section, table, text
from torchtriage.reporters.html.shape_chart import chart
from torchtriage.reporters.shape_words import Row

MAX_SIZES = 100


def shapes_section(scope: Scope) -> str:
    study = scope.report.shapes
    if study is None:
        return ""
    return section(
        "shapes", f"Shape policy: {text(words.verdict(study))}", _advice(study), _table(study), note(words.how_measured(study)),
        _list("Where it turns", (words.crossover(study, c) for c in study.crossovers)), chart(study), _tree(study), _functions(study),
        _sizes(scope, study), _list("Calls whose own dynamic= was overridden", (
            f"{policy}: {call}" for policy, calls in words.overrides(study) for call in calls
        )),
        _list("Notes", study.notes), note(f"Measuring took {words.spent(study)}."),
    )


def _advice(study: ShapeStudy) -> str:
    advice = study.advice
    said = f"<p>{text(why)}</p>" if (why := words.reason(study)) else ""
    needs = f"<p><b>What would settle it:</b> {text(advice.needs)}</p>" if advice.needs else ""
    if not advice.setting:
        return f'<div class="lead">{said}{needs}</div>' if said or needs else ""
    lines = block("\n".join(advice.setting))
    return (f'<div class="lead">{said}{needs}</div><div class="fix"><div><h3>Set</h3>'
            f'<button type="button" class="copy with-script">Copy</button></div><pre data-copied>{lines}</pre></div>')


def _table(study: ShapeStudy) -> str:
    rows = [_row(row) for row in words.rows(study)]
    head = [*map(text, words.headings(study)), "remarks"]
    return table("Shape policies", head, rows, numbers=range(1, 7)) if rows else ""


def _row(row: Row) -> list[str]:
    cells = [row.policy, row.compiles, row.compiling, row.first_call, row.steady, row.memory, row.total]
    shown = [f"<b>{text(cell)}</b>" if row.is_advised else text(cell) for cell in cells]
    remarks = text("; ".join(row.remarks))
    return [*shown, f'<span class="bad">{remarks}</span>' if row.is_bare and not row.remarks[0].startswith(words.NOT_RUN) else remarks]


def _tree(study: ShapeStudy) -> str:
    rows = [[text(b.question), f"<b>{text(b.answer)}</b>", text(b.evidence)] for b in study.branches]
    return f"<h3>Decision tree</h3>{table('Decision tree', ['Question', 'Answer', 'Measured'], rows)}" if rows else ""


def _functions(study: ShapeStudy) -> str:
    rows = [[f"<code>{text(function)}</code>", text(policy)] for function, policy in study.by_function.items()]
    return f"<h3>Best for each function</h3>{table('Best for each function', ['Function', 'Policy'], rows)}" if len(rows) > 1 else ""


def _sizes(scope: Scope, study: ShapeStudy) -> str:
    rows = [
        [scope.place(Location(path=s.path, line=s.line, function=s.function)), f"<code>{text(words.size_name(s))}</code>",
         f"{s.num_values:,}", f"{s.num_calls:,}", text(", ".join(words.size_values(s))), text("; ".join(filter(None, (
             "marked" if s.is_marked else "", s.why_not))))]
        for s in study.sizes[:MAX_SIZES]
    ]
    head = ["Function", "Size", "Values", "Calls", "Most frequent", "Marked"]
    more = note(f"{len(study.sizes) - MAX_SIZES} more not listed.") if len(study.sizes) > MAX_SIZES else ""
    return f"<h3>Sizes that vary</h3>{table('Sizes that vary', head, rows, numbers=(2, 3))}{more}" if rows else ""


def _list(title: str, lines: Iterable[str]) -> str:
    listed = items(lines)
    return f"<h3>{title}</h3><ul>{listed}</ul>" if listed else ""
