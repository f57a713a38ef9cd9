"""TT732 to TT736, TT738: code of training that is in the way of torch.compile."""

import ast
import re
from collections.abc import Iterator

from torchtriage.findings.model import Evidence, Finding
from torchtriage.lint.index.project_files import is_test
from torchtriage.lint.index.syntax import (
    calls,
    functions,
    last_name,
    mentions,
    own_nodes,
    receiver,
    scopes,
    target_names,
    text,
)
from torchtriage.lint.project import SourceTree
from torchtriage.lint.rule import file_rule, lines_around, source_finding
from torchtriage.lint.source import FunctionNode, SourceFile

_HOOKS = ("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook")
_TENSOR = re.compile(r"\bTensor\b|torch\.(?:zeros|ones|empty|tensor|full|randn|rand|zeros_like)\b")


@file_rule
def hook_on_compiled_module(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """A hook is registered below a compiled module that already ran."""
    if not mentions(file, "_hook("):
        return
    if is_test(file, tree):
        return
    for scope in scopes(file):
        models: dict[str, str] = {}     # the compiled name and the plain one, with the compiled name
        ran: set[str] = set()
        for node in own_nodes(scope):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.value.args:
                if file.dotted(node.value.func) == "torch.compile":
                    for name in target_names(node):
                        models |= {name: name, text(node.value.args[0]): name}
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in models:
                ran.add(node.func.id)
            elif isinstance(node, ast.Call) and last_name(node) in _HOOKS:
                base, _, below = text(receiver(node)).partition(".")
                inner = below or "[" in base
                base = base.partition("[")[0]
                if inner and models.get(base) in ran:
                    yield source_finding(
                        "TT732", file, node, tree,
                        title=f"the hook on {text(receiver(node))} is never called",
                        cause=f"{models[base]} was compiled and called before; its graphs hold no hook of a module "
                              "inside, and by default torch does not check for new ones",
                        fix="register the hook before the first call of the compiled module, or call "
                            "torch.compiler.reset() after it",
                    )


@file_rule
def wandb_watch_with_compile(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """wandb.watch is called on a model that is compiled."""
    if not mentions(file, "wandb") or "torch" not in file.text:
        return
    if is_test(file, tree):
        return
    starts = [call for call in file.of_type(ast.Call) if file.dotted(call.func) == "wandb.init"]
    runs = {name for call in starts for name in target_names(file.parent(call) or call)}
    for call in calls(file.of_type(ast.Call), "watch"):
        if not call.args or (file.dotted(call.func) != "wandb.watch" and text(receiver(call)) not in runs):
            continue
        model = text(call.args[0])
        for compile_call in file.of_type(ast.Call):
            if model in _compiled_names(file, compile_call):
                yield source_finding(
                    "TT733", file, call, tree, may=True,
                    title=f"wandb.watch({model}) may cut the graphs of the compiled model",
                    cause=f"wandb.watch registers Python hooks on the parameters and modules of {model}, which is "
                          f"compiled at line {compile_call.lineno}",
                    fix="log gradient statistics outside of the model, after backward()",
                )
                break


def _compiled_names(file: SourceFile, call: ast.Call) -> set[str]:
    """What stands for the model in `fast = torch.compile(model)` and in `model.compile()`; nothing for other calls."""
    if file.dotted(call.func) == "torch.compile" and call.args:
        statement = file.parent(call)
        return {text(call.args[0]), *(target_names(statement) if statement is not None else [])}
    is_method = last_name(call) == "compile" and isinstance(file.parent(call), ast.Expr) and not call.args
    return {text(receiver(call))} if is_method else set()


@file_rule
def locals_test(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """Code asks locals() whether a variable exists."""
    if not mentions(file, "locals()"):
        return
    for node in file.of_type(ast.Compare):
        if (
            isinstance(node.ops[0], (ast.In, ast.NotIn))
            and text(node.comparators[0]) == "locals()"
            and not is_test(file, tree)
            and "torch" in file.text
        ):
            yield source_finding(
                "TT734", file, node, tree,
                title=f"{text(node)} depends on the name of a variable",
                cause="renaming the variable changes the result without an error, and Dynamo cannot trace locals()",
                fix="bind the variable to None at the start of the function and test it with `is not None`",
            )


@file_rule
def cast_in_hot_path(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """typing.cast is called in a loop of a training or in a forward."""
    if not mentions(file, "cast("):
        return
    if is_test(file, tree) or "torch" not in file.text:
        return
    for function in functions(file):
        found = [call for call in calls(own_nodes(function), "cast") if file.dotted(call.func) == "typing.cast"]
        hot = [call for call in found if function.name == "forward" or _in_training_loop(file, call, function)]
        if hot:
            yield source_finding(
                "TT735", file, hot[0], tree,
                title=f"{text(hot[0])} is called again on every pass",
                cause="typing.cast is a Python call that returns its argument; in a loop over steps it is paid each "
                      "time, and in compiled code it is one more function to trace",
                fix="annotate the variable where it is bound, outside of the loop",
            )


def _in_training_loop(file: SourceFile, node: ast.AST, function: FunctionNode) -> bool:
    for parent in file.ancestors(node):
        if parent is function:
            return False
        if isinstance(parent, (ast.For, ast.While)) and calls(own_nodes(parent), "backward", "step"):
            return True
    return False


@file_rule
def tuple_keyed_tensors(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """Tensors are kept in a dict with tuples as keys."""
    if is_test(file, tree) or "torch" not in file.text:
        return
    seen: set[str] = set()
    assignments: list[ast.AnnAssign | ast.Assign] = [*file.of_type(ast.AnnAssign), *file.of_type(ast.Assign)]
    for node in assignments:
        name = last_name(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])
        if name not in seen and _maps_tuples_to_tensors(node):
            seen.add(name)
            yield source_finding(
                "TT736", file, node, tree, may=True, reason=name,
                title=f"{name} may break graphs: its keys are tuples",
                cause=f"{name} maps tuples to tensors; read inside a compiled function with a key that varies, "
                      "every key is a separate guard or a graph break. In eager code it costs nothing",
                fix="use one integer per pair as the key (i * n + j), or one stacked tensor, or read it outside of "
                    "compiled functions and say so beside it",
            )


def _maps_tuples_to_tensors(node: ast.Assign | ast.AnnAssign) -> bool:
    if isinstance(node, ast.AnnAssign):
        return bool(re.match(r"(?:typing\.)?(?:dict|Dict|defaultdict|Mapping|MutableMapping)\[(?:typing\.)?[tT]uple\[",
                             text(node.annotation))) and bool(_TENSOR.search(text(node.annotation)))
    value = node.value
    if isinstance(value, ast.DictComp):
        return isinstance(value.key, ast.Tuple) and bool(_TENSOR.search(text(value.value)))
    return isinstance(value, ast.Dict) and bool(value.keys) and all(
        isinstance(key, ast.Tuple) for key in value.keys
    ) and bool(_TENSOR.search(text(value)))


@file_rule
def device_migration(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """A method moves its own tensors to the device of its input without saying so."""
    if is_test(file, tree) or "device" not in file.text:
        return
    for class_ in file.of_type(ast.ClassDef):
        places: list[tuple[ast.If, str]] = []
        for method in class_.body:
            if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
                branches = [node for node in own_nodes(method) if isinstance(node, ast.If)]
                places += [(node, method.name) for node in branches if _migrates(node, class_)]
        if places:
            lines = " and ".join(f"{name}() at line {node.lineno}" for node, name in places)
            first = places[0][0]
            yield source_finding(
                "TT738", file, first, tree, reason=class_.name,
                evidence=Evidence(num_events=len(places), source=lines_around(file, first.lineno)),
                title=f"{class_.name} moves its tensors to the device of the input, without a warning",
                cause=f"{lines} compare devices and move: inside torch.compile the move is a graph break or a "
                      "recompile, and nothing reports that the object was made on the wrong device",
                fix="make the object on the device where it is used; if it must move, say so with warnings.warn(..., "
                    "stacklevel=2) before the move",
            )


def _migrates(node: ast.If, class_: ast.ClassDef) -> bool:
    test = text(node.test)
    if not isinstance(node.test, ast.Compare) or ".device" not in test or "self." not in test or "!=" not in test:
        return False
    if any(isinstance(side, ast.Constant) for side in node.test.comparators):
        return False        # `self.device.type != "cpu"` asks for a kind of device, not for that of an input
    inside = [part for statement in node.body for part in ast.walk(statement)]
    methods = {part.name: part for part in class_.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))}
    called = [methods[last_name(part)] for part in inside if isinstance(part, ast.Call) and last_name(part) in methods]
    if calls([*inside, *(part for method in called for part in ast.walk(method))], "warn", "warning", "warn_once"):
        return False
    for call in inside:
        if isinstance(call, ast.Call) and text(receiver(call)).startswith("self"):
            arguments = [*call.args, *(each.value for each in call.keywords)]
            if last_name(call) in ("to", "cuda") or any(".device" in text(each) for each in arguments):
                return True
    return False
