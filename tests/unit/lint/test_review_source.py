"""Lint of a package with the flaws that a reviewer found in such code: every flaw is found, and nothing else."""

from pathlib import Path

import pytest

from torchtriage.findings.model import Finding
from torchtriage.lint.cache import LintCache
from torchtriage.lint.check import lint

SOURCE = Path(__file__).parent / "review_source"
# Each flaw of the review: the file, the rules of which at least one reports it, the function.
FLAWS = [
    ("alarms.py", {"TT710"}, "AlarmPanel.check_drift"),
    ("inspection.py", {"TT737"}, "inspect_layers"),                 # found by two reviewers
    ("inspection.py", {"TT701"}, "inspect_soundness"),
    ("inspection.py", {"TT712"}, "RatioReport.of_batch"),
    ("reporting.py", {"TT704"}, "surrogate_norm"),
    ("reporting.py", {"TT708"}, "Reporter._send_details"),
    ("reporting.py", {"TT709"}, "Reporter._send_details"),
    ("slopes.py", {"TT703"}, "gather_slopes"),
    ("slopes.py", {"TT716"}, "SlopeCollector.start"),
    ("slopes.py", {"TT714", "TT715"}, "gather_slopes"),
    ("slopes.py", {"TT705"}, "SlopeCollector.finish"),
    ("averages.py", {"TT717"}, "SlopeAverages"),
    ("averages.py", {"TT706"}, "SlopeAverages.push"),
    ("signals/__init__.py", {"TT711"}, "<module>"),
    ("memory_cells.py", {"TT717"}, "CellHealth"),
    ("memory_cells.py", {"TT719"}, "cell_health"),
    ("memory_cells.py", {"TT718"}, "cell_health"),
    ("tracing.py", {"TT720"}, "trace_training"),
    ("tracing.py", {"TT721"}, "trace_training"),
    ("tracing.py", {"TT722"}, "trace_training"),
    ("settings.py", {"TT713"}, "SignalConfig"),
    ("scaling.py", {"TT738"}, "RunningScale.update"),
    ("slots.py", {"TT736"}, "SlotState"),
]


@pytest.fixture(scope="module")
def findings() -> list[Finding]:
    return list(lint([SOURCE], [str(SOURCE)]).findings)


def reports(finding: Finding, flaw: tuple[str, set[str], str]) -> bool:
    file, codes, function = flaw
    return finding.location.path.endswith(file) and finding.code in codes and finding.location.function == function


@pytest.mark.parametrize("flaw", FLAWS, ids=lambda flaw: f"{flaw[0]}-{'-'.join(sorted(flaw[1]))}")
def test_the_flaw_is_found(flaw: tuple[str, set[str], str], findings: list[Finding]) -> None:
    assert any(reports(finding, flaw) for finding in findings)


def test_nothing_else_is_reported(findings: list[Finding]) -> None:
    others = [finding for finding in findings if not any(reports(finding, flaw) for flaw in FLAWS)]
    assert [f"{finding.code} {finding.location}" for finding in others] == []


def test_one_file_alone_says_nothing_about_its_callers() -> None:
    found = lint([SOURCE / "pulse/signals/tracing.py"], [str(SOURCE)]).findings
    assert {finding.code for finding in found} == {"TT721", "TT722"}


def test_an_installed_package_is_not_called_untested(tmp_path: Path) -> None:
    (tmp_path / "pulse-0.3.0.dist-info").mkdir()
    package = tmp_path / "pulse"
    package.mkdir()
    for file in (SOURCE / "pulse/signals").glob("*.py"):
        (package / file.name).write_text(file.read_text())
    codes = {finding.code for finding in lint([package], [str(tmp_path)]).findings}
    assert not codes & {"TT710", "TT711", "TT713", "TT717", "TT720"}
    assert "TT704" in codes


def test_a_new_test_is_noticed_although_the_linted_files_are_cached(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "other.py").write_text("import math\n")
    (tmp_path / "src" / "averages.py").write_text((SOURCE / "pulse/signals/averages.py").read_text())

    def codes() -> set[str]:
        cache = LintCache(tmp_path / "cache.json")
        return {finding.code for finding in lint([tmp_path / "src"], [str(tmp_path)], cache).findings}

    assert "TT717" in codes()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_averages.py").write_text("from averages import SlopeAverages\n")
    assert "TT717" not in codes()


def test_a_name_that_a_test_imports_is_named_by_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "averages.py").write_text((SOURCE / "pulse/signals/averages.py").read_text())
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_averages.py").write_text("from averages import SlopeAverages\n")
    assert "TT717" not in {finding.code for finding in lint([tmp_path], [str(tmp_path)]).findings}


