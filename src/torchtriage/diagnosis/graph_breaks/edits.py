"""The options of a break's remedy as edits, made from the same parsed statement as its text."""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torchtriage.diagnosis.graph_breaks.branches import branch_code, conditional_code, tensor_test
from torchtriage.diagnosis.graph_breaks.hoisting import (
    entered_outside,
    hoisted,
    listed_outside,
    model_compiled,
    moved,
    timed_outside,
)
from torchtriage.diagnosis.graph_breaks.remedies import Remedy
from torchtriage.diagnosis.graph_breaks.values import SCALARS, fill_code, read_code, reduction_code, size_code
from torchtriage.diagnosis.rewrites.loops import run_to_end, timed_statements
from torchtriage.diagnosis.statement import Statement, called_name, code, own_nodes
from torchtriage.findings.model import Change, ChangeKind, Edit, EditLabel
from torchtriage.recording.events import GraphBreak, StackEntry
from torchtriage.recording.recording import Process
from torchtriage.text import short_place

UNCOMPILED = "if not torch.compiler.is_compiling()"
# Calls in the arguments of a message that neither draw a random number nor change a tensor.
_PURE = frozenset({
    "abs", "max", "min", "mean", "sum", "std", "var", "norm", "item", "size", "numel", "dim", "tolist", "detach", "cpu",
    "float", "int", "len", "str", "repr", "round", "format", "any", "all", "type", "isnan", "isinf", "isfinite", "amax",
    "amin", "argmax", "argmin", "square", "sqrt", "shape", "numpy", "isinstance", "get_default_dtype", "join",
})
_MESSAGE = frozenset({"print", "pprint", "write", "flush", "warn", "warning", "info", "debug", "error", "exception",
                      "critical", "log", "warning_once"})


_SHOWS = re.compile(
    r"(?:^|[._])(?:log|logging|\w*logger|warnings|console|tqdm|\w*bar|stdout|stderr)\b", re.IGNORECASE)
_TESTS = (ast.If, ast.While, ast.IfExp, ast.Assert)
_DRAWS = re.compile(r"\b(?:random|rng|uuid|secrets)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakSite:
    """A break with the line that a person can change."""

    process: Process
    event: GraphBreak
    line: StackEntry
    statement: Statement
    remedy: Remedy

    def change(self, kind: ChangeKind, **fields: str) -> Change:
        return Change(kind=kind, path=self.line.path, line=self.line.line, **fields)

    @property
    def where(self) -> str:
        return short_place(self.line.path, self.line.line)


def break_edits(code_of_cause: str, site: BreakSite | None) -> tuple[Edit, ...]:
    """The edits for a break of this cause, the best first; none if no statement of the program was recorded."""
    if site is None:
        return ()
    edits = [edit for make in _BY_CODE.get(code_of_cause, ()) for edit in make(site)]
    others = [] if edits else [*model_instead(site), *loop_run_to_end(site)]
    setting = site.remedy.setting
    if setting and _is_known(setting, site.process.program.torch) and _cures_alone(setting, site.statement):
        edits.append(setting_edit(setting, site.line))
    return (*edits, *others)


def _cures_alone(setting: str, statement: Statement) -> bool:
    """Whether nothing else breaks at the statement once the setting is made."""
    node = statement.node
    if setting != SCALARS:
        return not (is_message(node) and "print" in setting and statement.calls("item", "tolist"))
    tests = [part.test for part in (node, *own_nodes(node)) if isinstance(part, _TESTS)]
    is_tested = any(called_name(part) in ("item", "float", "int", "bool") for test in tests
                    for part in ast.walk(test) if isinstance(part, ast.Call))
    return not (is_message(node) or is_tested)


# Settings that older versions of torch do not have: to assign to one raises an error there.
_SINCE = {"trace_autograd_ops": (2, 13), "ignore_logging_functions": (2, 13)}


def _is_known(setting: str, torch: str | None) -> bool:
    since = next((version for name, version in _SINCE.items() if name in setting), (0, 0))
    version = re.match(r"(\d+)\.(\d+)", torch or "")
    return since == (0, 0) or (version is not None and (int(version[1]), int(version[2])) >= since)


def setting_edit(setting: str, line: StackEntry) -> Edit:
    """A line of configuration in the file of a place."""
    change = Change(kind=ChangeKind.SET, path=line.path, line=line.line, new=setting)
    return Edit(label=EditLabel.SETTING, text=setting, changes=(change,))


def is_message(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called_name(node.value) in _MESSAGE


def _is_only_shown(call: ast.Call) -> bool:
    """Whether a message goes to a person: a callback may read what self.log() keeps, a program what it writes."""
    if isinstance(call.func, ast.Name):
        return True
    is_of_metrics = called_name(call) == "log" and not (call.args and code(call.args[0]).startswith("logging."))
    return isinstance(call.func, ast.Attribute) and bool(_SHOWS.search(code(call.func.value))) and not is_of_metrics


def guarded_message(site: BreakSite) -> Iterator[Edit]:
    """A message that compiled code leaves out; it computes nothing that the program uses."""
    node = site.statement.node
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call) or not is_message(node):
        return
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call) and part is not node.value]
    changes_nothing = all(called_name(call) in _PURE for call in calls) and not any(
        isinstance(part, ast.NamedExpr) for part in ast.walk(node))
    yield Edit(
        label=EditLabel.SAFE if changes_nothing and _is_only_shown(node.value) else EditLabel.REVIEW,
        text=f"`{UNCOMPILED}:` around the message at {site.where}: compiled code leaves it out",
        changes=(site.change(ChangeKind.WRAP, old=code(node), new=UNCOMPILED),),
    )


