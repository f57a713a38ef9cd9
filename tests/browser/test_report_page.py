"""The report in a real browser: it fits, it is readable, and hostile names in it are harmless."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Open, wait_until
from tests.unit.reporters.report_samples import STORM, a_report
from tests.unit.reporters.test_html import ATTACKS, a_report_of
from tests.unit.samples import a_finding
from torchtriage.capture.readers.log_file import read_log
from torchtriage.capture.readers.trace_file import read_traces
from torchtriage.diagnosis.report import build_report
from torchtriage.findings.history import History
from torchtriage.findings.report import Report
from torchtriage.reporters import notebook
from torchtriage.reporters.html import render

pytestmark = pytest.mark.thorough

RECORDINGS = Path(__file__).parent.parent / "recordings"
OPEN_ALL = "document.querySelectorAll('details').forEach((d) => { d.open = true })"
# A page's body has the focus when the browser's own controls are reached.
FOCUSED = """(() => { const e = document.activeElement;
  const outline = e === document.body ? 'body' : getComputedStyle(e).outlineStyle
  return [e.id || e.name || e.className || e.textContent, outline] })()"""
# The contrast of text and background by the formula of WCAG 2; the smallest ratio of each kind of element.
CONTRASTS = """() => {
  const parts = (c) => c.match(/[\\d.]+/g).map(Number);
  const linear = (v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
  const light = (c) => parts(c).slice(0, 3).map((v) => linear(v / 255))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => {
    const own = getComputedStyle(e).backgroundColor;
    return parts(own).length < 4 || parts(own)[3] > 0 || !e.parentElement ? own : ground(e.parentElement);
  };
  const ratios = {};
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility() || e.closest('.unseen, .skip')) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const name = e.tagName.toLowerCase() + '.' + e.className;
    ratios[name] = Math.min(ratios[name] ?? 99, ratio);
  }
  return ratios;
}"""


def long_names() -> Report:
    """Paths, names and messages that do not fit on any line."""
    return a_report_of("very_long_name_" * 30 + "/" + "x" * 300)


def overflow(page: Any) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("colour", ["light", "dark"])
@pytest.mark.parametrize("make", [a_report, long_names], ids=["usual", "long names"])
def test_nothing_overflows_the_page(open_report: Open, tmp_path: Path, make: Any, width: int, colour: str) -> None:
    page = open_report(make(), width=width, colour=colour)
    assert overflow(page) <= 0
    page.evaluate(OPEN_ALL)
    assert overflow(page) <= 0
    page.screenshot(path=tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000


@pytest.mark.parametrize("colour", ["light", "dark"])
def test_all_text_has_enough_contrast(open_report: Open, colour: str) -> None:
    page = open_report(a_report(), colour=colour)
    page.evaluate(OPEN_ALL)
    ratios = page.evaluate(CONTRASTS)
    assert len(ratios) > 30
    assert {name: ratio for name, ratio in ratios.items() if ratio < 4.5} == {}


def test_the_theme_follows_the_browser(open_report: Open) -> None:
    page = open_report(a_report())
    drawn = "document.querySelector('#timeline-chart canvas').toDataURL()"
    before, light = page.evaluate(drawn), page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="dark")
    wait_until(page, f"before => {drawn} !== before", arg=before)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light


def test_without_javascript_the_findings_can_be_read(open_report: Open) -> None:
    page = open_report(a_report(), java_script_enabled=False)
    for title in ("hit its recompile limit", "keeps changing", "print() breaks Block.forward"):
        assert page.locator(".finding h3", has_text=title).is_visible()
    assert page.get_by_text("drop dynamic=False at train.py:31").first.is_visible()
    page.locator(".finding > summary").nth(2).click()
    assert page.locator(".finding mark").is_visible()
    notice = page.locator("noscript p").first.inner_text()
    assert notice == "The chart needs JavaScript; the table has the same content."
    for needs_script in ("#filter", "#timeline-chart", ".copy", ".controls"):
        assert not page.locator(needs_script).first.is_visible()


@pytest.mark.parametrize("attack", [*ATTACKS[:5], " ".join(ATTACKS)])
def test_hostile_names_are_harmless(open_report: Open, attack: str) -> None:
    page = open_report(a_report_of(attack))
    page.evaluate(OPEN_ALL)
    tags = "[...document.querySelectorAll('*')].map((e) => e.tagName + [...e.attributes].map((a) => a.name)).join()"
    plain = open_report(a_report_of("plain"))
    plain.evaluate(OPEN_ALL)
    assert page.evaluate(tags) == plain.evaluate(tags)


def test_the_page_prints_all_findings_and_no_controls(open_report: Open) -> None:
    page = open_report(a_report(), colour="dark")
    page.get_by_label("Code").select_option("TT101")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for away in ("nav", "#filter", ".controls", ".copy >> nth=0"):
        assert not page.locator(away).is_visible()
    for number in range(3):
        assert page.locator(".finding .facts").nth(number).is_visible()
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".finding[open]").count() == 3
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator(".finding[open]").count() == 1
    assert page.pdf().startswith(b"%PDF")


def test_every_control_and_picture_has_a_name_for_a_screen_reader(open_report: Open) -> None:
    page = open_report(a_report())
    page.evaluate(OPEN_ALL)
    tree = page.locator("body").aria_snapshot()
    roles = "button|link|textbox|searchbox|combobox|checkbox|radio|img|region|navigation|search|group|heading"
    named = re.findall(rf'^\s*- (?:{roles}) "', tree, re.M)
    assert len(named) > 40
    unnamed = [
        line.strip()
        for line in tree.splitlines()
        if re.match(rf"\s*- (?:{roles.replace('group|', '')})(?: \[|:|$)", line)
    ]
    assert unnamed == []
    for landmark in ("banner", "main", "navigation", "search", "contentinfo"):
        assert re.search(rf"- {landmark}\b", tree), landmark


def test_everything_can_be_reached_and_used_by_keyboard(open_report: Open) -> None:
    page = open_report(a_report())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the findings"
    assert page.evaluate("document.activeElement.getBoundingClientRect().top >= 0")
    reached = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(FOCUSED)
        reached.add(name)
        assert outline != "none", name
    controls = {"axis", "mark-before", "mark-after", "zoom-in", "zoom-out", "zoom-all"}
    assert controls | {"text", "code", "owner", "file", "severity", "open-all"} <= reached
    page.locator(".finding > summary").nth(1).focus()
    page.keyboard.press("Enter")
    assert page.locator(".finding").nth(1).evaluate("e => e.open")


def test_a_link_opens_its_finding(open_report: Open) -> None:
    page = open_report(a_report(), height=500)
    page.get_by_role("link", name="TT202 size-keeps-changing").first.click()
    finding = page.locator(f"#f-{STORM}")
    assert finding.evaluate("e => e.open")
    wait_until(
        page, "id => Math.abs(document.getElementById(id).getBoundingClientRect().top - 100) < 100", arg=f"f-{STORM}"
    )
    assert open_report(a_report(), at=f"#f-{STORM}").locator(f"#f-{STORM}").evaluate("e => e.open")


def test_the_rule_of_a_finding_is_one_click_away(open_report: Open) -> None:
    page = open_report(a_report())
    page.locator(".finding").first.get_by_role("link", name="TT301 recompile-limit-hit").click()
    assert page.locator("#rule-TT301").get_by_role("heading", name="Why it hurts").is_visible()


def test_the_fix_is_copied(open_report: Open) -> None:
    page = open_report(a_report(), permissions=["clipboard-read", "clipboard-write"])
    button = page.locator(".copy").first
    button.click()
    wait_until(page, "document.querySelector('.copy').textContent === 'Copied'")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("--- a/train.py\n+++ b/train.py\n")
    assert copied.endswith("+step = torch.compile(step)")


@pytest.mark.parametrize("report", [
    Report(findings=[]), Report(findings=[a_finding()]), a_report(findings=[]), a_report(history=History()),
    a_report(history=History(start=1.0)),
], ids=["nothing", "no history", "no findings", "empty history", "no events"])
def test_a_nearly_empty_report_opens_without_errors(open_report: Open, report: Report) -> None:
    page = open_report(report)
    assert page.locator("h1").is_visible()
    assert overflow(page) <= 0


@pytest.mark.parametrize(
    "source", ["traces/train-torch2.13.log", "traces/train-torch2.9.log", "logs/breaks-torch2.13.log"]
)
def test_a_report_of_a_real_trace_or_log_opens_without_errors(open_report: Open, source: str) -> None:
    path = RECORDINGS / source
    recording = read_traces([path]) if source.startswith("traces") else read_log(path.open())
    report = build_report(recording, with_history=True)
    page = open_report(report)
    assert page.locator(".finding").count() == len(report.findings) > 0
    assert page.locator(".frame").count() == len(report.history.frames)
    page.evaluate(OPEN_ALL)
    assert overflow(page) <= 0


@pytest.mark.parametrize("width", [1000, 390])
def test_the_short_form_fits_into_a_notebook(open_report: Open, width: int) -> None:
    body = notebook.render(long_names())
    page = open_report(f"<!doctype html><meta name=viewport content='width=device-width'><body>{body}", width=width)
    page.evaluate(OPEN_ALL)
    assert overflow(page) <= 0


def test_a_page_is_the_same_each_time() -> None:
    assert render(a_report()) == render(a_report())
