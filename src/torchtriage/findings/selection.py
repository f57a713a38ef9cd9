"""Which findings count: what --select, --ignore and the baseline leave, and whether that fails."""

from dataclasses import replace
from pathlib import Path

from torchtriage.config import Config
from torchtriage.errors import CommandError
from torchtriage.findings import catalogue
from torchtriage.findings.baseline import read_baseline
from torchtriage.findings.model import Finding, Severity
from torchtriage.findings.report import Report


def check_known(config: Config) -> None:
    """A code that matches no rule would make a gate pass for ever."""
    for item in (*config.select, *config.ignore):
        if not any(code.startswith(item) for code in catalogue.codes()):
            raise CommandError(f"no rule begins with {item!r}; list the rules with: torchtriage explain")


def is_wanted(finding: Finding, config: Config) -> bool:
    """Whether --select and --ignore leave it."""
    if config.select and not finding.code.startswith(config.select):
        return False
    return not (config.ignore and finding.code.startswith(config.ignore))


def selected(report: Report, config: Config) -> Report:
    """The report without what --select, --ignore and the baseline take away; what they take is counted."""
    left = [f for f in report.findings if is_wanted(f, config)]
    known = read_baseline(Path(config.baseline)) if config.baseline else set()
    new = [f for f in left if f.fingerprint not in known]
    return replace(report, findings=new, num_known=len(left) - len(new), num_hidden=len(report.findings) - len(left))


def failing(report: Report, config: Config) -> list[Finding]:
    """The findings at or above --fail-on."""
    if config.fail_on == "never":
        return []
    return [f for f in report.findings if f.severity <= Severity[config.fail_on]]
