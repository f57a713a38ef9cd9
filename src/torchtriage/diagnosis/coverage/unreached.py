"""TT311: a torch.compile call in the main script that the run did not reach."""

import ast
from collections.abc import Iterator

from torchtriage.diagnosis.places import locate, source_lines
from torchtriage.diagnosis.rules import finding, placed_fields, run_rule
from torchtriage.diagnosis.statement import Statement, called_name, code, fits, statement_at
from torchtriage.findings.model import Check, CheckKind, Evidence, Finding, Fix, OwnerKind, Severity
from torchtriage.recording.events import CompileCall, CompileSite, CompileStart
from torchtriage.recording.recording import Process, Recording
from torchtriage.text import listed, short_place


@run_rule
def compile_not_reached(recording: Recording) -> Iterator[Finding]:
    """No process called torch.compile, although a main script has a call of it."""
    called = any(True for kind in (CompileCall, CompileStart) for _ in recording.of(kind))
    if called or recording.launcher.exit_status:    # a program that failed may not have come to it
        return
    for process in recording.processes:
        sites = [site for site in process.of(CompileSite) if locate(process, site).owner.kind is OwnerKind.YOU]
        if sites and process.recorder.end:
            yield _not_reached(process, sites)


def _not_reached(process: Process, sites: list[CompileSite]) -> Finding:
    first = sites[0]
    place = locate(process, first)
    where = short_place(first.path, first.line)
    statement = statement_at(process, first.path, first.line or 0)
    inside = _inside(statement)
    others = [f"line {site.line}" for site in sites[1:]]
    has_condition = statement is not None and bool(_condition(statement)[0])
    also = f"; nor was {listed(others, 3)}" if others else ""
    return finding(
        "TT311", title=f"torch.compile at {where} was not reached in this run: nothing was compiled",
        cause=f"no call of torch.compile was observed; {where}{inside} was not executed{also}",
        severity=Severity.P4 if has_condition else Severity.P3,     # a condition is chosen when it is started
        fix=Fix(text=f"nothing to do if this run is meant to be eager; else {_way_there(statement, where)}"),
        evidence=Evidence(
            num_events=len(sites), source=source_lines(process, place.location),
            notes=("the call is read from the source of the main script",),
        ),
        verification=(Check(CheckKind.NO_FINDING, "torch.compile", code="TT311"),),
        **placed_fields(place, "TT311", "", process, first),
    )


def _inside(statement: Statement | None) -> str:
    """Where the call is: `, in build(), under `if args.compile`,`."""
    if statement is None:
        return ""
    parts = [f"in {statement.function.name}()"] if statement.function is not None else []
    test, is_else = _condition(statement)
    if test:
        parts.append(f"in the else of `if {test}`" if is_else else f"under `if {test}`")
    return f", {', '.join(parts)}," if parts else ""


def _way_there(statement: Statement | None, where: str) -> str:
    test, is_else = _condition(statement) if statement is not None else ("", False)
    if test:
        return f"run it with a {'false' if is_else else 'true'} `{test}`"
    function = statement.function if statement is not None else None
    if function is not None:
        return f"call {function.name}(), or have it come to {where}"
    return f"have the run come to {where}"


def _condition(statement: Statement) -> tuple[str, bool]:
    """The test that decides whether the call runs, within its function, and whether the call runs where it is false.

    It is that of a conditional expression, or of the innermost `if` around the call. Empty if there is
    none, if it is too long to quote, or if it only asks whether the file is the main script.
    """
    test, is_else = _deciding_test(statement)
    return (code(test), is_else) if test is not None and fits(code(test)) else ("", False)


def _deciding_test(statement: Statement) -> tuple[ast.expr | None, bool]:
    for choice in ast.walk(statement.node):
        if isinstance(choice, ast.IfExp) and _compiles(choice.body) != _compiles(choice.orelse):
            return choice.test, _compiles(choice.orelse)
    child: ast.stmt = statement.node
    for parent in reversed(statement.parents):
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            break
        if isinstance(parent, ast.If) and "__name__" not in code(parent.test):
            return parent.test, child in parent.orelse
        child = parent
    return None, False


def _compiles(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Call) and called_name(part) == "compile" for part in ast.walk(node))
