"""The verdict, the findings and the rules of the HTML report, and its short form."""

import re

import pytest

from tests.unit.reporters.page import Page, words_of
from tests.unit.reporters.report_samples import LIMIT, STORM, a_report, three_findings
from tests.unit.samples import a_finding, sampled, taps
from torchtriage.findings import catalogue
from torchtriage.findings.model import Finding, SampledValue, Severity
from torchtriage.findings.report import Report
from torchtriage.integrations.watch import Seen
from torchtriage.reporters import notebook
from torchtriage.reporters.html import render
from torchtriage.reporters.html.findings import sparkline
from torchtriage.reporters.html.rules import to_html
from torchtriage.reporters.html.verdict import what_is_wrong, what_it_costs
from torchtriage.reporters.notebook import MAX_SHOWN


def test_the_verdict_has_the_worst_finding_the_costs_and_the_first_fix() -> None:
    text = words_of()
    assert "Policy.forward hit its recompile limit (8): 412 calls ran eager What it costs" in text
    assert "10.0 s of the run's 20.0 s (observed)" in text
    assert "TT301 at Policy.forward alone takes 23% of steady state (observed)" in text
    assert "The cost of 1 of 3 findings was not measured." in text
    assert "What to do first drop dynamic=False at train.py:31. See TT301." in text


def test_a_page_without_findings_lists_the_watched_taps() -> None:
    text = words_of(findings=[])
    assert "No findings" in text
    assert "Watched trace, steps Not seen skipped frames: gone" in text
    assert what_is_wrong(Report(findings=[])) == "Nothing was watched"


def test_the_duration_of_a_trace_is_not_called_that_of_the_run() -> None:
    text = words_of(run={"origin": "trace"})
    assert "10.0 s of the trace's 20.0 s (observed)" in text
    assert "The trace spans 20.0 s" in text


def test_mild_findings_are_called_mild() -> None:
    assert (
        what_is_wrong(Report(findings=[a_finding(severity=Severity.P3)]))
        == "Nothing worse than P3: print() breaks forward"
    )
    assert what_is_wrong(Report(findings=[a_finding(severity=Severity.P2)])) == "print() breaks forward"


def test_an_unknown_total_is_not_shown_as_zero() -> None:
    assert what_it_costs(Report(findings=[a_finding()])).startswith("Compile times are not known")
    assert what_it_costs(Report(findings=[], totals={"compile_seconds": 0.0})) == "Compiling took 0 s (observed)."
    tiles = Page(render(Report(findings=[], totals={"compiles": 0}))).text
    assert "compiles 0 recompiles not known" in tiles


def test_hidden_findings_are_counted() -> None:
    text = words_of(num_known=2, num_hidden=3, num_suppressed=4, unused_suppressions=["/app/a.py:3: ignore[TT101]"])
    assert (
        "2 known findings accepted by the baseline; 3 hidden by --select or --ignore; 4 suppressed by a comment" in text
    )
    assert "unused suppression: a.py:3: ignore[TT101]" in text


def test_a_finding_shows_all_its_fields() -> None:
    text = words_of(findings=[three_findings()[2]])
    for part in (
        "P3 TT101 print() breaks Block.forward not measured model.py:14 in forward timm 1.0", "14 print(y)",
        "Why builtin print GB0059", "Fix check it: may change the program's behaviour Copy move it out",
        "Included in this finding (1) resume at 14", "Notes (1) a note", "Raised at timm/x.py:9", "Seen 3 times",
        "Rule TT101 print-in-graph",
    ):
        assert part in text


def test_the_line_itself_is_marked() -> None:
    text = render(a_report())
    assert "<mark><i>14</i> print(y)</mark>" in text
    assert text.count("<mark>") == 1


def test_the_edit_is_a_diff_and_is_copied() -> None:
    text = render(a_report(findings=three_findings()[:1]))
    assert "<del>-step = torch.compile(step, dynamic=False)\n</del><ins>+step = torch.compile(step)\n</ins>" in text
    assert "<span>--- a/train.py\n</span><span>+++ b/train.py\n</span>" in text
    assert len([1 for _, attrs in Page(text).elements if "data-copied" in attrs]) == 1


def test_findings_come_in_their_order_and_only_the_first_is_open() -> None:
    elements = [attrs for tag, attrs in Page(render(a_report())).elements if attrs.get("class") == "finding"]
    assert [attrs["data-code"] for attrs in elements] == ["TT301", "TT202", "TT101"]
    assert ["open" in attrs for attrs in elements] == [True, False, False]


def test_related_findings_are_linked_and_absent_ones_are_not() -> None:
    text = render(a_report())
    assert f'<a href="#f-{STORM}">TT202 size-keeps-changing</a>' in text
    assert f'<a href="#f-{LIMIT}">TT301 recompile-limit-hit</a>' in text
    assert "gone" not in text.replace("skipped frames: gone", "")