def branch(site: BreakSite) -> Iterator[Edit]:
    """An assertion of torch, or both sides computed and one selected."""
    found = branch_code(site.statement)
    if found is not None:
        statements, new = found
        is_assert = isinstance(site.statement.node, ast.Assert)
        yield Edit(
            label=EditLabel.SAFE if is_assert else EditLabel.REVIEW,
            text=f"`{new}` at {site.where}",
            changes=(site.change(
                ChangeKind.REWRITE, old="\n".join(code(statement) for statement in statements), new=_lines(new),
            ),),
        )
        return
    choice = conditional_code(site.statement.node)
    if choice is not None:
        yield Edit(
            label=EditLabel.REVIEW, text=f"`{choice[1]}` at {site.where}",
            changes=(site.change(ChangeKind.REPLACE, old=code(choice[0]), new=choice[1]),),
        )


def _lines(text: str) -> str:
    """`a = 1; b = 2` as one statement per line, the body of an `if` too."""
    tree = ast.parse(text)
    if len(tree.body) == 1 and not isinstance(tree.body[0], ast.If):
        return text
    return "\n".join(ast.unparse(statement) for statement in tree.body)


def read_value(site: BreakSite) -> Iterator[Edit]:
    """The tensor itself instead of its value, or the value computed before the compiled call."""
    if is_message(site.statement.node):
        yield from guarded_message(site)
        return
    if isinstance(site.statement.node, ast.Assert):
        return      # the test itself would break on the tensor
    found = read_code(site.statement)
    if found is not None:
        old, new = found
        yield Edit(
            label=EditLabel.REVIEW, text=f"`{new}` instead of `{code(old)}` at {site.where}",
            changes=(site.change(ChangeKind.REPLACE, old=code(old), new=new),),
        )
    size = size_code(site.statement)
    if size is not None:
        yield from _hoist(site, size)


def masked(site: BreakSite) -> Iterator[Edit]:
    """A selection by a mask at full size."""
    node = site.statement.node
    filled, reduction = fill_code(node), reduction_code(node)
    if filled:
        yield Edit(
            label=EditLabel.REVIEW, text=f"`{filled}` at {site.where}",
            changes=(site.change(ChangeKind.REWRITE, old=code(node), new=filled),),
        )
    elif reduction is not None:
        old, new = reduction
        yield Edit(
            label=EditLabel.REVIEW, text=f"`{new}` instead of `{code(old)}` at {site.where}",
            changes=(site.change(ChangeKind.REPLACE, old=code(old), new=new),),
        )
    else:
        yield from _hoist(site, _only_call(node))


def drawn(site: BreakSite) -> Iterator[Edit]:
    """A random number that is drawn before the compiled call; a test of one becomes a bool argument."""
    node = site.statement.node
    if isinstance(node, (ast.If, ast.While)):
        yield from _hoist(site, node.test)
        return
    draws = [
        part for part in own_nodes(node)
        if isinstance(part, ast.Call) and _DRAWS.search(code(part.func))
    ]
    if len(draws) == 1:
        yield from _hoist(site, draws[0], wrap="torch.tensor")


def called_outside(site: BreakSite) -> Iterator[Edit]:
    """A call whose result is computed before the compiled call."""
    yield from guarded_message(site)
    value = _only_call(site.statement.node)
    if value is None or not _DRAWS.search(code(value)):
        yield from _hoist(site, value)
    if not is_message(site.statement.node):
        yield from moved_outside(site)


def next_outside(site: BreakSite) -> Iterator[Edit]:
    """An item of an iterator that is taken before the compiled call; a list instead of an iterator that is passed."""
    calls = site.statement.calls("next")
    if len(calls) == 1:
        yield from _hoist(site, calls[0], wrap="torch.as_tensor")
    elif isinstance(site.statement.node, ast.For):
        yield from _present(listed_outside(site.process, site.event, site.statement.node.iter))


