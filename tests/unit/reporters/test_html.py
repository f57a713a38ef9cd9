"""The complete HTML report: one file that loads nothing, in which text of the program never becomes markup."""

import base64
import hashlib
import itertools
import json
import math
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.unit.reporters.page import Page, data_of, words_of
from tests.unit.reporters.report_samples import a_history, a_report, three_findings
from tests.unit.samples import a_finding, sampled, source_lines, taps
from torchtriage.findings.history import (
    CompileEntry,
    Curve,
    FrameHistory,
    History,
    Link,
    Moment,
    MomentKind,
    ProcessHistory,
)
from torchtriage.findings.model import Check, CheckKind, Cost, CostKind, Evidence, Fix, Location, Owner, OwnerKind
from torchtriage.findings.report import Report
from torchtriage.reporters import notebook
from torchtriage.reporters.html import render
from torchtriage.reporters.html.data import NOT_FINITE
from torchtriage.reporters.html.markup import number, script_data

UNPRINTABLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def test_every_section_is_there_and_the_navigation_leads_to_it() -> None:
    page = Page(render(a_report()))
    sections = [attrs["id"] for tag, attrs in page.elements if tag == "section"]
    assert sections == [
        "verdict", "timeline", "findings", "frames", "health", "processes", "rules", "environment", "observed",
    ]


@pytest.mark.parametrize(
    "report", [a_report(), Report(findings=[]), Report(findings=three_findings()), a_report(findings=[])]
)
def test_every_link_has_a_target_and_every_id_is_unique(report: Report) -> None:
    page = Page(render(report))
    ids = page.all("id")
    assert not [name for name, times in Counter(ids).items() if times > 1]
    assert {href for href in page.all("href") if href[1:] not in ids} == set()
    assert {name for name in page.all("aria-labelledby") if name not in ids} == set()


def test_only_the_pages_own_style_and_script_may_load() -> None:
    text = render(a_report())
    page = Page(text)
    names = {name for _, attrs in page.elements for name in attrs}
    assert not {name for name in names if name.startswith("on")} | names & {"src", "srcset", "style", "action"}
    assert all(href.startswith("#") for href in page.all("href"))
    assert not re.search(r"@import|url\(|https?:", page.content("style") + page.content("script"))
    [policy] = [attrs["content"] or "" for tag, attrs in page.elements if "http-equiv" in attrs]
    assert policy.startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        [content] = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S)
        assert f"{tag}-src 'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'" in policy


def test_heading_levels_increase_one_at_a_time() -> None:
    levels = [int(tag[1]) for tag, _ in Page(render(a_report())).elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_every_control_and_picture_has_a_name() -> None:
    for tag, attrs in Page(render(a_report())).elements:
        if tag == "canvas" or (tag == "svg" and "aria-hidden" not in attrs):
            assert attrs.get("role") == "img"
            assert attrs.get("aria-label")
        if tag == "input":
            assert attrs.get("name")


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["/v/bin/python", "/app/train.py", "--lr", "1"], "train.py"),
        (["torchrun", "--nproc-per-node", "2", "train.py"], "train.py"),
        (["python", "-m", "package.train", "-m"], "package.train"),
        (["bash"], "bash"),
        ([], "run"),
        (None, "run"),
        ("train.py", "run"),
        ([""], "run"),
    ],
)
def test_the_title_is_the_program(argv: Any, name: str) -> None:
    assert f"<title>{name}: torchtriage report</title>" in render(Report(findings=[], run={"argv": argv}))


# What came from the program.

ATTACKS = [
    "</script><img src=x onerror=alert(1)>", "<script>alert(1)</script>", '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)", "<!-- ", "-->", "<![CDATA[", "&lt;b&gt;", "</style><style>*{display:none}</style>",
    "</title><h1>x</h1>", "</pre></details>", "javascript:alert(1)", "\u202egnp.exe", "\x1b[2J", "\x00", "\ud800",
    "\u2028", "a\rb\nc\td", "%3Cscript%3E", "]]>", "<plaintext>",
]


