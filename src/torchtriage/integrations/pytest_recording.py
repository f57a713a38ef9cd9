"""The recording of a full test suite by --torchtriage, up to its verdict."""

import os
import sqlite3
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchtriage.capture import autoload
from torchtriage.config import Config, check_threshold, load_config
from torchtriage.errors import CommandError, TriageError
from torchtriage.findings.model import UNKNOWN_PLACE, Finding
from torchtriage.findings.report import Report
from torchtriage.findings.selection import failing, selected
from torchtriage.launch import environment, launcher_file
from torchtriage.launch.folders import free_folder
from torchtriage.recording.reader import LAUNCHER_FILE, read_recording
from torchtriage.recording.store import Writer
from torchtriage.reporters.summary import by_severity, not_shown, short_path, tap_text, totals_line
from torchtriage.text import counted, path_from_here, printable, row

if TYPE_CHECKING:
    import pytest

DEFAULT_NAME = "pytest.triage"
MAX_FINDINGS = 10       # in the summary; the report has all of them


def start(config: "pytest.Config") -> "Suite | None":
    """Record this process and every Python process that it starts; None if this process cannot be recorded."""
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    settings = Config() if is_worker else _settings(config)     # only the controller decides whether the session fails
    if environment.FOLDER in os.environ:
        # An enclosing run, or the controller of this xdist worker, created the folder.
        autoload.start()
        return Suite(Path(os.environ[environment.FOLDER]), settings, is_owner=False)
    if is_worker:
        return None     # it is on another machine, without access to the controller's folder
    if getattr(sys, "_torchtriage_observed", False):
        raise CommandError(
            "this process has recorded a suite before, and can record only one; start pytest in a new process"
        )
    # A suite runs often, so the earlier recording is replaced.
    name = _path(config, "output") or config.rootpath / DEFAULT_NAME
    folder = free_folder(name, replace=True, flag="--torchtriage-output")
    run_id = environment.unique_run_id()
    suite = Suite(folder, settings, is_owner=True)
    try:
        # The connection is closed: a test may fork, and a child must not close its parent's connection.
        launcher_file.begin(folder, run_id, ["pytest", *map(str, config.invocation_params.args)]).close()
    except (OSError, sqlite3.Error) as error:
        raise CommandError(f"cannot write {folder}: {error}; name another with --torchtriage-output") from error
    variables = {environment.FOLDER: str(folder), environment.RUN_ID: run_id}
    os.environ.update(variables)
    config.add_cleanup(lambda: _unset(variables))
    autoload.start()
    return suite


class Suite:
    """The recording of one session. The session owns it unless an enclosing run already records."""

    def __init__(self, folder: Path, settings: Config, *, is_owner: bool) -> None:
        self._folder = folder
        self._settings = settings
        self._is_owner = is_owner
        self._report: Report | None = None
        self._problem = ""
        self.verdict = ""       # why the recording fails the session

    @property
    def path(self) -> str:
        """The folder, relative to the working folder if it is below it."""
        return path_from_here(self._folder)

    def close(self, exit_status: int) -> None:
        """Write everything to disk; a recording that the session does not own continues."""
        if autoload.recorder is not None:
            autoload.recorder.close() if self._is_owner else autoload.recorder.sync()
        if self._is_owner:
            try:
                launcher_file.end(Writer(self._folder / LAUNCHER_FILE), exit_status)
            except (OSError, sqlite3.Error) as error:
                print(f"torchtriage: cannot write how the session ended: {error}", file=sys.stderr)

    def read(self) -> None:
        """Diagnose the recording and set the verdict; a recording that cannot be read does not pass."""
        from torchtriage.diagnosis.report import build_report

        fail_on = self._settings.fail_on
        try:
            self._report = report = selected(build_report(read_recording(self._folder)), self._settings)
        except TriageError as error:
            self._problem = f"no report: {error}"
            self.verdict = "failed: without a readable recording the session cannot pass" if fail_on != "never" else ""
            return
        findings = failing(report, self._settings)
        if findings:
            self.verdict = f"failed: {counted(len(findings), 'finding')} at {fail_on} or worse"

    def summary(self) -> list[str]:
        """One line per finding, the totals, the verdict, and the exact next command."""
        lines: list[str] = []
        if self._report is not None:
            findings = self._report.findings
            lines += [printable(_line(f, self._report)) for f in findings[:MAX_FINDINGS]]
            left = findings[MAX_FINDINGS:]
            if left:
                lines.append(f"{len(left)} more ({by_severity(left)})")
            lines += [totals_line(self._report), *map(printable, not_shown(self._report))]
            if not findings:
                lines.append(f"watched: {row(map(tap_text, self._report.watched)) or 'nothing'}")
        lines += [text for text in (printable(self._problem), self.verdict) if text]
        if not self._is_owner:
            lines.append(f"recorded by the enclosing run, into {self.path}")
        return [*lines, f"next: torchtriage report {self.path}"]


def _line(finding: Finding, report: Report) -> str:
    place = "" if finding.location == UNKNOWN_PLACE else f"   {short_path(str(finding.location), report.run)}"
    return f"{finding.code} {finding.severity.name}  {finding.title}{place}"


def _unset(names: Iterable[str]) -> None:
    for name in names:
        os.environ.pop(name, None)


def _settings(config: "pytest.Config") -> Config:
    """[tool.torchtriage] and the environment, overridden by the ini file, which flags override."""
    settings = load_config(config.rootpath, os.environ)
    threshold = _option(config, "fail_on")
    if threshold is not None:
        source = "--torchtriage-fail-on, or torchtriage_fail_on of the ini file,"
        settings = replace(settings, fail_on=check_threshold(threshold, source))
    baseline = _path(config, "baseline")
    if baseline is not None:
        settings = replace(settings, baseline=str(baseline))
    if settings.baseline is not None and not Path(settings.baseline).exists():
        name = settings.baseline
        raise CommandError(
            f"no baseline at {name}; make one from a recording without it: pytest --torchtriage, then "
            f"torchtriage report {DEFAULT_NAME} --baseline {name} --update-baseline"
        )
    return settings


def _option(config: "pytest.Config", name: str) -> str | None:
    flag: str | None = getattr(config.known_args_namespace, f"torchtriage_{name}")
    return flag if flag is not None else config.getini(f"torchtriage_{name}") or None


def _path(config: "pytest.Config", name: str) -> Path | None:
    """A path option. A flag is relative to the working folder, an ini value to the root folder."""
    value = _option(config, name)
    if not value:
        return None
    is_flag = getattr(config.known_args_namespace, f"torchtriage_{name}") is not None
    return (config.invocation_params.dir if is_flag else config.rootpath) / value
