"""A shape study in JSON, Markdown and the page, its chart, and the command that measures one."""

import dataclasses
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.unit.reporters import study_samples
from tests.unit.reporters.page import Page
from tests.unit.reporters.report_samples import a_report
from tests.unit.reporters.study_samples import (
    a_policy,
    a_size,
    clear_win,
    near,
    nothing_compiled,
    nothing_varies,
    turning,
)
from tests.unit.samples import a_finding
from torchtriage.findings.report import SHAPES, Report
from torchtriage.findings.shape_study import (
    Advice,
    Branch,
    Crossover,
    Interval,
    PolicyResult,
    ShapeStudy,
    policy_label,
)
from torchtriage.reporters import html, markdown, terminal
from torchtriage.reporters import json as json_reporter
from torchtriage.reporters.html.shape_chart import chart, totals
from torchtriage.reporters.shape_text import rows, verdict, with_sentences
from torchtriage.reporters.summary import measure_hint

EVERY = pytest.mark.parametrize("make", study_samples.ALL.values(), ids=study_samples.ALL)


@EVERY
def test_json_contains_the_complete_study(make: Any) -> None:
    data = json.loads(json_reporter.render(Report(findings=[], shapes=make())))
    read = ShapeStudy.from_dict(data["shapes"])
    assert json.loads(json.dumps(read.to_dict())) == json.loads(json.dumps(with_sentences(make()).to_dict()))
    assert "shapes" not in json.loads(json_reporter.render(Report(findings=[])))


@EVERY
def test_markdown_has_a_section_with_a_table(make: Any) -> None:
    text = markdown.render(a_report(shapes=make()))
    assert f"\n### Shapes: {verdict(make())}\n" in text
    table = [line for line in text.split("| severity")[0].splitlines() if line.startswith("|")]
    measured = [p for p in make().policies if not p.failed]
    assert len(table) == (2 + len(measured) if measured else 0)
    assert {line.count(" | ") for line in table} <= {6}


def test_markdown_keeps_the_lines_to_paste_unchanged() -> None:
    text = markdown.render(Report(findings=[], shapes=turning()))
    assert "```text\ntrain.py:9: torch.compile(step, dynamic=False)\n```" in text


def test_a_long_study_is_cut_to_fit_a_comment() -> None:
    study = clear_win(notes=("x" * 5000,) * 200, sizes=(a_size(why_not="y" * 3000),) * 200)
    text = markdown.render(a_report(shapes=study))
    assert len(text.encode()) <= markdown.MAX_BYTES
    assert "### TT301 P1" in text


def test_text_of_the_program_is_not_markup() -> None:
    study = clear_win(policies=(a_policy("<b>|@me|"),), notes=("<img src=x> @someone",))
    text = markdown.render(Report(findings=[], shapes=study))
    assert "<img" not in text
    assert "@someone" not in text
    assert "<b>" not in text


@EVERY
def test_the_page_contains_the_study_and_links_to_it(make: Any) -> None:
    page = Page(html.render(a_report(shapes=make())))
    assert [attrs["id"] for tag, attrs in page.elements if tag == "section"][:2] == ["verdict", "shapes"]
    assert page.all("href").count("#shapes") == 2      # navigation and verdict
    assert f"Shape policy: {verdict(make())}" in page.text
    for p in make().policies:
        assert policy_label(p.name) in page.text
        assert p.failed in page.text


def test_a_page_without_a_study_has_no_section_for_it() -> None:
    assert "shapes" not in Page(html.render(a_report(findings=[]))).all("id")


def test_a_finding_about_sizes_links_to_the_study() -> None:
    report = a_report(findings=[a_finding("TT202", related=(SHAPES,))], shapes=clear_win())
    assert Page(html.render(report)).all("href").count("#shapes") == 3
    assert '<a href="#shapes">' not in html.render(a_report(findings=[a_finding("TT202", related=(SHAPES,))]))


def test_hostile_names_are_text_in_the_page() -> None:
    bad = "</script><img src=x onerror=alert(1)>"
    plain, hostile = (html.render(a_report(shapes=with_everything(word))) for word in ("plain", bad))
    assert Page(plain).shape == Page(hostile).shape