def a_report_of(word: str) -> Report:
    """A report in which everything that a program can name is this word."""
    place = Location(path=f"/{word}/a.py", line=3, function=f"f{word}")
    finding = a_finding(
        title=f"t{word}",
        cause=f"c{word}",
        fix=Fix(text=f"f{word}", edit=f"+x{word.replace(chr(10), '')}"),
        upstream=f"u{word}",
        location=place,
        raised_at=place,
        owner=Owner(kind=OwnerKind.LIBRARY, name=f"o{word}"),
        status=f"s{word}",
        cost=Cost(seconds=1.0, kind=CostKind.OBSERVED, note=f"n{word}"),
        verification=(Check(CheckKind.BY_HAND, f"v{word}"),),
        related=(f"r{word}",),
        evidence=Evidence(
            num_events=3,
            values=sampled(f"v{word}"),
            reasons=(f"r{word}",),
            compile_ids=(f"i{word}",),
            source=source_lines(f"s{word}", first=3, at=3),
            folded=(f"f{word}",),
            notes=(f"n{word}",),
        ),
    )
    frame = FrameHistory(
        name=f"n{word}", location=place, process=0, fingerprints=(f"x{word}",),
        compiles=(
            CompileEntry(compile_id=f"i{word}", time=0.0, values=((f"s{word}", f"a{word}"),)),
            CompileEntry(compile_id="0/1", time=1.0, failed=f"f{word}", guards_failed=(f"g{word}", f"h{word}"),
                    values=((f"s{word}", f"b{word}"),)),
        ),
        chain=(Link(is_break=False, label=f"l{word}", detail=f"d{word}", compile_id=f"i{word}", location=place),
               Link(is_break=True, label=f"b{word}", detail=f"d{word}", fingerprint=f"x{word}")),
    )
    history = History(
        start=1.0,
        seconds=2.0,
        frames=(frame,),
        processes=(ProcessHistory(name=f"a{word}"), ProcessHistory(name=f"b{word}")),
        moments=(
            Moment(
                kind=MomentKind.ANOMALY,
                time=0.5,
                process=0,
                step=1,
                label=f"l{word}",
                detail=f"d{word}",
                compile_id=f"i{word}",
            ),
        ),
        curves=tuple(
            Curve(name=f"{kind}{word}", process=0, steps=[1, 2], values=[1.0, 2.0]) for kind in ("loss", "grad_norm/")
        ),
    )
    return Report(
        findings=[finding],
        history=history,
        watched=taps(f"w{word}"),
        not_seen=taps(f"n{word}"),
        unused_suppressions=[f"u{word}"],
        run={
            "argv": [f"a{word}"],
            "cwd": f"c{word}",
            "torch": f"t{word}",
            "start": f"s{word}",
            f"k{word}": f"v{word}",
            "origin": f"o{word}",
            "environment": {f"E{word}": f"v{word}"},
            "exit_status": f"x{word}",
            "python": f"p{word}",
        },
    )


@pytest.mark.parametrize("attack", ATTACKS)
def test_text_of_the_program_never_becomes_markup(attack: str) -> None:
    text = render(a_report_of(attack))
    assert Page(text).shape == Page(render(a_report_of("plain"))).shape
    assert not UNPRINTABLE.search(text)
    text.encode()


@hypothesis_settings(deadline=None, max_examples=60)
@given(st.text(st.characters()))
def test_any_text_can_be_shown(word: str) -> None:
    text = render(a_report_of(word))
    assert Page(text).shape == Page(render(a_report_of("plain"))).shape
    assert not UNPRINTABLE.search(text)
    assert "<" not in re.findall(r'id="data">(.*?)</script>', text, re.S)[0]
    short = notebook.render(a_report_of(word))
    assert Page(short).shape == Page(notebook.render(a_report_of("plain"))).shape


@pytest.mark.parametrize("attack", ATTACKS)
def test_data_for_the_script_round_trips_and_cannot_end_it(attack: str) -> None:
    shown = script_data({"x": [attack]})
    assert not re.search("[<>&\u2028\u2029]", shown)
    assert json.loads(shown) == {"x": [attack]}


def test_invisible_characters_are_escaped() -> None:
    assert "a\\u202eb" in words_of(findings=[a_finding(title="a\u202eb")])


@pytest.mark.parametrize(
    "run",
    [
        {},
        {"argv": "train.py", "start": "yesterday", "environment": "none"},
        {"argv": [], "start": math.inf, "end": -1e30, "ranks": None},
        {"argv": [3], "cwd": None, "unknown": {"deep": [1]}},
    ],
)
def test_unusual_facts_of_a_run_are_shown_unchanged(run: dict[str, Any]) -> None:
    page = render(a_report(run=run))
    Page(page)      # it is well formed
    assert a_report().findings[0].title in page


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_not_an_error(value: float) -> None:
    history = replace(
        a_history(),
        seconds=None,
        moments=(Moment(kind=MomentKind.BREAK, time=value, process=0),),
        curves=tuple(
            Curve(name=name, process=0, steps=[1, 2], values=[value, 1.0])
            for name in ("step_seconds", "loss", "grad_norm/x")
        ),
    )
    data = data_of(render(a_report(history=history)))
    assert data["moments"]["kind"] == []
    assert data["moments"]["numLeftOut"] == 1
    assert data["lines"][0]["curves"][0]["values"] == [None, 1]
    assert data["heat"]["rows"] == [[NOT_FINITE, 1]]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (math.nan, None),
        (math.inf, None),
        (0.0, 0),
        (3.0, 3),
        (1.23456789, 1.235),
        (123456.7, 123500),
        (1e-9, 1e-9),
        (-2.5, -2.5),
    ],
)
def test_numbers_are_short(value: float | None, expected: float | None) -> None:
    assert number(value) == expected


def test_the_run_is_described() -> None:
    text = words_of()
    assert "train.py 2023-11-14 22:13:20 UTC 20.0 s torch 2.13.0 Python 3.11.7 exit status 0" in text
    assert "TORCH_LOGS recompiles" in text
    assert "Host box" in text
