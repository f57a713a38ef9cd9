"""Assembles the page: one file with its style, script, data, which needs no network."""

import base64
import functools
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any

from torchtriage.findings.history import MomentKind
from torchtriage.findings.report import Report
from torchtriage.reporters.html.data import chart_data, health_curves
from torchtriage.reporters.html.findings import findings_section
from torchtriage.reporters.html.frames import frames_section
from torchtriage.reporters.html.health import health_section
from torchtriage.reporters.html.markup import scope_of, script_data, text
from torchtriage.reporters.html.rules import rules_section
from torchtriage.reporters.html.run import environment_section, moment, observed_section, processes_section
from torchtriage.reporters.html.shapes import shapes_section
from torchtriage.reporters.html.timeline import timeline_section
from torchtriage.reporters.html.verdict import verdict
from torchtriage.text import duration

SCRIPTS = ("chart.js", "timeline.js", "health.js", "findings.js")
_LINKS = {
    "shapes": "Shapes", "timeline": "Timeline", "findings": "Findings", "frames": "Frames", "health": "Health",
    "processes": "Processes", "rules": "Rules", "environment": "Environment", "observed": "Not observed",
}

_MARK = (
    '<svg viewBox="0 0 16 16" aria-hidden="true"><rect class="b1" x="1" y="2" width="14" height="3" rx="1"/>'
    '<rect class="b2" x="1" y="7" width="9" height="3" rx="1"/>'
    '<rect class="b3" x="1" y="12" width="5" height="3" rx="1"/></svg>'
)


def render(report: Report) -> str:
    report, num_unexplained = with_explained_anomalies(report)
    scope = scope_of(report)
    data = chart_data(scope)
    sections = {
        "verdict": verdict(scope),
        "shapes": shapes_section(scope),
        "timeline": timeline_section(scope, data["moments"]),
        "findings": findings_section(scope),
        "frames": frames_section(scope),
        "health": health_section(scope, num_unexplained),
        "processes": processes_section(report),
        "rules": rules_section(report),
        "environment": environment_section(report),
        "observed": observed_section(report),
    }
    if not report.totals.get("compiles") and any(health_curves(report.history)):
        sections = {name: sections[name] for name in dict.fromkeys(("verdict", "health", *sections))}
    links = "".join(f'<a href="#{name}">{_LINKS[name]}</a>' for name in sections if name in _LINKS and sections[name])
    style, script = style_sheet(), _script()
    title = program_name(report.run)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy(style, script)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{text(title)}: torchtriage report</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#findings">Skip to the findings</a>
<header><p class="brand">{_MARK}torchtriage</p><p class="ran">{_run_line(report, title)}</p></header>
<nav aria-label="Sections">{links}</nav>
<main>
{chr(10).join(part for part in sections.values() if part)}
</main>
<footer><p class="quiet">Made by torchtriage from {_source(report.run)}: one file that needs no network.</p></footer>
<div id="tip" role="presentation" hidden></div>
<p id="said" class="unseen" aria-live="polite"></p>
<script type="application/json" id="data">{script_data(data)}</script>
<script>{script}</script>
</body>
</html>
"""


def with_explained_anomalies(report: Report) -> tuple[Report, int]:
    """The report without those anomaly marks that no finding of it explains, and their number."""
    fingerprints = {finding.fingerprint for finding in report.findings}
    moments = report.history.moments
    shown = tuple(m for m in moments if m.kind is not MomentKind.ANOMALY or m.fingerprint in fingerprints)
    return replace(report, history=replace(report.history, moments=shown)), len(moments) - len(shown)


def program_name(run: Mapping[str, Any]) -> str:
    """The file name of the script that ran, or its module or command."""
    argv = run.get("argv")
    words = [str(word) for word in argv] if isinstance(argv, (list, tuple)) else []
    scripts = [word for word in words if word.endswith(".py")]
    modules = [after for before, after in pairwise(words) if before == "-m"]
    return PurePath((scripts or modules or words or ["run"])[0]).name or "run"


def _run_line(report: Report, title: str) -> str:
    run = report.run
    parts = [f"<b>{text(title)}</b>"]
    if run.get("start"):
        parts.append(text(moment(run["start"])))
    if report.history.seconds:
        parts.append(text(duration(report.history.seconds)))
    if run.get("torch"):
        parts.append(f"torch {text(run['torch'])}")
    if run.get("python"):
        parts.append(f"Python {text(run['python'])}")
    if run.get("exit_status") is not None:
        parts.append(f"exit status {text(run['exit_status'])}")
    return " ".join(f"<span>{part}</span>" for part in parts)


def _source(run: Mapping[str, Any]) -> str:
    sources = {
        "recording": "a recording",
        "trace": "a structured trace",
        "log": "a text log",
        "scalars": "a log of scalars",
        "watch": "a watched block",
    }
    return sources.get(str(run.get("origin")), "a report")


@functools.cache
def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def style_sheet() -> str:
    return _file("style.css")


@functools.cache
def _script() -> str:
    """All scripts in one function, so that they share their names and define no globals."""
    parts = "\n".join(_file(name) for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}\n}})();\n'


def policy(style: str, script: str) -> str:
    """A content security policy that allows only this style and this script, by their hashes."""
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
