"""Is the first finding the one to act on, and does its fix cure the program?

Runs torchtriage on sick programs written as users write them (advice_cases), and on the twin of each that has the cure
applied. PyTorch's own hint for the first break or recompile is judged by the same pattern as our fix.

    python benchmarks/advice.py [--only case,case] [--family branches] [--repeats 3] [--jobs 2] [--output FILE.json]
    python benchmarks/advice.py --fork --every-option      # each program in a fork, observed by watch()

`first` finding has the right code, `line` is the right source line, `fix` names the cure before any other option,
`clean` is the twin without findings, `numbers` are the same on it, `stable` is the same first finding in every repeat,
`hint` is PyTorch's own text naming the cure. With `--record` the options that cured are kept, with the version of
torch, in the file that `torchtriage explain` reads.
"""

import argparse
import contextlib
import importlib
import json
import os
import re
import runpy
import sys
import tempfile
import traceback
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from advice_cases.case import Case, Option
from common import HERE, clean_environment, machine, note, run, save, table

COMPILE_RULES = ("TT1", "TT2", "TT3")
MACHINE_RULES = ("TT306", "TT307")  # seconds of compiling: on a twin they say how busy the machine is
SEVERE = ("P0", "P1", "P2", "P3")
TRIED = HERE.parent / "src" / "torchtriage" / "findings" / "tried_options.json"
HEADER = ["cause family", "cases", "first", "line", "fix", "clean", "numbers", "stable", "hint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a report says about one trouble."""

    code: str
    severity: str
    line: int
    file: str
    title: str
    cause: str
    fix: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What one run of a program under torchtriage left: findings, the printed result, and PyTorch's hints."""

    findings: tuple[Finding, ...]
    result: str
    hints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One option of a first finding, as it was printed, and whether its edit cured the program."""

    code: str
    option: str
    cured: bool


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The verdict on one case; None where a question does not apply."""

    name: str
    family: str
    cause: str
    first: bool
    line: bool
    fix: bool | None
    clean: bool | None = None
    numbers: bool | None = None
    stable: bool | None = None
    hint: bool | None = None
    reported: str = ""
    problems: list[str] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)


def all_cases() -> list[Case]:
    """The cases of every file in advice_cases, by file name."""
    names = sorted(p.stem for p in (HERE / "advice_cases").glob("*.py") if p.stem not in ("__init__", "case"))
    return [case for name in names for case in importlib.import_module(f"advice_cases.{name}").CASES]


def observe(python: str, name: str, source: str) -> Observed:
    """`torchtriage run`, then `torchtriage report --format json --events`, as a user would."""
    with tempfile.TemporaryDirectory() as folder:
        script, recording = Path(folder, f"{name}.py"), Path(folder, "case.triage")
        script.write_text(source)
        tool, env = [python, "-m", "torchtriage"], clean_environment(PYTHONDONTWRITEBYTECODE="1")
        ended = run([*tool, "run", "-q", "-o", str(recording), str(script)], env, cwd=Path(folder), check=False)
        report = run([*tool, "report", str(recording), "--format", "json", "--events"], env, cwd=Path(folder))
        return Observed(
            findings=compile_findings(json.loads(report.stdout)),
            result=result_line(ended.stdout),
            hints=torch_hints(json.loads(report.stdout), recording, ended.stderr),
        )


def observe_forked(python: str, name: str, source: str) -> Observed:
    """The same by `torchtriage.watch()`, in a fork of this process, which has imported torch: a few times faster."""
    import torch._dynamo.convert_frame  # noqa: F401 - the forks share what is imported here

    with tempfile.TemporaryDirectory() as folder:
        script, output, report = (Path(folder, file) for file in (f"{name}.py", "output", "report.json"))
        script.write_text(source)
        child = os.fork()
        if child == 0:
            _observe_and_exit(script, output, report)
        os.waitpid(child, 0)
        findings = compile_findings(json.loads(report.read_text())) if report.exists() else ()
        return Observed(findings=findings, result=result_line(output.read_text()))


def _observe_and_exit(script: Path, output: Path, report: Path) -> None:
    """Run a program inside watch(), leave its output and its report in files, and end the process."""
    import torchtriage
    from torchtriage.reporters.json import render

    status = 1
    try:
        handle = os.open(output, os.O_CREAT | os.O_WRONLY)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        os.chdir(script.parent)
        sys.argv = [str(script)]
        with torchtriage.watch(roots=[str(script.parent)]) as seen, contextlib.suppress(Exception):
            runpy.run_path(str(script), run_name="__main__")
        sys.stdout.flush()
        report.write_text(render(seen.report))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def compile_findings(report: Mapping[str, Any]) -> tuple[Finding, ...]:
    """The findings on torch.compile, in the order of the report."""
    return tuple(
        Finding(
            code=f["code"],
            severity=f["severity"],
            line=f["line"] or 0,
            file=Path(f["path"] or "?").name,
            title=f["title"],
            cause=f["cause"] or "",
            fix=(f["fix"] or {}).get("text") or "",
        )
        for f in report["findings"]
        if f["code"].startswith(COMPILE_RULES)
    )


