"""TT724, TT725, TT730, TT731: an optimizer or scheduler that does not do its part of a step."""

import ast
import re
from collections.abc import Iterator

from torchtriage.findings.model import Finding, Severity
from torchtriage.lint.index.project_files import is_test
from torchtriage.lint.index.syntax import (
    blocks,
    calls,
    functions,
    last_name,
    loops,
    mentions,
    own_nodes,
    receiver,
    scopes,
    targets,
    text,
)
from torchtriage.lint.project import SourceTree
from torchtriage.lint.rule import file_rule, source_finding
from torchtriage.lint.source import SourceFile

_OPTIMIZER = re.compile(r"^torch\.optim\.(?!lr_scheduler)(?:\w+\.)*[A-Z]\w+$")
_OPTIMIZER_NAME = re.compile(r"opt", re.IGNORECASE)
_NEW_PARAMETERS = re.compile(
    r"FullyShardedDataParallel|FSDP|fully_shard|get_peft_model|weight_norm|spectral_norm|parametrize",
)
_MOVES = ("to", "cuda", "half", "bfloat16", "double")


@file_rule
def missing_zero_grad(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """A loop steps an optimizer and never clears the gradients."""
    if not mentions(file, "backward"):
        return
    if is_test(file, tree) or "zero_grad" in _called_helpers(file):
        return
    for scope in scopes(file):
        if _clears(scope):
            continue
        for loop in loops(scope):
            nodes = list(own_nodes(loop))
            backward = calls(nodes, "backward")
            made = {text(target) for node in nodes if isinstance(node, ast.Assign) for target in node.targets}
            steps = [(c, _stepped(c)) for c in calls(nodes, "step") if _stepped(c) and _stepped(c) not in made]
            if backward and steps:
                call, optimizer = steps[0]
                yield source_finding(
                    "TT724", file, call, tree,
                    title=f"{text(call)} adds the gradients of every earlier step",
                    cause="backward() adds to .grad, and nothing in the function clears it, so each step uses the "
                          "sum of all gradients so far",
                    fix=f"call {optimizer}.zero_grad() before backward() or after the step",
                )
                break


def _stepped(call: ast.Call) -> str:
    """The optimizer that a call of `step` steps: `opt` of `opt.step()` and of `scaler.step(opt)`; empty if none."""
    for node in [receiver(call), *call.args[:1]]:
        if _OPTIMIZER_NAME.search(text(node)):
            return text(node)
    return ""


def _clears(scope: ast.AST) -> bool:
    for node in own_nodes(scope):
        if isinstance(node, ast.Call) and "zero_grad" in last_name(node):
            return True
        if isinstance(node, ast.Assign) and any(last_name(target) == "grad" for target in targets(node)):
            return True
        if isinstance(node, ast.Call) and last_name(node) == "zero_" and "grad" in text(node.func):
            return True
    return False


def _called_helpers(file: SourceFile) -> set[str]:
    """`zero_grad` if another function of the file, which a loop may call, clears gradients."""
    clearing = {function.name for function in functions(file) if _clears(function)}
    called = {last_name(call) for call in file.of_type(ast.Call)}
    return {"zero_grad"} if clearing & called else set()


@file_rule
def optimizer_before_model_change(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """A model gets new parameters after its optimizer was made."""
    if not mentions(file, "optim"):
        return
    if is_test(file, tree):
        return
    for scope in scopes(file):
        for block in blocks(scope):
            models: dict[str, str] = {}
            for statement in block:
                for model, optimizer in models.items():
                    change = _change(statement, model)
                    if change == "moved" or (change and not _is_renewed(scope, optimizer, statement)):
                        yield _change_finding(file, tree, statement, model, optimizer, change)
                if (
                    isinstance(statement, ast.Assign)
                    and isinstance(statement.value, ast.Call)
                    and _OPTIMIZER.match(file.dotted(statement.value.func))
                ):
                    models |= {m: text(statement.targets[0]) for m in _models(statement.value)}


def _is_renewed(scope: ast.AST, optimizer: str, change: ast.stmt) -> bool:
    """Whether an optimizer is given a group of new parameters, or made again after a change of the model."""
    if any(text(receiver(call)) == optimizer for call in calls(own_nodes(scope), "add_param_group")):
        return True
    later = [node for node in own_nodes(scope) if isinstance(node, ast.Assign) and node.lineno > change.lineno]
    return any(optimizer in map(text, targets(node)) for node in later)


def _models(call: ast.Call) -> list[str]:
    """`model` of `Adam(model.parameters())`."""
    return [text(receiver(inner)) for inner in ast.walk(call)
            if isinstance(inner, ast.Call) and last_name(inner) in ("parameters", "named_parameters")]


def _change(statement: ast.stmt, model: str) -> str:
    """`new` if the statement gives the model parameters that the optimizer does not have, `moved` if it moves it."""
    value = getattr(statement, "value", None)
    if not isinstance(value, ast.Call):
        return ""
    assigned = [text(target) for target in targets(statement)]
    if any(name.startswith(f"{model}.") for name in assigned) and re.match(r"[A-Z]", last_name(value)):
        return "new"
    arguments = [text(argument) for argument in value.args]
    if _NEW_PARAMETERS.search(text(value.func)) and model in arguments:
        return "new"
    return "moved" if text(receiver(value)) == model and last_name(value) in _MOVES else ""


def _change_finding(
    file: SourceFile, tree: SourceTree, statement: ast.AST, model: str, optimizer: str, change: str,
) -> Finding:
    if change == "moved":
        return source_finding(
            "TT725", file, statement, tree, severity=Severity.P4,
            title=f"{text(statement)} comes after {optimizer} was made",
            cause="torch keeps the parameters when it moves a module, but promises it only for a move before the "
                  "optimizer is made; state of the optimizer stays where it was",
            fix=f"move the model first, then make {optimizer}",
        )
    return source_finding(
        "TT725", file, statement, tree,
        title=f"{optimizer} does not train the parameters of {text(statement)}",
        cause=f"{optimizer} was made before this line and holds the parameters that {model} had then",
        fix=f"make {optimizer} after this line, or give it the new parameters with add_param_group",
    )


@file_rule
def scheduler_never_stepped(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """A learning-rate scheduler is made and nothing uses it."""
    if not mentions(file, "lr_scheduler"):
        return
    if is_test(file, tree):
        return
    for scope in scopes(file):
        for node in own_nodes(scope):
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
                continue
            if not file.dotted(node.value.func).startswith("torch.optim.lr_scheduler."):
                continue
            target = node.targets[0]
            is_unread = isinstance(target, ast.Name) and target.id not in _read_elsewhere(scope, node)
            is_field = isinstance(target, ast.Attribute) and not _is_read_by_a_base(file, node, tree)
            if is_unread or (is_field and not _is_field_read(last_name(target), tree)):
                name = text(target)
                yield source_finding(
                    "TT730", file, node, tree,
                    title=f"{name} is never stepped",
                    cause=f"nothing in the {'function' if is_unread else 'project'} reads {name} after this line, so "
                          "the learning rate stays as it is",
                    fix=f"call {name}.step() after the optimizer's step, once per epoch or per step as the schedule "
                        "means",
                )


def _is_field_read(name: str, tree: SourceTree) -> bool:
    """Whether any file reads a field of this name, by attribute or as a text."""
    for file in tree.files:
        if name not in file.text:
            continue
        fields = [n for n in file.of_type(ast.Attribute) if n.attr == name and isinstance(n.ctx, ast.Load)]
        if any(not file.dotted(node).startswith("torch.") for node in fields):
            return True
        if any(node.value == name for node in file.of_type(ast.Constant)):
            return True
    return False


def _is_read_by_a_base(file: SourceFile, node: ast.AST, tree: SourceTree) -> bool:
    """Whether the class around a place has a base of a library, such as a trainer, which may use its fields."""
    class_ = next((parent for parent in file.ancestors(node) if isinstance(parent, ast.ClassDef)), None)
    bases = class_.bases if class_ is not None else []
    return any(last_name(base) not in ("object", "Module") and tree.resolve(base, file) is None for base in bases)


def _read_elsewhere(scope: ast.AST, statement: ast.AST) -> set[str]:
    own = set(ast.walk(statement))
    nodes = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and node not in own]
    return {node.id for node in nodes if isinstance(node.ctx, ast.Load)}


@file_rule
def scheduler_before_optimizer(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """A scheduler steps before the optimizer does."""
    if not mentions(file, "sched"):
        return
    if is_test(file, tree):
        return
    for scope in scopes(file):
        for loop in loops(scope):
            stepped: list[ast.Call] = []
            for statement in getattr(loop, "body", []):
                call = statement.value if isinstance(statement, ast.Expr) else None
                if isinstance(call, ast.Call) and last_name(call) == "step":
                    stepped.append(call)
                elif isinstance(statement, (ast.For, ast.While, ast.With)):
                    stepped += calls(own_nodes(statement), "step")
            names = [text(receiver(call)) for call in stepped]
            for position, name in enumerate(names):
                later = next((other for other in names[position + 1:] if _OPTIMIZER_NAME.search(other)), None)
                if re.search(r"sched", name, re.I) and later and not any(map(_OPTIMIZER_NAME.search, names[:position])):
                    yield source_finding(
                        "TT731", file, stepped[position], tree,
                        title=f"{name}.step() runs before {later}.step()",
                        cause="the first learning rate of the schedule is never used, and every later one comes a "
                              "step early",
                        fix=f"move {name}.step() behind {later}.step()",
                    )


