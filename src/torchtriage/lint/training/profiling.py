"""TT721 to TT723: profilers or timers that do not see the work."""

import ast
import re
from collections.abc import Iterator

from torchtriage.findings.model import Finding
from torchtriage.lint.index.project_files import is_test
from torchtriage.lint.index.syntax import (
    blocks,
    calls,
    default_of,
    functions,
    keyword,
    last_name,
    mentions,
    own_nodes,
    parameter_defaults,
    receiver,
    scopes,
    targets,
    text,
)
from torchtriage.lint.project import SourceTree
from torchtriage.lint.rule import file_rule, source_finding
from torchtriage.lint.source import FunctionNode, SourceFile

MAX_SHORT_ACTIVE = 5    # recorded steps that a training of rare, long updates may miss entirely
_SAYS_WHEN = re.compile(r"\b(?:rais\w+|increas\w+|adjust\w*|larger|longer|rare\w*|infrequent\w*|at least|covers?)\b")
_CLOCKS = ("perf_counter", "perf_counter_ns", "time", "time_ns", "monotonic", "monotonic_ns")
_WAITS = ("synchronize", "item", "tolist", "cpu", "numpy", "elapsed_time", "sync", "barrier", "block_until_ready")


@file_rule
def profiler_without_accelerators(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """A profiler records the processor and CUDA, and no other accelerator."""
    if not mentions(file, "activities"):
        return
    known = {node.attr for node in file.of_type(ast.Attribute)}
    if is_test(file, tree) or known & {"XPU", "MTIA", "HPU", "PrivateUse1", "supported_activities", "mps"}:
        return
    for call in file.of_type(ast.Call):
        if file.dotted(call.func) not in ("torch.profiler.profile", "torch.autograd.profiler.profile"):
            continue
        named = {node.attr: node for node in file.of_type(ast.Attribute) if last_name(node.value) == "ProfilerActivity"}
        cuda, cpu = named.get("CUDA"), named.get("CPU")
        if keyword(call, "activities") is not None and (cuda or cpu):
            yield source_finding(
                "TT721", file, cuda or cpu or call, tree,
                title="the profiler sees no accelerator but CUDA" if cuda else "the profiler sees no accelerator",
                cause="its list of activities names " + ("the processor and CUDA" if cuda else "the processor")
                      + " alone, so on XPU, MTIA or an Apple GPU the trace shows the host and nothing else",
                fix="pass activities=torch.profiler.supported_activities(), or leave activities out, which means "
                    "the same; for MPS use torch.mps.profiler beside it",
            )
        return


@file_rule
def short_profiler_schedule(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """A profiler's default schedule records a few steps and stops."""
    if not mentions(file, "schedule("):
        return
    if is_test(file, tree):
        return
    for function in functions(file):
        for call in calls(own_nodes(function), "schedule"):
            active = _number(keyword(call, "active"), file, function)
            repeat = _number(keyword(call, "repeat"), file, function)
            is_profiler = "profiler" in file.dotted(call.func) or "profiler" in text(call.func)
            is_short = active is not None and active <= MAX_SHORT_ACTIVE and repeat == 1
            if is_profiler and is_short and not _is_explained(file):
                yield source_finding(
                    "TT722", file, _parameter(function, "active") or call, tree,
                    title=f"the profiler records {active} steps by default and stops",
                    cause=f"wait, warmup and active={active} run once: where a step is one rollout and updates are "
                          "rare, the update may not be among the recorded steps",
                    fix="say in the docstring what a step is and when to raise wait and active, or use repeat=0 so "
                        "that the schedule continues",
                )


def _is_explained(file: SourceFile) -> bool:
    """Whether a docstring of the file says when to record other steps; a list of the arguments alone does not."""
    documented: list[ast.Module | ast.FunctionDef | ast.ClassDef] = [
        file.tree, *file.of_type(ast.FunctionDef), *file.of_type(ast.ClassDef),
    ]
    docstrings = [ast.get_docstring(node) or "" for node in documented]
    return any(_SAYS_WHEN.search(docstring) and re.search(r"\bsteps?\b", docstring) for docstring in docstrings)


def _number(node: ast.expr | None, file: SourceFile, function: FunctionNode) -> int | None:
    """A number in a call, also as the default of a parameter, a constant or a field; None for a missing one."""
    if isinstance(node, ast.Constant):
        value: object = node.value
    else:
        default = parameter_defaults(function).get(last_name(node))
        if isinstance(default, ast.Constant):
            value = default.value
        else:
            value = default_of(file, last_name(node)) if node else None
    return value if isinstance(value, int) else None


def _parameter(function: FunctionNode, name: str) -> ast.arg | None:
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return next((each for each in arguments if each.arg == name), None)


@file_rule
def unsynchronised_timing(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """Work on a device is timed without waiting for it."""
    if is_test(file, tree) or not re.search(r"cuda|\.to\(|device", file.text) or "torch" not in file.text:
        return
    for scope in scopes(file):
        for block in blocks(scope):
            starts: dict[str, int] = {}
            for position, statement in enumerate(block):
                for name in [name for name in starts if _stops(statement, name)]:
                    timed = block[starts.pop(name) + 1:position]
                    if _launches(timed) and not _waits([*timed, statement]):
                        yield _timing_finding(file, tree, statement)
                if isinstance(statement, ast.Assign) and _is_clock(statement.value):
                    starts |= {text(target): position for target in targets(statement)}


def _timing_finding(file: SourceFile, tree: SourceTree, statement: ast.AST) -> Finding:
    return source_finding(
        "TT723", file, statement, tree,
        title="the clock is read before the device has finished",
        cause="the calls between the two clock readings only queue work on an accelerator, and nothing waits for "
              "it, so the time is that of queueing",
        fix="call torch.accelerator.synchronize() (torch.cuda.synchronize() before torch 2.6) before both readings, or "
            "use torch.utils.benchmark.Timer",
    )


def _is_clock(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and last_name(node) in _CLOCKS and not node.args


def _stops(statement: ast.AST, name: str) -> bool:
    for node in [statement, *own_nodes(statement)]:
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Sub)
            and text(node.right) == name
            and _is_clock(node.left)
        ):
            return True
    return False


def _launches(statements: list[ast.stmt]) -> bool:
    nodes = [node for statement in statements for node in [statement, *own_nodes(statement)]]
    if calls(nodes, "backward"):
        return True
    return any(last_name(call) in ("model", "net", "policy", "forward", "module") and receiver(call) is None
               for call in nodes if isinstance(call, ast.Call))


def _waits(statements: list[ast.stmt]) -> bool:
    nodes = [node for statement in statements for node in [statement, *own_nodes(statement)]]
    found = {last_name(call) for call in nodes if isinstance(call, ast.Call)}
    return bool(found & {*_WAITS, "float", "print"}) or any("sync" in name or "block" in name for name in found)
