"""TT708, TT709: errors of telemetry that are swallowed or lose their traceback."""

import ast
import re
from collections.abc import Iterator

from torchtriage.findings.model import Finding
from torchtriage.lint.index.project_files import is_test
from torchtriage.lint.index.syntax import (
    keyword,
    last_name,
    mentions,
    own_nodes,
    receiver,
    text,
)
from torchtriage.lint.project import SourceTree
from torchtriage.lint.rule import file_rule, source_finding
from torchtriage.lint.source import SourceFile

_TELEMETRY = re.compile(
    r"telemetry|metric|statistic|stats|gradient|(?<!no)_grad|monitor|histogram|emit|observe|profil|per_layer|diagnos|health",
    re.IGNORECASE,
)
_OF_CONTAINERS = frozenset({"append", "extend", "insert", "get", "items", "keys", "values", "pop", "sort", "index"})
_BROAD = ("Exception", "BaseException", "")
_SHOWS = ("print", "exception", "warn", "print_exc", "log")
_LEVELS = ("debug", "info", "warning", "warn", "error", "critical")


@file_rule
def broad_except_around_telemetry(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """A handler for every exception surrounds telemetry and continues."""
    if not mentions(file, "except"):
        return
    for handler, statement in _broad_handlers(file, tree):
        called = [node for part in statement.body for node in ast.walk(part) if isinstance(node, ast.Call)]
        telemetry = next((call for call in called if _is_telemetry(call, file, tree)), None)
        if telemetry is not None and not _passes_on(handler):
            yield source_finding(
                "TT708", file, handler, tree,
                title=f"every error of {text(telemetry.func)} is swallowed",
                cause=f"except {text(handler.type) or 'without a type'} also catches mistakes in the code, such as a "
                      "misspelled attribute, and telemetry is missing from then on",
                fix="name the exceptions that are expected here, such as RuntimeError and ValueError, and let the "
                    "others through",
            )


def _passes_on(handler: ast.ExceptHandler) -> bool:
    """Whether the error reaches more than a log: it is returned, kept or given to a function of the project."""
    nodes = [node for part in handler.body for node in ast.walk(part)]
    logged = {
        part for call in nodes if isinstance(call, ast.Call) and (_is_log(call) or last_name(call) in _SHOWS)
        for part in ast.walk(call)
    }
    return any(isinstance(node, ast.Name) and node.id == handler.name and node not in logged for node in nodes)


def _is_telemetry(call: ast.Call, file: SourceFile, tree: SourceTree) -> bool:
    """Whether a call collects or reports: by its name, or because the function it names reads gradients."""
    if last_name(call) in _OF_CONTAINERS:
        return False
    if _TELEMETRY.search(text(call.func)):
        return True
    definition = tree.resolve(call.func, file)
    if definition is None or not isinstance(definition.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    return any(isinstance(node, ast.Attribute) and node.attr in ("grad", "named_parameters")
               for node in ast.walk(definition.node))


@file_rule
def traceback_lost_in_log(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """A handler for every exception logs the message without the traceback."""
    if not mentions(file, "except"):
        return
    for handler, _ in _broad_handlers(file, tree):
        nodes = [node for part in handler.body for node in ast.walk(part)]
        names = {last_name(node) for node in nodes if isinstance(node, ast.Call)}
        if names & {"exception", "print_exc", "format_exc", "format_exception", "exc_info"} or not handler.name:
            continue
        for call in nodes:
            if (
                isinstance(call, ast.Call)
                and _is_log(call)
                and handler.name in text(call)
                and keyword(call, "exc_info") is None
            ):
                yield source_finding(
                    "TT709", file, call, tree,
                    title=f"{text(call.func)} keeps the message of the error and loses its traceback",
                    cause=f"{handler.name} is formatted into the text, and any exception can arrive here, so the "
                          "log does not say where it came from",
                    fix="pass exc_info=True to the call",
                )
                break


def _is_log(call: ast.Call) -> bool:
    logger = receiver(call)
    return last_name(call) in _LEVELS and logger is not None and "warnings" not in text(logger)


def _broad_handlers(file: SourceFile, tree: SourceTree) -> Iterator[tuple[ast.ExceptHandler, ast.Try]]:
    """The handlers of every exception that do not raise."""
    if is_test(file, tree):
        return
    for statement in file.of_type(ast.Try):
        for handler in statement.handlers:
            if (
                last_name(handler.type) in _BROAD
                and not isinstance(handler.type, ast.Tuple)
                and not any(isinstance(node, ast.Raise) for part in handler.body for node in [part, *own_nodes(part)])
            ):
                yield handler, statement