CHECKS = """
from typing import NamedTuple, Optional

class Alarm(NamedTuple):
    kind: str

class Watchdog:
    def run(self, loss, norm):
        return [self.look_at_loss(loss), self.look_at_norm(norm)]

    def look_at_loss(self, loss) -> Optional[Alarm]:
        return Alarm("loss") if loss > 9 else None

    def look_at_norm(self, norm) -> Optional[Alarm]:
        return Alarm("norm") if norm > 9 else None

    def look_at_drift(self, drift) -> Optional[Alarm]:
        return Alarm("drift") if drift > 9 else None
"""
TRACE = """
import torch.profiler as tp

class trace_window:
    def __enter__(self):
        self.profiler = tp.profile()
        return self.profiler.__enter__()

    def __exit__(self, *error):
        return self.profiler.__exit__(*error)
"""


def test_an_orphan_check_and_an_unused_profiler_of_an_absolute_import(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    package = tmp_path / "watch"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from watch.checks import Watchdog\nfrom watch.trace import trace_window\n"
    )
    (package / "checks.py").write_text(CHECKS)
    (package / "trace.py").write_text(TRACE)
    (tmp_path / "train.py").write_text("from watch import Watchdog\nWatchdog().run(1.0, 2.0)\n")
    found = {(finding.code, finding.location.function) for finding in lint([tmp_path], [str(tmp_path)]).findings}
    assert {("TT710", "Watchdog.look_at_drift"), ("TT711", "<module>"), ("TT720", "trace_window")} <= found


ALARMS = """
class AlarmBoard:
    def judge(self, ratio, kl):
        return self.ratio_alarm(ratio) or self.kl_alarm(kl)

    def ratio_alarm(self, ratio):
        return ratio > 4

    def kl_alarm(self, kl):
        return kl > 0.05

    def drift_alarm(self, drift):
        return drift > 0.6
"""
LEVELS = """
SCALARS = 1

class Levels:
    def __init__(self, level=SCALARS, weights_every=20):
        self.level = level
        self.weights_every = weights_every

    def wants(self, level):
        return level <= self.level
"""
CELLS = """
from typing import NamedTuple

class CellHealth(NamedTuple):
    norm: float
    peak: float

    @property
    def sound(self) -> bool:
        return 1e-6 < self.norm < 100 and self.peak < 1e4
"""
RECORDED = """
import torch

def traced(active: int = 3):
    \"\"\"Record a training.

    Args:
        active: the steps to record
    \"\"\"
    return torch.profiler.profile(schedule=torch.profiler.schedule(wait=1, warmup=1, active=active, repeat=1))
"""


def lint_files(folder: Path, **files: str) -> set[tuple[str, str]]:
    """Code and function of the findings of a project of these files, and a test that names none of their classes."""
    (folder / "pyproject.toml").write_text("")
    (folder / "tests").mkdir()
    (folder / "tests" / "test_sums.py").write_text("def test_sums():\n    assert 1 + 1 == 2\n")
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return {(finding.code, finding.location.function) for finding in lint([folder], [str(folder)]).findings}


def test_checks_are_known_by_the_noun_at_the_end_of_their_names(tmp_path: Path) -> None:
    use = "from alarms import AlarmBoard\nAlarmBoard().judge(1.0, 0.1)\n"
    assert ("TT710", "AlarmBoard.drift_alarm") in lint_files(tmp_path, alarms=ALARMS, main=use)


def test_a_plain_class_of_defaults_is_a_configuration(tmp_path: Path) -> None:
    found = lint_files(tmp_path, levels=LEVELS, main="from levels import Levels\nprint(Levels().wants(2))\n")
    assert ("TT713", "Levels.__init__") in found


def test_a_plain_class_that_takes_more_than_defaults_is_none(tmp_path: Path) -> None:
    levels = LEVELS.replace("level=SCALARS", "level")
    assert lint_files(tmp_path, levels=levels, main="from levels import Levels\nprint(Levels(1).wants(2))\n") == set()


def test_a_named_tuple_that_judges_its_fields_needs_a_test(tmp_path: Path) -> None:
    assert ("TT717", "CellHealth") in lint_files(tmp_path, cells=CELLS, main="from cells import CellHealth\n")


@pytest.mark.parametrize(("said", "codes"), [
    ("the steps to record", {"TT722"}), ("the steps to record; raise it where updates are rare", set()),
])
def test_a_docstring_explains_a_short_schedule_by_saying_when_to_raise_it(
    said: str, codes: set[str], tmp_path: Path,
) -> None:
    found = lint_files(tmp_path, trace=RECORDED.replace("the steps to record", said), main="from trace import traced\n")
    assert {code for code, _ in found} & {"TT722"} == codes
