"""--torchtriage: a whole suite as one recording, the summary of it, and whether the session fails by it."""

import os
import sqlite3
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchtriage.capture import autoload, launcher_file
from torchtriage.config import Config, check_threshold, load_config
from torchtriage.errors import CommandError, TriageError
from torchtriage.findings.model import UNKNOWN_PLACE, Finding
from torchtriage.findings.report import Report
from torchtriage.findings.selection import failing, selected
from torchtriage.launch import environment
from torchtriage.launch.folders import free_folder
from torchtriage.recording.reader import LAUNCHER_FILE, read_recording
from torchtriage.recording.store import Writer
from torchtriage.reporters.summary import by_severity, not_shown, short_path, tap_text, totals_line
from torchtriage.text import counted, printable

if TYPE_CHECKING:
    import pytest

DEFAULT_NAME = "pytest.triage"
MAX_FINDINGS = 10       # lines of the summary; the report has them all


def start(config: "pytest.Config") -> "Suite | None":
    """Record this process and every Python process below it; None if nothing here can be recorded."""
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    settings = Config() if is_worker else _settings(config)     # the controller judges
    if environment.FOLDER in os.environ:    # a run around this one, or the controller of this xdist worker, made the folder
        autoload.start()
        return Suite(Path(os.environ[environment.FOLDER]), settings, is_ours=False)
    if is_worker:
        return None     # on another machine: its controller's folder is not here
    if getattr(sys, "_torchtriage_observed", False):
        raise CommandError("this process has recorded a suite before, and can record only one; start pytest in a new process")
    # A suite runs all the time, so an earlier recording makes way.
    folder = free_folder(_path(config, "output") or config.rootpath / DEFAULT_NAME, replace=True, flag="--torchtriage-output")
    run_id = f"{time.time_ns():x}-{os.getpid()}"
    suite = Suite(folder, settings, is_ours=True)
    try:
        # Not kept open: a test may fork, and a connection must not be closed by a child.
        launcher_file.begin(folder, run_id, ["pytest", *map(str, config.invocation_params.args)]).close()
    except (OSError, sqlite3.Error) as error:
        raise CommandError(f"cannot write {folder}: {error}; name another with --torchtriage-output") from error
    ours = {environment.FOLDER: str(folder), environment.RUN_ID: run_id}
    os.environ.update(ours)
    config.add_cleanup(lambda: _forget(ours))
    autoload.start()
    return suite


class Suite:
    """The recording of one session. It is `ours` unless something around the session records already."""

    def __init__(self, folder: Path, settings: Config, *, is_ours: bool) -> None:
        self._folder = folder
        self._settings = settings
        self._is_ours = is_ours
        self._report: Report | None = None
        self._problem = ""
        self.verdict = ""       # why the session fails by the recording

    @property
    def shown(self) -> str:
        """The folder, relative to the working folder where that is shorter."""
        folder = self._folder
        return str(folder.relative_to(Path.cwd())) if folder.is_relative_to(Path.cwd()) else str(folder)

    def close(self, exit_status: int) -> None:
        """Have everything on the disk; a recording that is not ours goes on."""
        if autoload.recorder is not None:
            autoload.recorder.close() if self._is_ours else autoload.recorder.sync()
        if self._is_ours:
            try:
                launcher_file.end(Writer(self._folder / LAUNCHER_FILE), exit_status)
            except (OSError, sqlite3.Error) as error:
                print(f"torchtriage: cannot write how the session ended: {error}", file=sys.stderr)

    def read(self) -> None:
        """Diagnose the recording and judge it; one that cannot be read does not pass."""
        from torchtriage.diagnosis.report import build_report

        fail_on = self._settings.fail_on
        try:
            self._report = report = selected(build_report(read_recording(self._folder)), self._settings)
        except TriageError as error:
            self._problem = f"no report: {error}"
            self.verdict = "failed: what was not seen cannot pass" if fail_on != "never" else ""
            return
        reached = failing(report, self._settings)
        if reached:
            self.verdict = f"failed: {counted(len(reached), 'finding')} at {fail_on} or worse"

    def summary(self) -> list[str]:
        """Findings in a line each, the totals, the verdict, and the exact next command."""
        lines: list[str] = []
        if self._report is not None:
            found = self._report.findings
            lines += [printable(_in_a_line(f, self._report)) for f in found[:MAX_FINDINGS]]
            if len(found) > MAX_FINDINGS:
                lines.append(f"{len(found) - MAX_FINDINGS} more ({by_severity(found[MAX_FINDINGS:])})")
            lines += [totals_line(self._report), *map(printable, not_shown(self._report))]
            if not found:
                lines.append(f"watched: {', '.join(map(tap_text, self._report.watched)) or 'nothing'}")
        lines += [text for text in (printable(self._problem), self.verdict) if text]
        if not self._is_ours:
            lines.append(f"recorded by the run around this session, into {self.shown}")
        return [*lines, f"next: torchtriage report {self.shown}"]


def _in_a_line(finding: Finding, report: Report) -> str:
    place = "" if finding.location == UNKNOWN_PLACE else f"   {short_path(str(finding.location), report.run)}"
    return f"{finding.code} {finding.severity.name}  {finding.title}{place}"


def _forget(names: Iterable[str]) -> None:
    for name in names:
        os.environ.pop(name, None)


def _settings(config: "pytest.Config") -> Config:
    """[tool.torchtriage] and the environment, the ini file on top, flags on top of that."""
    settings = load_config(config.rootpath, os.environ)
    threshold = _option(config, "fail_on")
    if threshold is not None:
        settings = replace(settings, fail_on=check_threshold(threshold, "--torchtriage-fail-on, or torchtriage_fail_on of the ini file,"))
    baseline = _path(config, "baseline")
    if baseline is not None:
        settings = replace(settings, baseline=str(baseline))
    if settings.baseline is not None and not Path(settings.baseline).exists():
        name = settings.baseline
        raise CommandError(f"no baseline at {name}; make one from a recording without it: pytest --torchtriage, then"
                           f" torchtriage report {DEFAULT_NAME} --baseline {name} --update-baseline")
    return settings


def _option(config: "pytest.Config", name: str) -> str | None:
    flag: str | None = getattr(config.known_args_namespace, f"torchtriage_{name}")
    return flag if flag is not None else config.getini(f"torchtriage_{name}") or None


def _path(config: "pytest.Config", name: str) -> Path | None:
    """A flag is meant from the working folder, an ini value from the root folder."""
    value = _option(config, name)
    is_flag = getattr(config.known_args_namespace, f"torchtriage_{name}") is not None
    return (config.invocation_params.dir if is_flag else config.rootpath) / value if value else None
