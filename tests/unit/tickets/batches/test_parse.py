"""Reading a batch report: every section of the seed, other forms, and any text at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tickets.samples import PIECES, REPORT
from torchtriage.tickets.batches.parse import BatchReport, parse_batch, severities_in
from torchtriage.tickets.checks.matching import alike, code_names, ids_in, line_ranges, overlap, places_in
from torchtriage.tickets.markdown.lines import fences


@pytest.fixture(scope="module")
def seed() -> BatchReport:
    return parse_batch(REPORT.read_text())


def test_the_head_of_a_report_is_read(seed: BatchReport) -> None:
    assert seed.title == "Batch 7 PyTorch Engineering Code Review: Simic Telemetry"
    assert seed.focus.startswith("PyTorch Engineering (tensor operations")
    assert len(seed.files) == 9
    assert seed.files[5] == "/home/john/esper-lite/src/esper/simic/telemetry/__init__.py"
    assert "strong PyTorch engineering practices" in seed.summary
    assert not seed.other


def test_the_analysis_of_each_file_is_read(seed: BatchReport) -> None:
    assert [analysis.file for analysis in seed.analyses][:2] == ["anomaly_detector.py", "debug_telemetry.py"]
    detector, debug = seed.analyses[:2]
    assert detector.purpose.startswith("Phase-dependent training anomaly detection")
    assert detector.code_quality.startswith("Good. The phase-dependent thresholds")
    assert "Pure Python dataclasses" in detector.prose
    assert debug.strengths.count("\n") == 2
    assert [(row.id, row.severity, row.lines) for row in debug.findings] == [
        ("B7-DT-01", "P2", "L79-95"), ("B7-DT-02", "P2", "L196-208"), ("B7-DT-03", "P3", "L259"),
    ]
    assert len(seed.per_file) == 21


def test_tables_are_read_with_their_lines(seed: BatchReport) -> None:
    assert len(seed.findings) == 21
    row = seed.findings[4]
    assert (row.id, row.file, row.lines, row.severity) == ("B7-EM-01", "emitters.py", "639-650", "P1")
    assert "B7-EM-01" in REPORT.read_text().split("\n")[row.line - 1]
    assert [(each.severity, each.count) for each in seed.severity_rows] == [
        ("P0", 0), ("P1", 1), ("P2", 6), ("P3", 6), ("P4", 7),
    ]
    assert seed.severity_rows[2].ids == ("B7-GC-01", "B7-GE-01", "B7-LH-01", "B7-PR-01", "B7-DT-02")
    assert [risk.severity for risk in seed.risks] == ["P3", "P3", "P2"]
    components = [row.cell("component") for row in seed.missing_tests]
    assert components[2:] == ["`training_profiler`", "`check_gradient_drift`"]
    assert "~400MB" in seed.memory
    assert [row.cell("minimum version") for row in seed.versions] == ["2.0", "1.7", "1.8", "1.9"]
    assert seed.conclusion.endswith("integration completeness.")


def test_recommendations_have_the_severities_of_their_heading(seed: BatchReport) -> None:
    severities = [sorted(item.severities) for item in seed.recommendations]
    assert severities == [["P1", "P2"]] * 3 + [["P3"]] * 3 + [["P4"]] * 2
    assert [item.ids for item in seed.recommendations][:3] == [("B7-EM-01",), (), ("B7-GC-01",)]


def test_sections_may_have_another_order_level_and_line_ending() -> None:
    text = "## Detailed Findings\r\n\r\n| Severity | ID | Issue |\r\n|---|---|---|\r\n"
    text += "| `P1` | `B1-PT-01` | a \\| b | c |\r\n"
    text += "\r\n## Missing Tests\r\n\r\n| Component |\r\n|---|\r\n| x |\r\n"
    report = parse_batch(text + "\r\n# Batch 1 Memory Review\r\n\r\n## Mine\r\n\r\nkept\r\n")
    assert [(row.id, row.severity, row.issue) for row in report.findings] == [("B1-PT-01", "P1", "a | b | c")]
    assert [row.cell("component") for row in report.missing_tests] == ["x"]
    assert report.title == "Batch 1 Memory Review"
    assert [section.title for section in report.other] == ["Mine"]


def test_tables_and_headings_in_code_are_ignored() -> None:
    report = parse_batch("# t\n\n## Detailed Findings\n\n```\n| ID |\n|---|\n| B1-PT-01 |\n## Conclusion\n```\n")
    assert not report.findings
    assert not report.conclusion


@given(st.lists(st.sampled_from([
    *PIECES, "\n", "## Severity Summary\n", "## Recommendations\n", "### High (P1-P2)\n",
    "| ID | Severity | Count |\n|---|---|---|\n",
    "## File-by-File\n", "### 1. a.py\n", "## Cross-Cutting\n", "| P1 | 99999999999999999999 |",
    "1. **B1-PT-01/02:** x\n",
]), max_size=30).map("".join))
def test_no_text_raises(text: str) -> None:
    assert isinstance(parse_batch(text), BatchReport)


@pytest.mark.parametrize(("text", "ids"), [
    ("B7-GE-01/B7-LH-01: tests", ("B7-GE-01", "B7-LH-01")), ("`B7-GE-01/02`", ("B7-GE-01", "B7-GE-02")),
    ("UTF-8 and SHA-256 on RTX-4090", ()), ("B12-DRL-7, B12-DRL-7", ("B12-DRL-7",)),
])
def test_ids_are_distinguished_from_other_words_with_a_dash(text: str, ids: tuple[str, ...]) -> None:
    assert ids_in(text) == ids


@pytest.mark.parametrize(("heading", "severities"), [
    ("High Priority (P1-P2)", {"P1", "P2"}), ("P0–P2", {"P0", "P1", "P2"}), ("Low (P4)", {"P4"}),
    ("P0/P1", {"P0", "P1"}), ("Soon", set()),
])
def test_a_heading_names_its_severities(heading: str, severities: set[str]) -> None:
    assert severities_in(heading) == severities


def test_line_ranges_are_read_and_compared() -> None:
    assert line_ranges("71-72, L131") == (range(71, 73), range(131, 132))
    assert line_ranges("L9-L7") == (range(7, 10),)
    assert line_ranges("-") == line_ranges("see fn2()") == ()
    assert overlap(line_ranges("1-5"), line_ranges("5"))
    assert not overlap(line_ranges("1-5"), line_ranges("6-9"))


def test_places_and_code_names_in_prose() -> None:
    text = "in src/emitters.py L317-321, `a.py:4` and b.py lines 3-9"
    assert places_in(text) == [("emitters.py", "317-321"), ("a.py", "4"), ("b.py", "3-9")]
    assert code_names("`check_all()`, `--flag`, `torch.stack(x)`, `A.b` and `x == 1`") == ("check_all", "A.b")


def test_similar_texts_share_more_than_one_word() -> None:
    assert alike(
        "Dynamic tensor size may cause recompilation",
        "`torch.stack()` with dynamic tensor size causes a recompilation",
    )
    assert not alike("memory leak", "memory leak")
    assert not alike(
        "dynamic tensor size in one long text of many other words",
        "dynamic tensor size within quite another long story",
    )
    assert not alike("bare exception catch should be narrowed", "lost traceback in exception logging")


def test_fences_are_read_with_all_their_lines() -> None:
    code_blocks = list(fences("a\n````Python x\n```\nb\n````\n~~~\nc\n~~~\n```py\nnever closed\n"))
    assert [(fence.language, fence.lines) for fence in code_blocks] == [("python", ("```", "b")), ("", ("c",))]
    assert list(fences("")) == list(fences("no code")) == []