def result_line(output: str) -> str:
    match = re.search(r"^result (\S+)", output, re.M)
    return match[1] if match else "none"


def torch_hints(report: Mapping[str, Any], recording: Path, stderr: str) -> tuple[str, ...]:
    """PyTorch's texts for the first break and the first recompile; of an error, those in the traceback."""
    from torchtriage.recording.events import GraphBreak
    from torchtriage.recording.reader import read_recording

    breaks = list(read_recording(recording).of(GraphBreak))
    hints = list(breaks[0].hints) if breaks else []
    recompiles = report["events"]["recompiles"]
    if recompiles:
        hints += [hint for reason in recompiles[0]["reasons"] for hint in re.findall(r"\(HINT: ([^\n]*)\)", reason)]
    if not breaks and not recompiles:
        hints += re.findall(r"Hint: (.*)", stderr)
    return tuple(hints)


def same_result(sick: str, cured: str) -> bool:
    """Results agree to a thousandth of their size; a sick program that raised has none to compare."""
    if "none" in (sick, cured):
        return cured != "none"
    a, b = float(sick), float(cured)
    return abs(a - b) <= 1e-3 * max(1.0, abs(a))


def names_cure_first(fix: str, options: Sequence[Option]) -> bool:
    """Does the fix name the first option, and no other option before it?"""
    positions = [match.start() if (match := re.search(o.says, fix)) else None for o in options]
    if not positions or positions[0] is None:
        return False
    return all(p is None or p >= positions[0] for p in positions[1:])


def judge(case: Case, sick: Observed) -> Outcome:
    """The verdict on the findings of the sick program."""
    outcome = Outcome(name=case.name, family=case.family, cause=case.cause, first=False, line=False, fix=None)
    if case.is_control:
        severe = [f for f in sick.findings if f.severity in SEVERE]
        outcome.first = outcome.line = not severe
        outcome.reported = "; ".join(shown(f) for f in severe)
        outcome.problems += [f"a control, but {shown(f)}" for f in severe]
        return outcome
    outcome.fix = False
    if not sick.findings:
        outcome.problems.append("no finding")
        return outcome
    finding = sick.findings[0]
    words = " ".join((finding.title, finding.cause, finding.fix))
    outcome.reported = shown(finding)
    outcome.first = finding.code in case.codes and re.search(case.says, words) is not None
    outcome.line = outcome.first and finding.place in {f"{case.name}.py:{n}" for n in case.lines}
    is_wrong = bool(case.never) and re.search(case.never, finding.fix) is not None
    outcome.fix = outcome.first and not is_wrong and names_cure_first(finding.fix, case.options)
    if not outcome.first:
        outcome.problems.append(f"the first finding is not {' or '.join(case.codes)} {case.says}".rstrip())
    elif not outcome.line:
        outcome.problems.append(f"line {finding.line} is not line {' or '.join(map(str, case.lines))}")
    if is_wrong:
        outcome.problems.append(f"the fix offers what does not cure this program: {case.never}")
    elif outcome.first and not outcome.fix:
        outcome.problems.append(f"the fix does not name the cure first: {case.options[0].says}")
    if case.options:
        outcome.hint = any(re.search(case.options[0].says, hint) for hint in sick.hints)
    return outcome


def judge_twin(outcome: Outcome, option: Option, sick: Observed, cured: Observed) -> None:
    """Add the verdict on the cured program."""
    left = [f for f in cured.findings if f.code not in (*option.leaves, *MACHINE_RULES)]
    outcome.clean = not left
    outcome.problems += [f"on the twin: {shown(f)}" for f in left]
    outcome.numbers = not option.same_numbers or same_result(sick.result, cured.result)
    if not outcome.numbers:
        outcome.problems.append(f"result {sick.result}, on the twin {cured.result}")


def judge_option(outcome: Outcome, option: Option, sick: Observed, cured: Observed) -> None:
    """Add what is wrong with a further option that was printed."""
    tried = Outcome(name="", family="", cause="", first=True, line=True, fix=True)
    judge_twin(tried, option, sick, cured)
    outcome.problems += [f"option {option.says!r}: {problem}" for problem in tried.problems]
    note_trial(outcome, option, sick, cured=not tried.problems)


def note_trial(outcome: Outcome, option: Option, sick: Observed, *, cured: bool) -> None:
    """Keep the words of the fix that offered this option."""
    finding = sick.findings[0] if sick.findings else None
    is_tried = finding is not None and outcome.first and option.is_as_printed
    match = re.search(option.says, finding.fix) if finding is not None and is_tried else None
    if finding is not None and match is not None:
        outcome.trials.append(Trial(code=finding.code, option=clause(finding.fix, match.start()), cured=cured))


