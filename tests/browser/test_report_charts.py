"""The filter and the charts of the report in a real browser."""

from typing import Any

import pytest

from tests.browser.conftest import Open, wait_until
from tests.unit.reporters.report_samples import BREAK, STORM, a_history, a_report
from tests.unit.reporters.test_html_history import many_moments
from tests.unit.samples import a_finding
from torchtriage.findings.history import Moment
from torchtriage.findings.model import Finding, Location, Owner, OwnerKind, Severity
from torchtriage.findings.report import Report

pytestmark = pytest.mark.thorough

GUTTER, HEAD, CURVE, ROW, RIGHT = 76, 18, 72, 13, 8     # as in chart.js and timeline.js
ROWS = ["compile", "recompile", "graph break", "recompile limit", "anomaly"]
INK = """canvas => { const d = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n / (d.length / 4) }"""


def many_findings(number: int) -> list[Finding]:
    owners = (
        Owner(kind=OwnerKind.YOU),
        Owner(kind=OwnerKind.TORCH),
        Owner(kind=OwnerKind.LIBRARY, name="timm", version="1.0"),
    )
    return [
        a_finding(
            ("TT101", "TT202", "TT301")[n % 3],
            title=f"finding [{n}] of many",
            severity=Severity(n % 5),
            fingerprint=f"{n:016x}",
            owner=owners[n % 7 % 3],
            location=Location(path=f"/app/part{n % 11}.py", line=n + 1, function="forward"),
        )
        for n in range(number)
    ]


def shown(page: Any) -> list[str]:
    return page.locator(".finding:not([hidden]) h3").all_text_contents()


def titles(findings: list[Finding], **wanted: Any) -> list[str]:
    return [
        f.title
        for f in findings
        if all(
            get(f) == wanted[name]
            for name, get in {
                "code": lambda f: f.code,
                "owner": lambda f: str(f.owner),
                "file": lambda f: f.location.path.removeprefix("/app/"),
            }.items()
            if name in wanted
        )
    ]


def mark(page: Any, moment: Moment) -> tuple[float, float]:
    """Where a moment of the first process of the usual history is drawn, by time."""
    box = page.locator("#timeline-chart canvas").bounding_box()
    across = GUTTER + moment.time / 20.0 * (box["width"] - RIGHT - GUTTER)
    return box["x"] + across + 1, box["y"] + HEAD + CURVE + ROWS.index(str(moment.kind)) * ROW + ROW / 2


def moment_of(fingerprint: str, at: int = 3) -> Moment:
    return [m for m in a_history().moments if m.fingerprint == fingerprint and m.process == 0][at]


def test_each_filter_shows_the_matching_findings(open_report: Open) -> None:
    findings = many_findings(150)
    page = open_report(a_report(findings=findings))
    assert page.locator("#shown").inner_text() == "150 of 150"
    page.get_by_label("Code").select_option("TT202")
    assert shown(page) == titles(findings, code="TT202")
    page.get_by_label("Owner").select_option("timm 1.0")
    assert shown(page) == titles(findings, code="TT202", owner="timm 1.0")
    page.get_by_label("File").select_option("part3.py")
    assert shown(page) == titles(findings, code="TT202", owner="timm 1.0", file="part3.py")
    page.get_by_role("button", name="Reset").click()
    wait_until(page, "document.getElementById('shown').textContent === '150 of 150'")
    page.get_by_label("Text").fill("FINDING [14] of")
    assert shown(page) == ["finding [14] of many"]
    assert page.locator("#shown").inner_text() == "1 of 150"


def test_severities_are_switched_off_one_by_one(open_report: Open) -> None:
    findings = many_findings(50)
    page = open_report(a_report(findings=findings))
    page.locator("input[name=severity][value=P0]").uncheck()
    page.locator("input[name=severity][value=P3]").uncheck()
    assert shown(page) == [f.title for f in findings if f.severity.name not in ("P0", "P3")]


def test_a_filter_that_nothing_passes_says_so(open_report: Open) -> None:
    page = open_report(a_report())
    page.get_by_label("Text").fill("no such words")
    assert shown(page) == []
    assert page.get_by_text("No finding passes the filter.").is_visible()


def test_the_filter_is_stored_in_the_address(open_report: Open) -> None:
    page = open_report(a_report())
    page.get_by_label("Code").select_option("TT101")
    page.locator("input[name=severity][value=P1]").uncheck()
    wait_until(page, "location.hash.includes('severity=P2')")
    page.reload()
    assert shown(page) == ["print() breaks Block.forward"]
    assert page.get_by_label("Code").input_value() == "TT101"
    assert not page.locator("input[name=severity][value=P1]").is_checked()


def test_a_link_to_a_hidden_finding_resets_the_filter(open_report: Open) -> None:
    page = open_report(a_report())
    page.get_by_label("Code").select_option("TT101")
    page.locator("#verdict").get_by_role("link", name="See TT301").click()
    wait_until(page, "document.querySelectorAll('.finding:not([hidden])').length === 3")


