"""The shape study in a real browser: the table, the chart and the lines to paste, wide and narrow, light and dark."""

from typing import Any

import pytest

from tests.browser.conftest import Open, wait_until
from tests.browser.test_report_page import CONTRASTS, OPEN_ALL, overflow
from tests.unit.reporters import study_samples
from tests.unit.reporters.report_samples import a_report
from tests.unit.reporters.study_samples import clear_win, turning
from tests.unit.reporters.test_shape_forms import with_everything
from tests.unit.samples import a_finding
from torchtriage.findings.report import SHAPES

pytestmark = pytest.mark.thorough

# Every line and mark is drawn within its picture.
OUTSIDE = """() => [...document.querySelectorAll('.totals svg')].filter((s) => s.checkVisibility()).flatMap((svg) => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('path, circle, text')].map((e) => [e, e.getBoundingClientRect()])
    .filter(([, b]) => b.left < box.left - 1 || b.right > box.right + 1
                    || b.top < box.top - 1 || b.bottom > box.bottom + 1)
    .map(([e]) => e.outerHTML);
})"""


@pytest.mark.parametrize(("width", "colour"), [(1280, "light"), (390, "dark")])
@pytest.mark.parametrize("make", study_samples.ALL.values(), ids=study_samples.ALL)
def test_no_element_overflows_the_page(open_report: Open, make: Any, width: int, colour: str) -> None:
    page = open_report(a_report(shapes=make()), width=width, colour=colour)
    page.evaluate(OPEN_ALL)
    assert overflow(page) <= 0
    assert page.evaluate(OUTSIDE) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_long_names_do_not_overflow_the_page(open_report: Open, width: int) -> None:
    page = open_report(a_report(shapes=with_everything("very_long_name_" * 30)), width=width)
    assert overflow(page) <= 0


@pytest.mark.parametrize(("width", "kind"), [(1280, "wide"), (390, "narrow")])
def test_the_picture_that_fits_is_shown_with_legible_text(open_report: Open, width: int, kind: str) -> None:
    page = open_report(a_report(shapes=turning()), width=width)
    shown = page.locator(".totals svg").filter(visible=True)
    assert [shown.count(), shown.get_attribute("class")] == [1, kind]
    sizes = shown.locator("text").evaluate_all("all => all.map((e) => e.getBoundingClientRect().height)")
    assert len(sizes) > 5
    assert min(sizes) > 9


def test_each_policy_has_its_own_colour_in_line_and_legend(open_report: Open) -> None:
    page = open_report(a_report(shapes=turning()))
    lines = page.locator(".totals .wide .curve").evaluate_all("all => all.map((e) => getComputedStyle(e).stroke)")
    legend = page.locator(".totals .legend .kind").evaluate_all(
        "all => all.map((e) => getComputedStyle(e).backgroundColor)"
    )
    assert lines == legend
    assert len(set(lines)) == 3


@pytest.mark.parametrize("colour", ["light", "dark"])
def test_all_text_has_enough_contrast(open_report: Open, colour: str) -> None:
    page = open_report(a_report(shapes=study_samples.failures()), colour=colour)
    assert {name: ratio for name, ratio in page.evaluate(CONTRASTS).items() if ratio < 4.5} == {}


def test_the_study_is_readable_without_javascript(open_report: Open) -> None:
    page = open_report(a_report(shapes=turning()), java_script_enabled=False)
    section = page.locator("#shapes")
    assert section.get_by_text("train.py:9: torch.compile(step, dynamic=False)").is_visible()
    assert section.locator("table").first.is_visible()
    assert section.get_by_role("img").filter(visible=True).count() == 1
    assert not section.locator(".copy").is_visible()


def test_the_lines_to_paste_are_copied_unchanged(open_report: Open) -> None:
    page = open_report(a_report(shapes=study_samples.failures()), permissions=["clipboard-read", "clipboard-write"])
    page.locator("#shapes .copy").click()
    wait_until(page, "document.querySelector('#shapes .copy').textContent === 'Copied'")
    assert page.evaluate("navigator.clipboard.readText()") == "\n".join(study_samples.failures().advice.setting)


def test_a_finding_and_the_verdict_lead_to_the_study(open_report: Open) -> None:
    page = open_report(a_report(findings=[a_finding("TT202", related=(SHAPES,))], shapes=clear_win()), height=500)
    links = ("#verdict", "See shapes"), (".finding", "shape policies")
    for place, name in links:
        page.locator(place).get_by_role("link", name=name).click()
        wait_until(page, "Math.abs(document.getElementById('shapes').getBoundingClientRect().top - 60) < 60")


def test_hostile_names_are_harmless(open_report: Open) -> None:
    tags = "[...document.querySelectorAll('*')].map((e) => e.tagName + [...e.attributes].map((a) => a.name)).join()"
    pages = [
        open_report(a_report(shapes=with_everything(word)))
        for word in ("plain", "</script><img src=x onerror=alert(1)>\"'")
    ]
    assert pages[0].evaluate(tags) == pages[1].evaluate(tags)
