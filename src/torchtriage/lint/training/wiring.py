"""TT710 to TT713, TT720: code that nothing uses: checks, exports, parameters, settings, profilers."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from torchtriage.findings.model import Finding
from torchtriage.lint.index.names import ProjectNames, exported_names, exports, project_names
from torchtriage.lint.index.project_files import is_test
from torchtriage.lint.index.syntax import (
    body_of,
    calls,
    decorators,
    decorators_without_disable,
    functions,
    is_method,
    last_name,
    own_nodes,
    parameter_defaults,
    targets,
    text,
)
from torchtriage.lint.project import SourceTree
from torchtriage.lint.rule import source_finding, tree_rule
from torchtriage.lint.source import FunctionNode, SourceFile
from torchtriage.text import counted

_CHECK = re.compile(r"^_?(?:check|detect|verify)_\w+|_hook$")
_VERB = re.compile(r"_?(?:check|detect|verify|test|find|flag|assess|inspect|validate|examine|screen|alarm|watch)_")
_NOUN = re.compile(r"_(?:checks?|alarms?|alerts?|anomal(?:y|ies)|warnings?|violations?|problems?|issues?)$")
_SETTINGS = re.compile(r"(?:Config|Configuration|Settings|Options|Hyperparameters|HParams)$")
_FIELD_CLASSES = ("BaseModel", "BaseSettings", "NamedTuple")
_READS_ALL = ("asdict", "vars", "fields", "model_dump", "__dict__", "_asdict")
MIN_USED_SHARE = 0.5    # of the exports of a package: below it, the callers of the package were not given
MAX_UNUSED = 3          # exports of a package without a user: more of them are an interface for other projects


@tree_rule
def check_never_called(tree: SourceTree) -> Iterator[Finding]:
    """A check or hook is defined and nothing calls it."""
    names = project_names(tree)
    if not names.is_whole:
        return
    for file in _source_files(tree):
        for function in functions(file):
            if function.decorator_list or function.name.startswith("__") or _may_be_called_by_name(file, function):
                continue
            if names.is_used(function.name, outside=[function]):
                continue
            gatherer = _gatherer(file, function, tree)
            if gatherer is None and not _CHECK.search(function.name):
                continue
            if gatherer is None and (is_method(file, function) or function.name in exported_names(tree)):
                continue
            not_called_by = f"{gatherer.name}() calls the other checks and leaves it out" if gatherer else (
                "no file of the project calls or registers it"
            )
            tests = "; only tests name it" if names.is_named_in_tests(function.name) else ""
            yield source_finding(
                "TT710", file, function, tree,
                title=f"{function.name}() is never called",
                cause=f"{not_called_by}{tests}, so what it looks for is not noticed",
                fix=f"call it from {gatherer.name}()" if gatherer else "call or register it where it belongs, or "
                    "delete it",
            )


@lru_cache(maxsize=256)
def _made_names(file: SourceFile) -> tuple[str, ...]:
    """The beginnings of the names that a file makes: `visit_` of `getattr(self, f"visit_{kind}")`."""
    found = []
    for call in calls(file.of_type(ast.Call), "getattr"):
        made = call.args[1] if len(call.args) > 1 else None
        parts = made.values if isinstance(made, ast.JoinedStr) else [made.left] if isinstance(made, ast.BinOp) else []
        if parts and isinstance(parts[0], ast.Constant) and isinstance(parts[0].value, str) and parts[0].value:
            found.append(parts[0].value)
    return tuple(found)


def _may_be_called_by_name(file: SourceFile, function: FunctionNode) -> bool:
    """Whether a base class calls it, or code of the same file that makes the names of what it calls."""
    if function.name.startswith(_made_names(file)):
        return True
    class_ = file.parent(function)
    return isinstance(class_, ast.ClassDef) and any(last_name(base) != "object" for base in class_.bases)


def _gatherer(file: SourceFile, function: FunctionNode, tree: SourceTree) -> FunctionNode | None:
    """The method of the same class that uses at least two other methods of this one's kind, and not this one."""
    class_ = file.parent(function)
    if not isinstance(class_, ast.ClassDef):
        return None
    methods = {node.name: node for node in class_.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    alike = {name for name, method in methods.items() if _is_alike(function, method, file, tree)} - {function.name}
    for method in methods.values():
        attributes = [node for node in ast.walk(method) if isinstance(node, ast.Attribute)]
        used = {node.attr for node in attributes if text(node.value) == "self"}
        if method is not function and len(used & alike - {method.name}) >= 2:
            return method
    return None


def _is_alike(function: FunctionNode, other: FunctionNode, file: SourceFile, tree: SourceTree) -> bool:
    """Whether two methods look for the same thing: by their verb or noun, or a project's class that both return."""
    verb, noun = _VERB.match(function.name), _NOUN.search(function.name)
    if verb is not None:
        return other.name.startswith(verb[0])
    if noun is not None and other.name.endswith(noun[0]):
        return True
    returned = text(function.returns)
    if function.returns is None or returned != text(other.returns):
        return False
    names = [node for node in ast.walk(function.returns) if isinstance(node, (ast.Name, ast.Attribute))]
    return any(tree.resolve(name, file) is not None for name in names)


@tree_rule
def export_never_used(tree: SourceTree) -> Iterator[Finding]:
    """A package exports a function or class that nothing in the project uses."""
    names = project_names(tree)
    if not names.is_whole:
        return
    for file in _source_files(tree):
        exported = exports(file) if file.is_package else {}
        unused = {name: node for name, node in exported.items() if not _has_user(names, name, file, tree)}
        is_application = len(unused) <= min(MAX_UNUSED, (1 - MIN_USED_SHARE) * len(exported))
        for name, node in unused.items():
            definition = tree.definition(f"{file.module}.{name}", file)
            is_profiler = definition is not None and _is_profiler(definition.node)
            if definition is None or not (is_application or is_profiler):
                continue
            if is_profiler or isinstance(definition.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield source_finding(
                    "TT711", file, node, tree, reason=name,
                    title=f"{name} is exported and nothing uses it",
                    cause=f"{file.module} exports it, and no other file of the project, its tests and its documents "
                          f"names it",
                    fix="use it, or say in its docstring that it is for callers outside of the project, or remove it",
                )


def _has_user(names: ProjectNames, name: str, package: SourceFile, tree: SourceTree) -> bool:
    definition = tree.definition(f"{package.module}.{name}", package)
    if definition is None or names.is_named_in_tests(name) or names.is_named_in_other_source(name):
        return True
    if names.is_documented(name):
        return True
    return any(
        file is not package and definition.node not in [node, *file.ancestors(node)]
        for file, node in names.uses(name)
    )


@tree_rule
def profiler_no_loop_calls(tree: SourceTree) -> Iterator[Finding]:
    """A profiler is written and no training loop enters it."""
    names = project_names(tree)
    if not names.is_whole:
        return
    for file in _source_files(tree):
        for function in file.tree.body:
            if not isinstance(function, (ast.FunctionDef, ast.ClassDef)) or not _is_profiler(function):
                continue
            if "torch" not in file.text or names.is_documented(function.name):
                continue
            if names.is_used(function.name, outside=[function]):
                continue
            yield source_finding(
                "TT720", file, function, tree,
                title=f"no training loop uses the profiler {function.name}()",
                cause=f"{function.name}() sets up torch.profiler, and no file of the project calls it",
                fix="enter it around the training loop and call step() of the profiler once per step, behind a flag "
                    "such as --profile",
            )


def _is_profiler(node: ast.AST) -> bool:
    """Whether a function or class sets up a profiler for others to enter."""
    if isinstance(node, ast.ClassDef):
        enters = any(getattr(part, "name", "") == "__enter__" for part in node.body)
        return enters and bool(calls(ast.walk(node), "profile"))
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    if {"contextmanager", "asynccontextmanager"} & decorators(node):
        return bool(calls(own_nodes(node), "profile"))
    returned = [part.value for part in own_nodes(node) if isinstance(part, ast.Return)]
    return any(last_name(value) == "profile" and isinstance(value, ast.Call) for value in returned)


@tree_rule
def unread_parameter(tree: SourceTree) -> Iterator[Finding]:
    """A function takes parameters that its body never reads."""
    values = _used_as_values(tree)
    overridden = _methods_of_several_classes(tree)
    for file in _source_files(tree):
        if "torch" not in file.text:
            continue
        for function in functions(file):
            unread = _unread(function)
            if not unread or function.name in values or _has_fixed_signature(file, function, overridden, tree):
                continue
            listed = ", ".join(unread)
            yield source_finding(
                "TT712", file, function, tree, reason=listed,
                title=f"{function.name}() never reads {listed}",
                cause=f"callers compute and pass {listed}, and the result does not depend on it",
                fix=f"remove {listed} until the body needs it",
            )


def _unread(function: FunctionNode) -> list[str]:
    body = body_of(function)
    if all(isinstance(s, (ast.Pass, ast.Raise)) or _is_constant(s) for s in body):
        return []
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    used = {node.id for part in body for node in ast.walk(part) if isinstance(node, ast.Name)}
    if used & {"locals", "vars"}:
        return []
    names = [each.arg for each in arguments]
    return [name for name in names if name not in used | {"self", "cls", "args", "kwargs"} and not name.startswith("_")]


def _is_constant(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, (ast.Expr, ast.Return)) else statement
    if isinstance(statement, (ast.Expr, ast.Return)):
        return value is None or isinstance(value, ast.Constant)
    return False


def _has_fixed_signature(
    file: SourceFile, function: FunctionNode, overridden: frozenset[str], tree: SourceTree,
) -> bool:
    """Whether something else than its callers decides what the function takes."""
    name = function.name
    if name.startswith(_made_names(file)):
        return True
    if (name.startswith("__") and name != "__init__") or file.enclosing_function(function) is not None:
        return True
    if decorators_without_disable(function, file, tree) - {"staticmethod", "classmethod", "no_grad", "inference_mode"}:
        return True
    class_ = file.parent(function)
    if isinstance(class_, (ast.Try, ast.ExceptHandler)):
        return True     # it stands in for a function that could not be imported
    if isinstance(class_, ast.ClassDef):
        is_derived = any(last_name(base) not in ("object", "Generic") for base in class_.bases)
        return name in overridden or is_derived or bool(re.search(r"(?:Hook|Callback)s?$", class_.name))
    return bool(re.search(r"hook|callback|_fn$|^on_|handler|collate|forward|backward|setup_context", name))


def _methods_of_several_classes(tree: SourceTree) -> frozenset[str]:
    seen: set[str] = set()
    several: set[str] = set()
    for file in tree.files:
        for class_ in file.of_type(ast.ClassDef):
            own = {node.name for node in class_.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
            several |= own & seen
            seen |= own
    return frozenset(several)


def _used_as_values(tree: SourceTree) -> set[str]:
    """The functions that are passed on rather than called: their callers decide the signature."""
    found: set[str] = set()
    for file in tree.files:
        called = {call.func for call in file.of_type(ast.Call)}
        found |= {n.id for n in file.of_type(ast.Name) if isinstance(n.ctx, ast.Load) and n not in called}
        found |= {n.attr for n in file.of_type(ast.Attribute) if isinstance(n.ctx, ast.Load) and n not in called}
    return found


@tree_rule
def unread_config_field(tree: SourceTree) -> Iterator[Finding]:
    """A configuration has fields that nothing reads."""
    names = project_names(tree)
    if not names.is_whole:
        return
    for file in _source_files(tree):
        for class_ in file.of_type(ast.ClassDef):
            fields = _fields(class_) if _SETTINGS.search(class_.name) else _defaults_kept(class_)
            if not fields or _is_read_as_a_whole(names, class_):
                continue
            unread = [name for name in fields if not _is_read(names, name)]
            if unread and len(unread) < len(fields):
                yield source_finding(
                    "TT713", file, fields[unread[0]], tree, reason=class_.name,
                    title=f"nothing reads {counted(len(unread), 'field')} of {class_.name}: {', '.join(unread)}",
                    cause="setting them changes nothing, and who sets them does not learn that",
                    fix="read them where they should act, or remove them",
                )


def _fields(class_: ast.ClassDef) -> Mapping[str, ast.AST]:
    has_fields = "dataclass" in decorators(class_) or any(last_name(base) in _FIELD_CLASSES for base in class_.bases)
    if not has_fields and not ({"define", "frozen", "s"} & decorators(class_)):
        return {}
    return {
        node.target.id: node for node in class_.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_")
        and "ClassVar" not in text(node.annotation)
    }


def _defaults_kept(class_: ast.ClassDef) -> Mapping[str, ast.AST]:
    """The settings of a plain class that takes nothing else: each parameter has a constant default, and is kept."""
    initializer = next((node for node in class_.body if getattr(node, "name", "") == "__init__"), None)
    if class_.bases or class_.keywords or not isinstance(initializer, ast.FunctionDef):
        return {}
    defaults = parameter_defaults(initializer)
    parameters = [*initializer.args.posonlyargs, *initializer.args.args, *initializer.args.kwonlyargs][1:]
    kept = {
        target.attr: node for node in own_nodes(initializer) if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in targets(node)
        if isinstance(target, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == target.attr
    }
    is_plain = all(_is_constant_value(defaults.get(each.arg)) and each.arg in kept for each in parameters)
    return kept if is_plain and len(kept) == len(parameters) else {}


def _is_constant_value(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) or last_name(node).isupper()


def _is_read(names: ProjectNames, field: str) -> bool:
    if names.is_named_in_other_source(field):
        return True
    return any(isinstance(node, (ast.Attribute, ast.Constant)) for _, node in names.uses(field))


def _is_read_as_a_whole(names: ProjectNames, class_: ast.ClassDef) -> bool:
    """Whether a file that names the class, or the class itself, passes all fields on."""
    for file in {file for file, _ in names.uses(class_.name)}:
        for call in file.of_type(ast.Call):
            for each in call.keywords:
                if each.arg is None and any(name in text(each.value) for name in _READS_ALL):
                    return True
            if last_name(call) == "getattr" and len(call.args) > 1 and not isinstance(call.args[1], ast.Constant):
                return True
    return False


def _source_files(tree: SourceTree) -> Sequence[SourceFile]:
    return [file for file in tree.files if not is_test(file, tree)]
