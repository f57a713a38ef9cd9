"""TT309: the program resets its compiled code repeatedly."""

import ast
from collections.abc import Iterator

from torchtriage.diagnosis.compiles.frames import CompileHistory, Frame, compile_seconds
from torchtriage.diagnosis.compiles.targets import call_behind
from torchtriage.diagnosis.coverage.compile_calls import MIN_REPEATS
from torchtriage.diagnosis.places import locate, source_lines
from torchtriage.diagnosis.rules import finding, placed_fields, rule
from torchtriage.diagnosis.statement import code, module_at, recorded_statements
from torchtriage.findings.model import (
    Change,
    ChangeKind,
    Check,
    CheckKind,
    Cost,
    CostKind,
    Edit,
    EditLabel,
    Evidence,
    Finding,
    Fix,
    Location,
    OwnerKind,
)
from torchtriage.recording.events import CompileStart
from torchtriage.recording.recording import Process
from torchtriage.text import counted, short_place

_RESETS = frozenset({"torch.compiler.reset", "torch._dynamo.reset", "dynamo.reset", "_dynamo.reset"})


@rule
def compiled_after_resets(process: Process) -> Iterator[Finding]:
    """One torch.compile call whose function was compiled again after each of several resets of Dynamo."""
    history = CompileHistory.of(process)
    if history.num_generations <= MIN_REPEATS:
        return
    reset = _reset_call(process)
    frame = _most_repeated(process, history)
    if reset is None or frame is None:
        return
    path, line, text = reset
    first = frame.starts[0]
    call = call_behind(process, frame.compiles[0])
    name, number = call.target if call is not None else first.function, len(_generations(frame))
    repeats = [compile_ for compile_ in frame.compiles if compile_.generation > frame.compiles[0].generation]
    seconds = compile_seconds(repeats)
    where = short_place(path, line)
    place = locate(process, CompileStart(path=path, line=line, function="", time=first.time))
    yield finding(
        "TT309", title=f"{name} is compiled again after each of {number - 1} resets of torch.compile",
        cause=f"`{text}` at {where} deletes all compiled code; {name} has one torch.compile call and was compiled "
              f"{counted(number, 'time')}, once before and once after each reset",
        fix=Fix(text=f"remove `{text}` at {where}, or call it once, before the loop: compiled code stays valid while "
                     "weights and data change", edits=_removed(process, path, line, text)),
        cost=Cost(seconds=seconds, kind=CostKind.OBSERVED) if seconds else Cost(),
        evidence=Evidence(
            num_events=number - 1, source=source_lines(process, Location(path=path, line=line)),
            notes=(counted(number - 1, "reset"), "the call is read from the source"),
        ),
        verification=(Check(CheckKind.NO_FINDING, name, code="TT309"),),
        **placed_fields(place, "TT309", f"reset {name}", process, first),
    )


def _generations(frame: Frame) -> set[int]:
    return {compile_.generation for compile_ in frame.compiles}


def _most_repeated(process: Process, history: CompileHistory) -> Frame | None:
    """The frame of the user that most generations compiled for one torch.compile call; None if fewer than four did."""
    best: Frame | None = None
    for frame in history.frames.values():
        if not frame.starts or frame.is_resume or locate(process, frame.starts[0]).owner.kind is not OwnerKind.YOU:
            continue
        calls = {id(call_behind(process, compile_)) for compile_ in frame.compiles}
        is_one_call = len(calls) == 1 and call_behind(process, frame.compiles[0]) is not None
        number = len(_generations(frame))
        if is_one_call and number > MIN_REPEATS and (best is None or number > len(_generations(best))):
            best = frame
    return best


def _removed(process: Process, path: str, line: int, text: str) -> tuple[Edit, ...]:
    """The call dropped from the loop that repeats it; what it deletes holds no number of the program."""
    statements = list(recorded_statements(process, path))
    is_statement = any(own == line and code(node) == text for own, node in statements)
    in_loop = any(
        isinstance(node, (ast.For, ast.While)) and own < line <= own + (node.end_lineno or node.lineno) - node.lineno
        for own, node in statements
    )
    if not is_statement or not in_loop:
        return ()
    change = Change(kind=ChangeKind.REMOVE, path=path, line=line, old=text)
    return (Edit(label=EditLabel.SAFE, text=f"remove `{text}` at {short_place(path, line)}", changes=(change,)),)


def _reset_call(process: Process) -> tuple[str, int, str] | None:
    """The only reset that the recorded source of the user shows; None if it shows none, or several."""
    found: dict[tuple[str, int], str] = {}
    for path, line in process.sources:
        place = locate(process, CompileStart(path=path, line=line, function=""))
        tree, first_line = module_at(process, path, line) if place.owner.kind is OwnerKind.YOU else (None, 0)
        for part in ast.walk(tree) if tree is not None else ():
            if isinstance(part, ast.Call) and code(part.func) in _RESETS:
                found[path, part.lineno + first_line - 1] = code(part)
    if len(found) != 1:
        return None
    [((path, line), text)] = found.items()
    return path, line, text