def with_everything(word: str) -> ShapeStudy:
    return clear_win(
        command=(word,), unit=word,
        policies=(a_policy(word, overridden=(word,), notes=(word,)), a_policy("x", failed=word), a_policy("y")),
        advice=Advice(policy=word, text=word, setting=(word,), needs=word),
        crossovers=(Crossover(units=600, before=word, after=word),),
        branches=(Branch(question=word, answer=word, evidence=word),),
        sizes=(a_size(function=word, source=word, why_not=word, path=word),),
        by_function={word: word, "b": word}, notes=(word,), torch=word,
    )


def test_a_line_of_the_chart_is_startup_and_rate() -> None:
    drawn = {line.name: line for line in totals(turning())}
    assert drawn["dynamic=False"].startup == pytest.approx(40.0)
    assert drawn["dynamic=False"].at(100_000) == pytest.approx(70.0)
    assert not any(line.is_average for line in drawn.values())


def test_a_policy_that_compiles_until_the_end_is_drawn_by_its_mean() -> None:
    [line] = [line for line in totals(clear_win()) if line.name == "as written"]
    assert line.is_average
    assert line.at(100_000) == pytest.approx(103_676.0)


def test_the_crossover_is_marked_where_the_lines_meet() -> None:
    drawn = chart(turning())
    assert drawn.count('class="crossing"') == 2        # in the wide and in the narrow picture
    [x, y] = re.findall(r'c[xy]="([\d.]+)"', drawn)[:2]
    part = (41_000 / 100_000, (3.0 + 41_000 * 0.0012) / (1.05 * 123.0))     # of the width and of the height
    assert (float(x), float(y)) == pytest.approx((58 + part[0] * (900 - 88), 230 - part[1] * 216), abs=0.2)
    assert "dynamic=True is the fastest up to 41,000 steps, then dynamic=False" in drawn


def test_no_point_is_outside_the_chart() -> None:
    for make in study_samples.ALL.values():
        for width, picture in re.findall(r'viewBox="0 0 (\d+) 260">(.*?)</svg>', chart(make())):
            for x0, y0, x1, y1 in re.findall(r'd="M([\d.-]+) ([\d.-]+)L([\d.-]+) ([\d.-]+)"', picture):
                assert all(0 <= float(x) <= int(width) for x in (x0, x1))
                assert all(0 <= float(y) <= 260 for y in (y0, y1))


@pytest.mark.parametrize("study", [
    nothing_compiled(), clear_win(policies=()), clear_win(policies=(a_policy("as written"),)), clear_win(num_planned=0),
    clear_win(policies=(a_policy("a", total_seconds=near(float("nan"))), a_policy("b", total_seconds=None))),
    clear_win(policies=(a_policy("a", failed="x"), a_policy("b"))),
], ids=["nothing", "no policy", "one policy", "no units", "no totals", "one failed"])
def test_without_two_lines_there_is_no_chart(study: ShapeStudy) -> None:
    assert chart(study) == ""
    assert html.render(a_report(shapes=study))


@pytest.mark.parametrize("study", [
    clear_win(policies=(a_policy("a", 0.0, 0.0), a_policy("b", 0.0, 0.0))),
    clear_win(policies=[PolicyResult(name=str(n), total_seconds=Interval(middle=1.0 + n)) for n in range(9)]),
    clear_win(crossovers=(
        Crossover(units=0, before="x", after="y"), Crossover(units=10**15, before="dynamic=True", after="marked"),
    )),
], ids=["no time at all", "nine policies", "crossovers out of sight"])
def test_unusual_studies_are_drawn(study: ShapeStudy) -> None:
    assert "<svg" in chart(study)
    assert 'class="crossing"' not in chart(study)


SECONDS = st.none() | st.builds(
    Interval, middle=st.floats(), low=st.none() | st.floats(), high=st.none() | st.floats(),
)
COUNTS = st.integers(-2**63, 2**63)
POLICIES = st.builds(
    PolicyResult,
    name=st.sampled_from(["as written", "marked"]),
    num_runs=COUNTS,
    failed=st.sampled_from(["", "x"]),
    num_compiles=st.none() | COUNTS,
    num_eager_calls=COUNTS,
    compile_seconds=SECONDS,
    first_call_seconds=SECONDS,
    steady_seconds=SECONDS,
    peak_memory_bytes=st.none() | COUNTS,
    total_seconds=SECONDS,
    still_compiling=st.booleans(),
)


