"""Findings as SARIF 2.1.0, for code scanning or editors."""

import json
import posixpath
import re
import shlex
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from torchtriage import __version__
from torchtriage.findings import catalogue
from torchtriage.findings.model import UNKNOWN_PLACE, Finding, Location
from torchtriage.findings.proof.remedy import proof_sentence
from torchtriage.findings.report import Report
from torchtriage.reporters.json import finding_as_dict, plain
from torchtriage.reporters.summary import level_of, project_path, tap_text
from torchtriage.text import installed_path

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "%SRCROOT%"                  # the working folder of the run
LIBRARIES = "%SITE_PACKAGES%"       # its path differs from machine to machine, so it is not given
_FACTS = (
    "severity", "category", "owner", "upstream", "cost", "fix", "ranks", "steps", "related", "verified", "proof",
)


def render(report: Report) -> str:
    codes = sorted({f.code for f in report.findings})
    run: dict[str, Any] = {
        "tool": {"driver": {"name": "torchtriage", "version": __version__, "rules": [_rule(code) for code in codes]}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(f, codes.index(f.code), report.run) for f in report.findings],
        "properties": {
            "watched": [tap_text(tap) for tap in report.watched],
            "not_seen": [tap_text(tap) for tap in report.not_seen],
            "totals": dict(report.totals),
        },
    }
    if report.run.get("cwd"):
        run["originalUriBaseIds"] = {ROOT: {"uri": _file_uri(str(report.run["cwd"]).rstrip("/\\") + "/")}}
    if isinstance(report.run.get("exit_status"), int):
        run["invocations"] = [_invocation(report.run)]
    return json.dumps(_readable(plain({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})), indent=1) + "\n"


def _rule(code: str) -> dict[str, Any]:
    try:
        rule = catalogue.rule(code)
    except KeyError:
        return {"id": code}
    return {
        "id": code,
        "name": "".join(word.capitalize() for word in rule.slug.split("-")),
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": " ".join(rule.section("What it is").split())},
        "help": {"text": rule.page, "markdown": rule.page},
        "defaultConfiguration": {"level": level_of(rule.severity)},
        "properties": {"tags": [str(rule.category)]},
    }


def _result(f: Finding, rule_index: int, run: Mapping[str, Any]) -> dict[str, Any]:
    facts = finding_as_dict(f)
    sentences = [f.title, f.cause, f"Fix: {f.fix.text}"]
    if f.proof is not None:
        sentences.append(f"Verified: {proof_sentence(f.proof)}")
    result = {
        "ruleId": f.code,
        "ruleIndex": rule_index,
        "level": level_of(f.severity),
        "message": {"text": "\n".join(f"{sentence.rstrip().removesuffix('.')}." for sentence in sentences)},
        "locations": _locations(f.location if f.location != UNKNOWN_PLACE else _script(run), run),
        "properties": {name: facts[name] for name in _FACTS if name in facts},
    }
    if f.raised_at is not None:
        raised = _locations(f.raised_at, run)
        result["relatedLocations"] = [{**location, "id": 1, "message": {"text": "raised here"}} for location in raised]
    if f.evidence.num_events > 0:
        result["occurrenceCount"] = f.evidence.num_events
    if f.fingerprint and not run.get("redacted"):       # a pseudonym would match another problem in the next run
        result["partialFingerprints"] = {"torchtriage/v1": f.fingerprint}
    return result


def _locations(place: Location, run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A list that holds the place; empty if the place is not a file."""
    found = artifact(place.path, run)
    if found is None:
        return []
    physical: dict[str, Any] = {"artifactLocation": found}
    if place.line and place.line > 0:
        physical["region"] = {"startLine": place.line}
        if place.column and place.column > 0:
            physical["region"]["startColumn"] = place.column
    location: dict[str, Any] = {"physicalLocation": physical}
    if place.function:
        location["logicalLocations"] = [{"fullyQualifiedName": place.function, "kind": "function"}]
    return [location]


def artifact(path: str, run: Mapping[str, Any]) -> dict[str, str] | None:
    """The location of a file, relative to the working folder of the run where it is below it; None for no file."""
    inside = project_path(path, run)
    if inside is not None:
        return {"uri": _quoted(inside), "uriBaseId": ROOT}
    installed = installed_path(path)
    if installed is not None:
        return {"uri": _quoted(installed), "uriBaseId": LIBRARIES}
    if path in ("", UNKNOWN_PLACE.path) or path.startswith("<"):
        return None
    return {"uri": _file_uri(path)}


def _script(run: Mapping[str, Any]) -> Location:
    """The place of findings that concern the entire run: code scanning drops results without a place."""
    script = next((word for word in run.get("argv") or () if str(word).endswith(".py")), None)
    return UNKNOWN_PLACE if script is None else Location(path=posixpath.normpath(str(script).replace("\\", "/")))


def _file_uri(path: str) -> str:
    path = path.replace("\\", "/")
    if re.match(r"[A-Za-z]:/", path):
        return f"file:///{path[:2]}{_quoted(path[2:])}"
    return f"file://{_quoted(path)}" if path.startswith("/") else _quoted(path)


def _quoted(path: str) -> str:
    return quote(path, errors="backslashreplace")


def _invocation(run: Mapping[str, Any]) -> dict[str, Any]:
    """The command line of the observed program, its times and its exit code."""
    invocation: dict[str, Any] = {"executionSuccessful": run["exit_status"] == 0, "exitCode": run["exit_status"]}
    if run.get("argv"):
        invocation["commandLine"] = shlex.join(map(str, run["argv"]))
    for name, fact in (("startTimeUtc", "start"), ("endTimeUtc", "end")):
        if isinstance(run.get(fact), (int, float)):
            invocation[name] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(run[fact]))
    return invocation


def _readable(value: Any) -> Any:
    """The value with lone surrogates escaped, which strict readers reject; a file name that is not UTF-8 has them."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {name: _readable(item) for name, item in value.items()}
    return [_readable(item) for item in value] if isinstance(value, list) else value