def model_instead(site: BreakSite) -> Iterator[Edit]:
    """The model compiled instead of the training step, or the loop, that calls it."""
    function = site.statement.function
    nodes = [node for node in ast.walk(function) if isinstance(node, ast.Call)] if function is not None else []
    is_step = any(called_name(node) in ("backward", "step", "grad") for node in nodes)
    if any(keyword.arg == "create_graph" for node in nodes for keyword in node.keywords):
        return      # it differentiates twice, which a model compiled with aot_eager or inductor refuses
    is_loop = site.statement.loop is not None or isinstance(site.statement.node, ast.While)
    if is_step or is_loop:
        yield from model_compiled(site.process, site.event)


def moved_outside(site: BreakSite) -> Iterator[Edit]:
    """The first or the last statement of the compiled function, made by its caller."""
    yield from _present(moved(site.process, site.event))


def context_outside(site: BreakSite) -> Iterator[Edit]:
    """A context manager that the caller enters around the compiled call."""
    yield from _present(entered_outside(site.process, site.event))


def clock(site: BreakSite) -> Iterator[Edit]:
    timed = list(timed_statements(site.statement))
    outside = timed_outside(site.process, site.event, timed) if timed else None
    if outside is not None:
        yield outside
        return
    if timed:
        changes = tuple(_at(site, node, ChangeKind.WRAP, old=code(node), new=UNCOMPILED) for node in timed)
        yield Edit(
            label=EditLabel.REVIEW, text=f"`{UNCOMPILED}:` around what reads the clock at {site.where}: compiled code "
            "is then not timed, nor are its times kept", changes=changes,
        )
        return
    yield from drawn(site)
    yield from context_outside(site)


def _at(site: BreakSite, node: ast.stmt, kind: ChangeKind, **fields: str) -> Change:
    """A change of another statement of the same function."""
    line = site.line.line - site.statement.node.lineno + node.lineno
    return Change(kind=kind, path=site.line.path, line=line, **fields)


def loop_run_to_end(site: BreakSite) -> Iterator[Edit]:
    """All rounds of a loop, with finished results kept by torch.where."""
    found = run_to_end(site.statement, tensor_test)
    if found is None:
        return
    loop, before, replaced = found
    yield Edit(
        label=EditLabel.REVIEW, text=f"run the loop around {site.where} to its end, and keep finished results with "
        "torch.where: every call then costs all rounds",
        changes=(
            _at(site, loop, ChangeKind.INSERT, new=before),
            *(_at(site, node, ChangeKind.REWRITE, old=code(node), new=new) for node, new in replaced),
        ),
    )


def _hoist(site: BreakSite, value: ast.expr | None, wrap: str = "") -> Iterator[Edit]:
    yield from _present(hoisted(site.process, site.event, value, wrap))


def _present(edit: Edit | None) -> Iterator[Edit]:
    if edit is not None:
        yield edit


def _only_call(node: ast.stmt) -> ast.expr | None:
    """The call that is the value of an assignment, or the test of an `if`, also with `not` before it."""
    value: ast.expr | None
    if isinstance(node, ast.If):
        is_negated = isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
        value = node.test.operand if is_negated and isinstance(node.test, ast.UnaryOp) else node.test
    else:
        value = node.value if isinstance(node, (ast.Assign, ast.Return)) else None
    return value if isinstance(value, ast.Call) else None


def removed(site: BreakSite) -> Iterator[Edit]:
    """An explicit break that is dropped."""
    node = site.statement.node
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called_name(node.value) == "graph_break":
        yield Edit(
            label=EditLabel.SAFE, text=f"remove `{code(node)}` at {site.where}",
            changes=(site.change(ChangeKind.REMOVE, old=code(node)),),
        )


_Make = Callable[[BreakSite], Iterator[Edit]]
_BY_CODE: dict[str, tuple[_Make, ...]] = {
    "TT101": (guarded_message,),
    "TT102": (guarded_message,),
    "TT103": (branch,),
    "TT104": (read_value, branch),
    "TT105": (masked,),
    "TT106": (called_outside,),
    "TT107": (called_outside,),
    "TT109": (moved_outside,),
    "TT110": (moved_outside,),
    "TT111": (called_outside,),
    "TT112": (called_outside,),
    "TT113": (next_outside,),
    "TT114": (drawn, called_outside),
    "TT115": (context_outside, called_outside),
    "TT116": (moved_outside,),
    "TT118": (moved_outside,),
    "TT120": (removed,),
    "TT122": (branch,),
    "TT125": (clock,),
    "TT199": (called_outside,),
}