@hypothesis_settings(deadline=None, max_examples=60)
@given(st.lists(POLICIES, max_size=3), COUNTS, COUNTS, COUNTS, st.floats())
def test_any_numbers_are_shown_in_every_form(
    policies: list[PolicyResult], num_units: int, num_planned: int, crossing: int, spent: float,
) -> None:
    crossover = Crossover(units=crossing, before="as written", after="marked")
    study = clear_win(
        policies=policies, num_units=num_units, num_planned=num_planned, crossovers=(crossover,), seconds_spent=spent,
    )
    report = Report(findings=[], shapes=study)
    for text in (terminal.render(report), markdown.render(report), html.render(report), json_reporter.render(report)):
        assert "use dynamic=True" in text or '"dynamic=True"' in text


@pytest.mark.parametrize(("argv", "words"), [
    (["/v/bin/python3.11", "train.py", "--name", "a b"], "train.py --name 'a b'"), (["train.py"], "train.py"),
    (["C:\\Python\\python.exe", "train.py"], "train.py"), (["/v/bin/python", "/app/train.py"], "/app/train.py"),
    (["/v/bin/python", "-m", "package.train", "--lr", "1"], "-m package.train --lr 1"),
])
def test_a_finding_about_sizes_suggests_the_command_that_measures(argv: list[str], words: str) -> None:
    report = Report(findings=[a_finding("TT202")], run={"argv": argv})
    hint = f"to measure which shape policy is fastest: torchtriage shapes {words}"
    assert measure_hint(report) == hint
    assert terminal.render(report, next_command="x").splitlines()[-2:] == [hint, "next: x"]
    assert "torchtriage shapes" in markdown.render(report)
    assert "torchtriage shapes" in Page(html.render(report)).text


@pytest.mark.parametrize(
    "report",
    [
        Report(findings=[a_finding("TT101")], run={"argv": ["train.py"]}),
        Report(findings=[], run={"argv": ["train.py"]}),
        Report(
            findings=[a_finding("TT301", related=("b",)), a_finding("TT206", fingerprint="b")],
            run={"argv": ["train.py"]},
        ),
        Report(findings=[a_finding("TT301")], run={"argv": ["python"]}),
        Report(findings=[a_finding("TT301")]),
        Report(findings=[a_finding("TT301")], run={"argv": ["torchrun", "train.py"]}),
        Report(findings=[a_finding("TT301")], run={"argv": ["/v/site-packages/pytest/__main__.py", "tests"]}),
        Report(findings=[a_finding("TT301")], run={"argv": ["C:\\app\\train.py"]}),
        Report(findings=[a_finding("TT301")], run={"argv": ["train.py", "--api-key", "***"]}),
        Report(findings=[a_finding("TT301")], run={"argv": ["train.py", "--api-key=***"]}),
        Report(findings=[a_finding("TT301")], run={"argv": ["train.py", "s3://***@host/data"]}),
        Report(findings=[a_finding("TT301")], run={"argv": ["train.py"]}, shapes=nothing_varies()),
    ],
    ids=[
        "not about sizes",
        "no finding",
        "a limit that a counter led to",
        "no script",
        "not known",
        "another command",
        "run with -m",
        "run with -m on Windows",
        "a secret",
        "a secret in a word",
        "a secret in a URL",
        "measured",
    ],
)
def test_no_command_is_suggested_that_would_not_help_or_not_run(report: Report) -> None:
    assert measure_hint(report) == ""


def test_every_field_of_a_row_is_shown_in_every_table() -> None:
    """A column that is added to a row, and forgotten in a form, would be lost."""
    row = next(row for row in rows(turning()) if row.is_advised)
    cells = [value for value in dataclasses.asdict(row).values() if isinstance(value, str)]
    report = Report(findings=[], shapes=turning())
    for text in (
        terminal.render(report, width=140),
        markdown.render(report).replace("\\", ""),
        Page(html.render(report)).text,
    ):
        assert [cell for cell in cells if cell not in text] == []
