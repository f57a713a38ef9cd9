"""The JSON report: its keys are a contract, and values that JSON lacks become null."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.samples import a_finding
from torchtriage.findings.model import (
    Category,
    Check,
    CheckKind,
    Cost,
    CostKind,
    Evidence,
    Fix,
    Location,
    Owner,
    OwnerKind,
    SampledValue,
    Severity,
    SourceLine,
)
from torchtriage.findings.report import Report
from torchtriage.reporters.json import render

# Documented in DESIGN.md and docs; never changed without a new schema number.
TOP = {
    "schema", "run", "watched", "not_seen", "totals", "num_known", "num_hidden", "num_suppressed",
    "unused_suppressions", "findings",
}
TOTALS = {
    "compiles", "graph_breaks", "distinct_graph_breaks", "recompiles", "frames_at_limit", "eager_calls",
    "compile_seconds", "steps", "run_seconds",
}
FINDING = {
    "code", "slug", "severity", "category", "title", "status", "owner", "path", "line", "column", "function",
    "raised_at", "cause", "upstream", "fix", "cost", "num_events", "evidence", "verification", "checks", "related",
    "ranks", "steps", "fingerprint",
}
FULL = a_finding(
    "TT204",
    slug="changing-int",
    title="f recompiled 7 times",
    severity=Severity.P1,
    category=Category.PERFORMANCE,
    cause="k took 1, 2",
    fix=Fix(text="make k a tensor", edit="k = torch.tensor(k)", safe=True),
    location=Location(path="/app/a.py", line=3, function="A.f", column=4),
    raised_at=Location(path="/lib/b.py", line=9, function="g"),
    owner=Owner(kind=OwnerKind.LIBRARY, name="timm", version="1.0"),
    upstream="GB0059",
    cost=Cost(seconds=1.5, share=0.25, ms_per_step=2.0, kind=CostKind.OBSERVED, note="compile time"),
    evidence=Evidence(
        num_events=7,
        values=(SampledValue(text="1", number=1.0), SampledValue(text="0.5", number=0.5, step=4)),
        reasons=("k == 1",),
        compile_ids=("0/1",),
        source=(SourceLine(number=2, text="def f(k):"), SourceLine(number=3, text="    x", is_place=True)),
        folded=("g",),
        notes=("n",),
    ),
    verification=(Check(CheckKind.NO_FINDING, "A.f", code="TT204"),),
    related=("abc",),
    ranks=(0, 1),
    steps=(4, 5),
    fingerprint="f00d",
)


def parsed(report: Report) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(render(report), parse_constant=refuse)


def test_the_keys_are_those_of_schema_1() -> None:
    data = parsed(Report(findings=[a_finding()]))
    assert data["schema"] == 1
    assert set(data) == TOP
    assert set(data["totals"]) == TOTALS
    assert set(data["findings"][0]) == FINDING
    assert set(data["findings"][0]["fix"]) == {"text", "edit", "safe", "edits"}
    assert set(data["findings"][0]["cost"]) == {"seconds", "share", "ms_per_step", "kind", "note"}


def test_a_full_finding_loses_nothing() -> None:
    [data] = parsed(Report(findings=[FULL]))["findings"]
    assert data == {
        "code": "TT204",
        "slug": "changing-int",
        "severity": "P1",
        "category": "performance bottleneck",
        "title": "f recompiled 7 times",
        "status": "open",
        "owner": {"kind": "library", "name": "timm", "version": "1.0"},
        "path": "/app/a.py",
        "line": 3,
        "column": 4,
        "function": "A.f",
        "raised_at": {"path": "/lib/b.py", "line": 9, "function": "g"},
        "cause": "k took 1, 2",
        "upstream": "GB0059",
        "fix": {"text": "make k a tensor", "edit": "k = torch.tensor(k)", "safe": True, "edits": []},
        "cost": {"seconds": 1.5, "share": 0.25, "ms_per_step": 2.0, "kind": "observed", "note": "compile time"},
        "num_events": 7,
        "evidence": {
            "values": ["1", "step 4: 0.5"],
            "samples": [
                {"text": "1", "number": 1.0, "step": None, "part": ""},
                {"text": "0.5", "number": 0.5, "step": 4, "part": ""},
            ],
            "reasons": ["k == 1"],
            "compile_ids": ["0/1"],
            "source": ["     2 | def f(k):", ">    3 |     x"],
            "source_lines": [
                {"number": 2, "text": "def f(k):", "is_place": False},
                {"number": 3, "text": "    x", "is_place": True},
            ],
            "folded": ["g"],
            "notes": ["n"],
        },
        "verification": ["no TT204 of A.f in the next recording"],
        "checks": [{"kind": "no-finding", "subject": "A.f", "code": "TT204", "place": None}],
        "related": ["abc"],
        "ranks": [0, 1],
        "steps": [4, 5],
        "fingerprint": "f00d",
    }


def test_an_unknown_value_is_null_and_never_zero() -> None:
    data = parsed(Report(findings=[a_finding(location=Location(path="unknown"))]))
    finding = data["findings"][0]
    assert finding["cost"] == {"seconds": None, "share": None, "ms_per_step": None, "kind": "not measured", "note": ""}
    assert (finding["line"], finding["raised_at"], finding["upstream"]) == (None, None, None)
    assert set(data["totals"].values()) == {None}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_become_null(value: float) -> None:
    data = parsed(Report(
        findings=[a_finding(cost=Cost(seconds=value, kind=CostKind.OBSERVED))], totals={"compile_seconds": value},
        run={"deep": [{"x": (value, 1.0)}]}, events={"graph_breaks": [{"time": value}]},
    ))
    assert data["findings"][0]["cost"]["seconds"] is None
    assert data["totals"]["compile_seconds"] is None
    assert data["run"] == {"deep": [{"x": [None, 1.0]}]}
    assert data["events"] == {"graph_breaks": [{"time": None}]}


def test_events_are_included_only_on_request() -> None:
    assert "events" not in parsed(Report(findings=[]))
    empty: dict[str, list[dict[str, Any]]] = {"graph_breaks": [], "recompiles": []}
    assert parsed(Report(findings=[], events=empty))["events"] == empty


def test_hidden_findings_are_counted() -> None:
    data = parsed(
        Report(findings=[], num_known=2, num_hidden=3, num_suppressed=4, unused_suppressions=("a.py:3: ignore[TT101]",))
    )
    assert (data["num_known"], data["num_hidden"], data["num_suppressed"]) == (2, 3, 4)
    assert data["unused_suppressions"] == ["a.py:3: ignore[TT101]"]


def test_findings_keep_their_order() -> None:
    findings = [a_finding(fingerprint=str(number)) for number in range(5)]
    assert [f["fingerprint"] for f in parsed(Report(findings=findings))["findings"]] == list("01234")


@given(st.text(st.characters()), st.text(st.characters()))
def test_any_text_comes_back_and_is_plain_ascii(title: str, path: str) -> None:
    report = Report(findings=[a_finding(title=title, location=Location(path=path))], run={"argv": [title]})
    assert render(report).isascii()
    data = parsed(report)
    assert (data["findings"][0]["title"], data["findings"][0]["path"], data["run"]["argv"]) == (title, path, [title])


def test_a_fact_that_json_cannot_represent_is_written_as_text() -> None:
    assert parsed(Report(findings=[], run={"where": Location(path="a.py", line=3), 5: "a number for a key"}))[
        "run"
    ] == {"where": "a.py:3", "5": "a number for a key"}


def test_the_text_ends_with_a_newline() -> None:
    assert render(Report(findings=[])).endswith("}\n")