def test_two_thousand_findings_are_filtered_correctly(open_report: Open) -> None:
    findings = many_findings(2000)
    page = open_report(a_report(findings=findings, history=many_moments(20_000)))
    page.locator("[name=text]").fill("[1999]")
    assert shown(page) == ["finding [1999] of many"]
    page.locator("[name=text]").fill("")
    page.locator("[name=code]").select_option("TT301")
    assert page.locator("#shown").inner_text() == f"{len(titles(findings, code='TT301'))} of 2000"
    assert shown(page) == titles(findings, code="TT301")
    page.locator("[name=code]").select_option("")
    assert shown(page) == titles(findings)


def test_all_findings_are_opened_and_closed_at_once(open_report: Open) -> None:
    page = open_report(a_report())
    page.get_by_role("button", name="Open all").click()
    assert page.locator(".finding[open]").count() == 3
    page.get_by_role("button", name="Close all").click()
    assert page.locator(".finding[open]").count() == 0


@pytest.mark.parametrize("width", [1280, 390])
def test_every_chart_is_drawn(open_report: Open, width: int) -> None:
    page = open_report(a_report(), width=width)
    canvases = page.locator("canvas")
    assert canvases.count() == 3
    for number in range(3):
        assert canvases.nth(number).evaluate(INK) > 0.01


def test_charts_are_sharp_on_a_dense_screen_and_follow_the_window(open_report: Open) -> None:
    page = open_report(a_report(), device_scale_factor=2)
    canvas = page.locator("#timeline-chart canvas")
    assert canvas.evaluate("c => Math.abs(c.width - 2 * c.clientWidth) <= 2")
    before = canvas.evaluate("c => c.width")
    page.set_viewport_size({"width": 700, "height": 800})
    wait_until(page, "before => document.querySelector('#timeline-chart canvas').width < before", arg=before)


def test_a_mark_has_a_description_and_links_to_its_finding(open_report: Open) -> None:
    page = open_report(a_report())
    where = mark(page, moment_of(STORM))
    page.mouse.move(*where)
    words = page.locator("#tip").inner_text()
    assert words.startswith(
        "recompile: Policy.forward\ncompile 0/4, step 4, at 7.60 s, took 700 ms, rank 0\ntensor 'obs' size mismatch"
    )
    page.mouse.click(*where)
    assert page.locator(f"#f-{STORM}").evaluate("e => e.open")


def test_the_step_under_the_pointer_is_shown(open_report: Open) -> None:
    page = open_report(a_report())
    x, _ = mark(page, moment_of(STORM))
    page.mouse.move(x, page.locator("#timeline-chart canvas").bounding_box()["y"] + HEAD + 20)
    assert page.locator("#tip").inner_text() == "step 6: 900 ms"


def test_marks_can_be_visited_by_buttons(open_report: Open) -> None:
    page = open_report(a_report())
    page.get_by_role("button", name="Next mark").click()
    assert (
        page.locator("#readout")
        .inner_text()
        .startswith("compile: Policy.forward compile 0/0, at 0.80 s, took 3.00 s, rank 0")
    )
    for _ in range(3):
        page.get_by_role("button", name="Next mark").click()
    page.get_by_role("button", name="Previous mark").click()
    assert page.locator("#readout").inner_text().startswith("graph break: print() in Block.forward")
    page.locator("#readout").get_by_role("link", name="Go to TT101").click()
    assert page.locator(f"#f-{BREAK}").evaluate("e => e.open")


def test_the_timeline_can_be_drawn_by_step_and_zoomed(open_report: Open) -> None:
    page = open_report(a_report())
    canvas = page.locator("#timeline-chart canvas")
    pictures = [canvas.evaluate("c => c.toDataURL()")]
    for control in ("Zoom in", "Entire run"):
        page.get_by_role("button", name=control).click()
        pictures.append(canvas.evaluate("c => c.toDataURL()"))
    page.get_by_label("by step").check()
    pictures.append(canvas.evaluate("c => c.toDataURL()"))
    assert pictures[0] == pictures[2]
    assert len(set(pictures)) == 3
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 30)
    page.mouse.up()
    assert canvas.evaluate("c => c.toDataURL()") not in pictures


def test_marks_of_hidden_findings_are_faint_on_the_timeline(open_report: Open) -> None:
    page = open_report(a_report())
    canvas = page.locator("#timeline-chart canvas")
    before = canvas.evaluate("c => c.toDataURL()")
    drawn = "document.querySelector('#timeline-chart canvas').toDataURL()"
    page.get_by_label("Code").select_option("TT101")
    wait_until(page, f"before => {drawn} !== before", arg=before)
    page.get_by_role("button", name="Reset").click()
    wait_until(page, f"before => {drawn} === before", arg=before)


def test_the_health_charts_show_their_values(open_report: Open) -> None:
    page = open_report(a_report())
    page.locator("#health").scroll_into_view_if_needed()
    for chart, words in (("figure.line", "step "), ("figure.heat", "layers.")):
        canvas = page.locator(f"{chart} canvas")
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
        assert words in page.locator("#tip").inner_text()


def test_a_run_without_step_times_is_drawn_by_step(open_report: Open) -> None:
    page = open_report(Report(findings=[], history=a_history()))
    page.get_by_label("by step").check()
    assert page.locator("#timeline-chart canvas").evaluate(INK) > 0.01
