"""What share of sick programs is cured by an edit that `torchtriage fix` makes?

Observes each program of advice_cases, makes the edits of its first finding one after the other on a copy, and observes
the result. An edit cures if its finding is gone, no finding at P3 or worse is new, the printed number is the same, and
every comment is still there. Each program is given a comment on every line for that.

    python benchmarks/fix.py [--only case,case] [--family branches] [--output FILE.json] [--show]

The controls of advice_cases have no finding and are left out. A finding without an edit counts as not cured.
"""

import argparse
import io
import json
import os
import re
import runpy
import sys
import tempfile
import tokenize
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from advice import MACHINE_RULES, SEVERE, all_cases, result_line
from advice_cases.case import Case
from common import machine, note, save, table

MAX_CHANGED = 12    # lines of a program that an edit touches; the largest replaces a branch of four lines
LABELS = ("safe", "setting", "review")
HEADER = ["cause", "severity", "code", "cured by", "edits tried"]


@dataclass(slots=True, kw_only=True)
class Trial:
    """One edit of a finding, and what the edited program showed."""

    label: str
    text: str
    cured: bool
    problem: str = ""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The first finding of a program and the edits that were tried on it."""

    name: str
    family: str
    cause: str
    code: str = ""
    severity: str = ""
    trials: list[Trial] = field(default_factory=list)
    reason: str = ""

    def cured_by(self, *labels: str) -> str:
        """The label of the first edit that cured, of these labels; empty if none did."""
        return next((t.label for t in self.trials if t.cured and t.label in labels), "")


def observed(source: str, name: str, folder: Path, edited: bool = False) -> tuple[list[dict[str, Any]], str, Path]:
    """The findings of a program that runs in a fork inside watch(), its printed result, and its recording.

    The edited program has the same path, so that fingerprints can be compared.
    """
    script = folder / f"{name}.py"
    script.write_text(source)
    tag = "after" if edited else "before"
    output, report = folder / f"{tag}.txt", folder / f"{tag}.json"
    child = os.fork()
    if child == 0:
        _run_and_exit(script, output, report)
    os.waitpid(child, 0)
    found = json.loads(report.read_text()) if report.exists() else {"findings": []}
    return found["findings"], result_line(output.read_text()), script


def _run_and_exit(script: Path, output: Path, report: Path) -> None:
    import contextlib

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


def with_comments(source: str) -> str:
    """The program with a comment at the end of each logical line, and some spaces that no formatter leaves."""
    lines = source.splitlines()
    ends = [t.end[0] for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.NEWLINE]
    for number in ends:
        lines[number - 1] += f"   # line {number}"
    return "\n".join(lines) + "\n"


def lost_text(source: str, edited: str) -> str:
    """What an edit lost: a comment, or the form of a line that it has no reason to touch; empty if nothing."""
    lost = [comment for comment in re.findall(r"# line \d+", source) if comment not in edited]
    if lost:
        return f"lost the comments {', '.join(lost)}"
    changed = sum(line not in edited.splitlines() for line in source.splitlines())
    return f"{changed} lines changed" if changed > MAX_CHANGED else ""


def compile_findings(findings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [f for f in findings if f["code"].startswith(("TT1", "TT2", "TT3")) and f["code"] not in MACHINE_RULES]


def measure(case: Case, show: bool) -> Outcome:
    from torchtriage.findings.model import Change, ChangeKind
    from torchtriage.recording.recording import Recording
    from torchtriage.remedies.tree import UneditableError
    from torchtriage.remedies.workspace import Workspace

    outcome = Outcome(name=case.name, family=case.family, cause=case.cause)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        source = with_comments(case.source)
        before, result, script = observed(source, case.name, folder)
        before = compile_findings(before)
        if not before:
            outcome.reason = "no finding"
            return outcome
        first = before[0]
        outcome.code, outcome.severity = first["code"], first["severity"]
        outcome.reason = "" if first["fix"]["edits"] else "no edit"
        for edit in first["fix"]["edits"]:
            script.write_text(source)
            workspace = Workspace(folder, Recording(processes=()))
            changes = [Change(**{**change, "kind": ChangeKind(change["kind"])}) for change in edit["changes"]]
            trial = Trial(label=edit["label"], text=edit["text"], cured=False)
            outcome.trials.append(trial)
            try:
                files = workspace.edited(changes)
            except UneditableError as error:
                trial.problem = f"not applied: {error}"
                continue
            edited = files[str(script)].decode()
            after, edited_result, _ = observed(edited, case.name, folder, edited=True)
            trial.problem = lost_text(source, edited) or _problem(
                first, before, compile_findings(after), result, edited_result)
            trial.cured = not trial.problem
            if show:
                print(edited)
    note(f"  {outcome.cured_by(*LABELS) or 'MISS':8} {case.name}: "
         + "; ".join(f"{t.label}: {t.problem or 'cured'}" for t in outcome.trials)[:200])
    return outcome


def _problem(
    first: dict[str, Any], before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]], result: str, edited: str,
) -> str:
    """Why an edit is not a cure; empty if it is one."""
    if result != edited and (result != "none" or edited == "none"):     # a program that raised printed none
        return f"result {result}, edited {edited}"
    known = {(f["code"], f["fingerprint"]) for f in before}
    left = [f for f in after if f["code"] == first["code"] and f["function"] == first["function"]]
    if (first["code"], first["fingerprint"]) in {(f["code"], f["fingerprint"]) for f in after} or left:
        return f"{first['code']} is still there"
    new = [f for f in after if (f["code"], f["fingerprint"]) not in known and f["severity"] in SEVERE]
    # A recompile limit hides the recompiles of its frame behind it: they are not new.
    return f"new: {new[0]['code']} {new[0]['severity']} {new[0]['title']}" if new else ""


def show_table(outcomes: Sequence[Outcome]) -> str:
    rows: list[list[object]] = []
    for outcome in outcomes:
        tried = ", ".join(trial.label for trial in outcome.trials) or outcome.reason
        rows.append([outcome.cause, outcome.severity, outcome.code, outcome.cured_by(*LABELS) or "-", tried])
    return "\n".join([table(HEADER, rows), "", *summary(outcomes)])


def summary(outcomes: Sequence[Outcome]) -> list[str]:
    """The shares, of all findings and of those at P3 or worse."""
    lines = []
    worse = [outcome for outcome in outcomes if outcome.severity < "P4"]
    for title, chosen in (("all first findings", outcomes), ("P3 or worse", worse)):
        automatic = sum(bool(o.cured_by("safe", "setting")) for o in chosen)
        reviewed = sum(bool(o.cured_by(*LABELS)) for o in chosen)
        number = len(chosen) or 1
        lines.append(
            f"{title}: {len(chosen)}; cured by a safe edit or a setting {automatic} ({automatic / number:.0%}), "
            f"by any edit {reviewed} ({reviewed / number:.0%})")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="comma-separated case names")
    parser.add_argument("--family", default="", help="comma-separated families")
    parser.add_argument("--show", action="store_true", help="print each edited program")
    parser.add_argument("--output", type=Path, help="also write the outcomes to this JSON file")
    options = parser.parse_args()
    cases = [
        case for case in all_cases() if not case.is_control
        and (not options.only or case.name in options.only.split(","))
        and (not options.family or case.family in options.family.split(","))
    ]
    import torch._dynamo.convert_frame  # noqa: F401 - the forks share what is imported here

    before = machine()
    outcomes = [outcome for outcome in (measure(case, options.show) for case in cases) if outcome.code]
    print(show_table(outcomes))
    if options.output:
        options.output.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n")
    if not options.only and not options.family:
        save("fix", before, {"cases": outcomes})


if __name__ == "__main__":
    main()
