"""The commonest changes take effect in the file that docs/internals/where-changes-go.md names for them."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "internals" / "where-changes-go.md"
DEMO = ("-m", "torchtriage", "report", str(ROOT / "tests" / "recordings" / "runs" / "demo-torch2.13.triage"))
LIMITS = "from torchtriage.diagnosis.learning.limits import LearningLimits; print(LearningLimits())"

LINT = (
    "from torchtriage.lint.check import findings_in; from torchtriage.lint.project import read_tree; "
    "found = findings_in(read_tree({{'/a.py': {source!r}}})); "
    "print('\\n'.join(f.code + ' ' + f.title for f in found) or 'nothing')"
)
GROWING = LINT.format(
    source=b"import random, torch\nnet = torch.compile(torch.relu, dynamic=False)\nfor _ in range(9):\n"
           b"    n = random.randint(1, 9)\n    net(torch.ones(n))\n"
)
SCHEDULER = LINT.format(source=b"import torch\ndef f(opt):\n    s = torch.optim.lr_scheduler.StepLR(opt, 3)\n")


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of one file, and the words of a Python command whose output shows it."""

    row: str            # of the page
    file: str
    old: str            # a regular expression
    new: str
    words: tuple[str, ...]
    before: str = ""    # regular expressions: found only before the change, only after it
    after: str = ""


CHANGES = (
    Change(
        row="the fix that a graph break proposes", file="diagnosis/graph_breaks/remedies.py",
        old=r"reorderable_logging_functions\.add\(print\)", new="changed_fix", words=DEMO, after="changed_fix",
    ),
    Change(
        row="which rule a graph break belongs to", file="diagnosis/graph_breaks/cause.py",
        old='"TT104"', new='"TT106"', words=DEMO, before="^TT104", after="^TT106",
    ),
    Change(
        row="how a recompile reason of torch is understood", file="diagnosis/recompiles/guard_text.py",
        old="mismatch", new="unknown", words=DEMO, before="^TT202", after="^TT299",
    ),
    Change(
        row="the limit of a learning rule", file="diagnosis/learning/rules/gradients.py",
        old=r"norm_ratio_max: float = [\d.]+", new="norm_ratio_max: float = 123.0",
        words=("-c", LIMITS), after=r"norm_ratio_max=123\.0",
    ),
    Change(
        row="the explanation, example or severity of a rule", file="findings/rules/TT103.md",
        old="## Example", new="changed_page\n\n## Example",
        words=("-m", "torchtriage", "explain", "TT103"), after="changed_page",
    ),
    Change(
        row="which arguments of compiled calls lint takes to differ from call to call", file="lint/variation/calls.py",
        old='"randint", "randrange"', new='"randrange"', words=("-c", GROWING), before="^TT202", after="^nothing",
    ),
    Change(
        row="a TT7xx rule of lint", file="lint/training/optimizers.py",
        old="is never stepped", new="is forgotten", words=("-c", SCHEDULER), before="is never stepped",
        after="is forgotten",
    ),
    Change(
        row="the layout of the text report", file="reporters/terminal.py",
        old='"more"', new='"read"', words=DEMO, before="^  more", after="^  read",
    ),
    Change(
        row="a section of the HTML report", file="reporters/html/findings.py",
        old="<h4>Why</h4>", new="<h4>Changed</h4>", words=(*DEMO, "--format", "html"), after="<h4>Changed</h4>",
    ),
    Change(
        row="a flag of a command", file="commands/report.py",
        old='"--events"', new='"--events", "--changed"',
        words=("-m", "torchtriage", "report", "--help"), after="--changed",
    ),
    Change(
        row="how a duration, a count, a list or a path is written", file="text.py",
        old='"ms"', new='"milli"', words=DEMO, before=r"\d ms", after=r"\d milli",
    ),
)


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package, in which all changes are made."""
    folder = tmp_path_factory.mktemp("changed")
    shutil.copytree(ROOT / "src" / "torchtriage", folder / "torchtriage")
    for change in CHANGES:
        path = folder / "torchtriage" / change.file
        text, number = re.subn(change.old, change.new, path.read_text(encoding="utf-8"))
        assert number, f"{change.file} has no {change.old}"
        path.write_text(text, encoding="utf-8")
    return folder


OUTPUTS: dict[tuple[Path, tuple[str, ...]], str] = {}


def output(package: Path, words: tuple[str, ...]) -> str:
    """What a command prints; each runs once."""
    if (package, words) not in OUTPUTS:
        env = {**os.environ, "PYTHONPATH": str(package), "COLUMNS": "80"}
        done = subprocess.run(
            [sys.executable, *words], cwd=package, env=env, capture_output=True, text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        OUTPUTS[package, words] = done.stdout
    return OUTPUTS[package, words]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.file)
def test_a_change_takes_effect_in_the_file_of_its_row(change: Change, changed: Path) -> None:
    [row] = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {change.row} |")]
    named = re.findall(r"`([^`]+)`", row)
    path = f"src/torchtriage/{change.file}"
    assert any(path == name or (name.endswith("/") and Path(path).parent == Path(name)) for name in named), named
    for pattern, package, other in (
        (change.before, ROOT / "src", changed), (change.after, changed, ROOT / "src"),
    ):
        if pattern:
            assert re.search(pattern, output(package, change.words), re.M), pattern
            assert not re.search(pattern, output(other, change.words), re.M), pattern
