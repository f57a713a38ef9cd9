"""TT716, TT717: code whose contract nothing keeps: private names of torch, state without a test."""

import ast
import re
from collections.abc import Iterator

from torchtriage.findings.model import Finding, Severity
from torchtriage.lint.index.names import ProjectNames, project_names
from torchtriage.lint.index.project_files import is_test
from torchtriage.lint.index.syntax import decorators, last_name
from torchtriage.lint.project import SourceTree
from torchtriage.lint.rule import file_rule, source_finding, tree_rule
from torchtriage.lint.source import FunctionNode, SourceFile
from torchtriage.text import counted

# Documented by PyTorch in spite of their underscore.
_DOCUMENTED = re.compile(
    r"^torch\._(?:dynamo(?:\..*)?|inductor\.config(?:\..*)?|logging(?:\..*)?|check\w*|assert\w*|functorch\.config(?:\..*)?"
    r"|library(?:\..*)?|_version__|C\.(?:Value|Node|Graph))$",
)
_STATE = frozenset({"state_dict", "load_state_dict"})


@file_rule
def private_torch_name(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """A private name of torch is used without a check that it exists."""
    if is_test(file, tree):
        return
    uses: dict[str, list[ast.AST]] = {}
    for node in file.of_type(ast.Attribute):
        dotted = file.dotted(node)
        if isinstance(file.parent(node), ast.Attribute) or _DOCUMENTED.match(dotted):
            continue
        if dotted.startswith("torch.") and re.search(r"\._[a-z]", dotted) and not _is_checked(file, node):
            uses.setdefault(dotted, []).append(node)
    for dotted, nodes in uses.items():
        nodes.sort(key=lambda node: getattr(node, "lineno", 0))
        yield source_finding(
            "TT716", file, nodes[0], tree, reason=dotted,
            title=f"{dotted} is private to torch",
            cause=f"{counted(len(nodes), 'use')} in this file; a release of torch may rename or change it without a "
                  f"word",
            fix="say beside it which versions of torch have it, test for it with hasattr, and fall back to public names"
                + ("; torch.nn.utils.get_total_norm is public" if dotted == "torch._foreach_norm" else ""),
        )


def _is_checked(file: SourceFile, node: ast.AST) -> bool:
    """Whether the use is inside a try or an if that asks hasattr or for the version, or in an annotation."""
    for parent in file.ancestors(node):
        if isinstance(parent, (ast.Try, ast.arg)):
            return True
        if isinstance(parent, ast.AnnAssign) and node in ast.walk(parent.annotation):
            return True
        if isinstance(parent, (ast.If, ast.IfExp)) and re.search(r"hasattr|version", ast.unparse(parent.test)):
            return True
        if isinstance(parent, ast.Call) and last_name(parent) in ("isinstance", "issubclass", "patch"):
            return True
    return False


@tree_rule
def untested_state(tree: SourceTree) -> Iterator[Finding]:
    """A class that keeps state, or health checks of tensors, are in no test."""
    names = project_names(tree)
    if not names.is_whole:
        return
    for file in tree.files:
        if is_test(file, tree):
            continue
        for class_ in file.of_type(ast.ClassDef):
            methods = {
                node.name: node for node in class_.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            }
            kind = _kind(class_, methods) or (_measured(file, class_) if names.has_tests else "")
            if not kind or class_.name.startswith("_") or _in_tests(names, file, class_):
                continue
            has_tests = "no test names it" if names.has_tests else "the project has no tests"
            yield source_finding(
                "TT717", file, class_, tree,
                severity=Severity.P2 if names.has_tests else Severity.P3,
                title=f"no test names {class_.name}",
                cause=f"{class_.name} {kind}, and {has_tests}",
                fix=_test_to_write(class_, kind),
            )


def _kind(class_: ast.ClassDef, methods: dict[str, FunctionNode]) -> str:
    """Why a class needs a test: it is saved and restored, or decides from measured values; empty if neither."""
    if set(methods) >= _STATE and not any("Module" in last_name(base) for base in class_.bases):
        return "keeps state that state_dict() saves"
    for method in methods.values():
        is_predicate = re.match(r"is_|has_", method.name) or "bool" in ast.unparse(method.returns or ast.Constant(0))
        if is_predicate and _compares_fields(method) and _is_record(class_):
            return f"decides in {method.name}() whether a value is healthy"
    return ""


def _measured(file: SourceFile, class_: ast.ClassDef) -> str:
    """Why a record of numbers needs a test: a function of its file fills it with what it reads from tensors."""
    if not _is_record(class_):
        return ""
    for node in file.tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            called = {last_name(part) for part in ast.walk(node) if isinstance(part, ast.Call)}
            if class_.name in called and {"tolist", "stack"} <= called and "torch" in file.text:
                return f"holds what {node.name}() reads from tensors"
    return ""


def _is_record(class_: ast.ClassDef) -> bool:
    return "dataclass" in decorators(class_) or any(last_name(base) == "NamedTuple" for base in class_.bases)


def _compares_fields(method: FunctionNode) -> bool:
    compared = [node for node in ast.walk(method) if isinstance(node, ast.Compare)]
    fields = [
        part for node in compared if isinstance(node.ops[0], (ast.Lt, ast.Gt, ast.LtE, ast.GtE))
        for part in ast.walk(node) if isinstance(part, ast.Attribute) and last_name(part.value) == "self"
    ]
    return len(fields) >= 2


def _in_tests(names: ProjectNames, file: SourceFile, class_: ast.ClassDef) -> bool:
    """Whether a test names the class, or a function of its file that makes one."""
    if names.is_named_in_tests(class_.name):
        return True
    for node in file.tree.body:
        if (
            isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and names.is_named_in_tests(node.name)
            and any(isinstance(part, ast.Call) and last_name(part) == class_.name for part in ast.walk(node))
        ):
            return True
    return False


def _test_to_write(class_: ast.ClassDef, kind: str) -> str:
    if "state_dict" in kind:
        return f"test that a {class_.name} restored from its state_dict() continues exactly like the original"
    if "reads from tensors" in kind:
        return "test the function with tensors whose statistics are known, also with NaN among them"
    return f"test {class_.name} with a healthy value, one on each side of each limit, and NaN"