def test_a_duplicate_or_odd_fingerprint_gets_a_number() -> None:
    findings = [a_finding(fingerprint=print_) for print_ in ("same", "same", "", "a b", "日本")]
    ids = [
        attrs["id"] for _, attrs in Page(render(Report(findings=findings))).elements if attrs.get("class") == "finding"
    ]
    assert ids == ["f-same", "f.1", "f.2", "f.3", "f.4"]


def test_each_rule_has_its_page_once_and_rules_link_to_each_other() -> None:
    again, unknown = a_finding("TT101", fingerprint="b"), a_finding("TT999", slug="not-yet", fingerprint="c")
    text = render(Report(findings=[*three_findings(), again, unknown]))
    assert text.count('id="rule-TT101"') == 1
    assert catalogue.rule("TT101").summary in Page(text).text
    assert '<a href="#rule-TT202">TT202</a>' in text.split('id="rule-TT301"')[1]
    assert 'href="#rule-TT999"' not in text
    assert "Rule TT999 not-yet" in Page(text).text


@pytest.mark.parametrize("code", catalogue.codes())
def test_a_rule_page_keeps_its_words_and_its_code(code: str) -> None:
    page = catalogue.rule(code).page
    html = to_html(page)
    shown = Page(f"<div>{html}</div>")
    for example in re.findall(r"```[^\n]*\n(.*?)```", page, re.S):
        assert example.rstrip() in shown.words
    parts = re.split(r"^```.*$", page.partition("\n")[2], flags=re.M)
    prose = [re.sub(r"`|^#+ |^- ", "", part, flags=re.M) for part in parts[::2]]
    words = "".join(f"{before}{example}" for before, example in zip(prose, [*parts[1::2], ""], strict=True))
    assert re.sub(r"\s", "", shown.text) == re.sub(r"\s", "", words)


def test_lists_and_code_in_a_page() -> None:
    page = "# T\n\nOne `a<b` two\nthree TT101.\n\n- x\n  y\n- `TT101` z\n\n## Next\n```python\nif x:\n    y\n```\n"
    assert to_html(page, linked={"TT101"}).split("\n") == [
        '<p>One <code>a&lt;b</code> two three <a href="#rule-TT101">TT101</a>.</p>',
        "<ul>", "<li>x y</li>", "<li><code>TT101</code> z</li>", "</ul>", "<h4>Next</h4>", "<pre>if x:", "    y</pre>",
    ]


@pytest.mark.parametrize(
    ("values", "is_drawn"),
    [
        (("1", "2", "3"), True),
        (("1", "2"), False),
        (("1", "2", "x"), False),
        (("1", "nan", "3"), False),
        (("5", "5", "5"), True),
        (("-1e308", "1e308", "0"), False),
    ],
)
def test_only_numbers_are_drawn_as_a_line(values: tuple[str, ...], is_drawn: bool) -> None:
    line = sparkline(sampled(*values))
    assert bool(line) is is_drawn
    assert "nan" not in line


def test_values_at_steps_are_drawn_at_their_steps() -> None:
    values = [SampledValue(text=str(n), number=n, step=step) for n, step in ((1.0, 0), (3.0, 90), (2.0, 100))]
    assert 'points="2.0,18.0 84.8,2.0 94.0,10.0"' in sparkline(values)


def test_values_of_several_parts_are_not_drawn_as_one_line() -> None:
    values = [SampledValue(text=str(n), number=float(n), part=f"size({n % 2})") for n in range(4)]
    assert sparkline(values) == ""


def test_a_finding_of_each_severity_has_its_badge() -> None:
    findings: list[Finding] = [a_finding(severity=severity, fingerprint=severity.name) for severity in Severity]
    text = render(Report(findings=findings))
    assert all(f'<span class="badge {severity.name}"' in text for severity in Severity)


def test_the_short_form_has_the_verdict_ten_findings_and_no_script() -> None:
    findings = [a_finding(fingerprint=str(n), title=f"finding {n}.") for n in range(MAX_SHOWN + 4)]
    text = notebook.render(Report(findings=findings, totals={"compile_seconds": 2.0}))
    page = Page(text)
    assert "script" not in {tag for tag, _ in page.elements}
    assert len(re.findall(r"finding \d+\.</summary>", text)) == MAX_SHOWN
    assert "4 more findings" in page.text
    assert "Compiling took 2.00 s (observed)." in page.text
    assert all(
        rule.startswith(".torchtriage")
        for rule in re.findall(r"(?:^|\})([^{}]+)\{", page.content("style").replace("\n", ""))
    )


def test_a_watched_block_shows_itself_in_a_notebook() -> None:
    assert Page(Seen()._repr_html_()).text.startswith("Nothing")


def test_the_short_form_without_findings_lists_the_watched_taps() -> None:
    assert (
        Page(notebook.render(Report(findings=[], watched=taps("trace", "steps")))).text
        == "No findings Watched: trace, steps."
    )