def clause(fix: str, position: int) -> str:
    """The option of a fix that holds a position, without the places of one program."""
    marks = [match.span() for match in re.finditer(r"; or |; |, or ", fix)
             if fix.count("(", 0, match.start()) == fix.count(")", 0, match.start())]
    start = max((end for _, end in marks if end <= position), default=0)
    end = min((begin for begin, _ in marks if begin > position), default=len(fix))
    return re.sub(r",? (?:at|before the call at) [\w./-]+\.py:\d+", "", fix[start:end]).strip()


def shown(finding: Finding) -> str:
    return f"{finding.code} {finding.severity} {finding.place} {finding.title} | {finding.cause} | fix: {finding.fix}"


def identity(observed: Observed) -> tuple[str, int] | None:
    return (observed.findings[0].code, observed.findings[0].line) if observed.findings else None


def measure(case: Case, options: argparse.Namespace) -> Outcome:
    look = observe_forked if options.fork else observe
    runs = [look(options.python, case.name, case.source) for _ in range(options.repeats)]
    outcome = judge(case, runs[0])
    if case.options and not options.sick:
        cured = look(options.python, case.name, case.twin(case.options[0]))
        known = len(outcome.problems)
        judge_twin(outcome, case.options[0], runs[0], cured)
        note_trial(outcome, case.options[0], runs[0], cured=len(outcome.problems) == known)
    for option in case.options[1:] if options.every_option else ():
        printed = runs[0].findings[0].fix if runs[0].findings else ""
        if re.search(option.says, printed):
            judge_option(outcome, option, runs[0], look(options.python, case.name, case.twin(option)))
    if len(runs) > 1:
        outcome.stable = len({identity(r) for r in runs}) == 1
    verdict = "MISS" if outcome.problems else "ok  "
    note(f"  {verdict} {case.name}: {'; '.join(outcome.problems)[:160]}".rstrip(": "))
    return outcome


def count(verdicts: Iterable[bool | None]) -> str:
    """How many hold, of those that apply."""
    applying = [v for v in verdicts if v is not None]
    return f"{sum(applying)}/{len(applying)}" if applying else "-"


def row(title: str, outcomes: Sequence[Outcome]) -> list[object]:
    questions = ("first", "line", "fix", "clean", "numbers", "stable", "hint")
    return [title, len(outcomes), *(count(getattr(o, q) for o in outcomes) for q in questions)]


def show(outcomes: Sequence[Outcome]) -> str:
    """The table by family, then every failing case with what was printed."""
    families = sorted({o.family for o in outcomes})
    rows = [row(name, [o for o in outcomes if o.family == name]) for name in families]
    lines = [table(HEADER, [*rows, row("all", outcomes)])]
    for outcome in outcomes:
        if outcome.problems:
            lines += ["", f"{outcome.name} ({outcome.cause})", f"  said: {outcome.reported or 'nothing'}"]
            lines += [f"  {problem}" for problem in outcome.problems]
    return "\n".join(lines)


def record_trials(path: Path, outcomes: Sequence[Outcome], version: str) -> None:
    """Keep what was tried with this version of torch; other versions and other programs stay as they are."""
    rows: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    names = {outcome.name for outcome in outcomes}
    known: dict[tuple[str, str, str], set[str]] = {}
    for row in rows:
        versions = {v for v in row["torch"] if row["program"] not in names or v != version}
        known[row["code"], row["program"], row["option"]] = versions
    for outcome in outcomes:
        for trial in outcome.trials:
            if trial.cured:
                known.setdefault((trial.code, outcome.name, trial.option), set()).add(version)
    kept = [
        {"code": code, "program": program, "option": option, "torch": sorted(versions)}
        for (code, program, option), versions in sorted(known.items()) if versions
    ]
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in kept) + "\n]\n")


def torch_version(python: str) -> str:
    """2.13 for 2.13.0+cpu: the version that the options were tried with."""
    command = [python, "-c", "import torch; print(torch.__version__)"]
    return ".".join(run(command, clean_environment()).stdout.strip().split("+")[0].split(".")[:2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch and torchtriage")
    parser.add_argument("--only", default="", help="comma-separated case names")
    parser.add_argument("--family", default="", help="comma-separated families")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each sick program, for `stable`")
    parser.add_argument("--sick", action="store_true", help="leave the cured twins out")
    parser.add_argument("--fork", action="store_true", help="observe by watch() in forks of this process")
    parser.add_argument("--every-option", action="store_true", help="also try the further options that are printed")
    parser.add_argument("--record", action="store_true", help="keep the options that cured for `torchtriage explain`")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--output", type=Path, help="also write the outcomes to this JSON file")
    options = parser.parse_args()
    cases = [
        case
        for case in all_cases()
        if (not options.only or case.name in options.only.split(","))
        and (not options.family or case.family in options.family.split(","))
    ]
    before = machine()
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(lambda case: measure(case, options), cases))
    print(show(outcomes))
    if options.output:
        options.output.write_text(json.dumps([asdict(o) for o in outcomes], indent=1) + "\n")
    if options.record:
        record_trials(TRIED, outcomes, torch_version(options.python))
    if not options.only and not options.family:
        save("advice", before, {"cases": outcomes})


if __name__ == "__main__":
    main()
