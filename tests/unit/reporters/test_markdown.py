"""The Markdown summary: it fits into a comment, and text of the program becomes no markup and no mention."""

import html
import itertools
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.unit.samples import a_finding, source_lines, taps
from torchtriage.findings.model import (
    Check,
    CheckKind,
    Cost,
    CostKind,
    Evidence,
    Finding,
    Fix,
    Location,
    Owner,
    OwnerKind,
    Severity,
)
from torchtriage.findings.report import Report
from torchtriage.reporters.markdown import code, prose, render

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
GITHUB_LIMIT = 65_536


def text_of(*findings: Finding, **fields: Any) -> str:
    return render(Report(findings=findings, **fields))


def shown(markdown: str) -> str:
    """What a reader sees of inline Markdown, without the invisible spaces."""
    return html.unescape(re.sub(r"</?(?:p|code|span)>", "", PARSER.render(markdown))).strip("\n").replace("\u200b", "")


def kinds(markdown: str) -> set[str]:
    tokens: list[Token] = PARSER.parse(markdown)
    return {token.type for token in tokens} | {child.type for token in tokens for child in token.children or ()}


def by_hand(text: str) -> Check:
    return Check(CheckKind.BY_HAND, text)


def test_a_finding_has_title_place_cause_cost_and_fix() -> None:
    text = text_of(
        a_finding(
            upstream="GB0059",
            cost=Cost(seconds=61.2, kind=CostKind.OBSERVED),
            raised_at=Location(path="/v/site-packages/timm/x.py", line=9),
            owner=Owner(kind=OwnerKind.LIBRARY, name="timm", version="1.0"),
            ranks=(0, 1),
            verification=(by_hand("0 graph breaks"), by_hand("no eager call")),
            evidence=Evidence(source=source_lines("y = 1", "print(y)", first=13, at=14), folded=("resume of forward",)),
        ),
        run={"cwd": "/app", "torch": "2.13.0"},
        totals={"compiles": 2},
        not_seen=taps("caches"),
        num_known=1,
    )
    assert text == """\
**torchtriage: 1 finding (1 P3)**. First TT101: print() breaks forward

1 finding, 2 compiles, 0 recompiles, 0 graph breaks

| severity | code | finding | place | cost |
|---|---|---|---|---|
| P3 | TT101 | print() breaks forward | `model.py:14` | 61.2 s (observed) |

### TT101 P3: print() breaks forward

**Where:** `model.py:14` in `forward`; raised at `timm/x.py:9`; owner: timm 1.0; ranks 0, 1

**Why:** builtin print (GB0059)

```text
    13 | y = 1
>   14 | print(y)
```

**Cost:** 61.2 s (observed)

**Fix:** move it out

**With it:**

- resume of forward

**Verify:**

- [ ] 0 graph breaks
- [ ] no eager call

More: `torchtriage explain TT101`

---
- 1 known finding accepted by the baseline
- not seen: caches
- torch 2.13.0
"""


def test_a_cost_that_was_not_measured_says_so() -> None:
    assert "**Cost:** not measured\n" in text_of(a_finding())
    assert "**Cost:** not measured; no steps\n" in text_of(a_finding(cost=Cost(note="no steps")))


def test_a_long_note_on_the_cost_is_not_in_the_table() -> None:
    text = text_of(a_finding(cost=Cost(seconds=2.0, kind=CostKind.OBSERVED, note="long " * 20)))
    assert "| 2.00 s (observed) |" in text
    assert "**Cost:** 2.00 s (observed); long long" in text


def test_a_finding_without_a_place_has_none() -> None:
    text = text_of(a_finding(location=Location(path="unknown")))
    assert "**Where:**" not in text
    assert "| P3 | TT101 | print() breaks forward |  | not measured |" in text


def test_an_edit_is_shown_unchanged() -> None:
    assert "```text\n-print(y)\n+pass\n```" in text_of(a_finding(fix=Fix(text="drop it", edit="-print(y)\n+pass\n")))


def test_no_findings_lists_watched_and_missing_taps() -> None:
    text = text_of(watched=taps("steps", "trace"), not_seen=taps("caches"))
    assert text.startswith("**torchtriage: no findings**\n")
    assert "- watched: steps, trace\n- not seen: caches\n" in text
    assert "|---|" not in text


@pytest.mark.parametrize(
    "text",
    [
        "@octocat look", "mail a@b.c", "fixes #123", "owner/repo#5", "GH-12", "https://github.com/a/b/issues/1",
        "www.example.org", ":fire:", "$a$ and $b$", "<b>bold</b>", "<!-- x -->", "&amp;", "**bold** __init__ ~~x~~",
        "`code`", "[a](b)", "![a](b)", "a | b", "\\", "\\|", "- item", "1. item", "1) item", "1.5 s", "12.", "+ x",
        "# head", "> quote", "===", "---", "***", "```", "|---|---|", "[x]: y", "<script>alert(1)</script>",
    ],
)
def test_text_that_looks_like_markup_is_shown_unchanged(text: str) -> None:
    for markdown in (prose(text), f"- {prose(text)}"):
        assert kinds(markdown) <= {
            "paragraph_open", "paragraph_close", "inline", "text", "text_special", "html_inline", "bullet_list_open",
            "bullet_list_close", "list_item_open", "list_item_close",
        }
    assert shown(prose(text)) == text
    assert set(re.findall(r"<[^>]*>", prose(text))) <= {"<span>", "</span>"}


@pytest.mark.parametrize(
    ("text", "active"),
    [
        ("@octocat", r"@\w"),
        ("a@b.c", r"@\w"),
        ("#12", r"#\d"),
        ("a/b#12", r"#\d"),
        ("gh-12", r"(?i)gh-\d"),
        ("https://x.y", "://"),
        ("www.x.y", r"www\."),
        (":fire:", r":\w+:"),
    ],
)
def test_mentions_references_and_links_are_defused(text: str, active: str) -> None:
    """GitHub looks for mentions and references in the text that the Markdown gives, so a backslash would not help."""
    assert re.search(active, text)
    assert not re.search(active, html.unescape(PARSER.render(prose(text))))


@given(st.text(st.characters()))
def test_any_text_is_shown_as_the_terminal_would_show_it(text: str) -> None:
    from torchtriage.text import printable

    expected = printable(" ".join(text.split())).replace("\u200b", "")
    assert shown(prose(text)) == (expected if len(expected) <= 1_500 else shown(prose(text)))


@given(st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=50))
def test_any_name_is_one_code_span(name: str) -> None:
    [paragraph] = [token for token in PARSER.parse(f"x {code(name)}") if token.type == "inline"]
    spans = [child.content for child in paragraph.children or () if child.type == "code_inline"]
    assert [span.strip() for span in spans] == [name.strip()] or not name.strip()


MARKUP = st.text(st.sampled_from("|\\`*_[]<>@#&$-=: a1\n")) | st.text(st.characters())


@given(MARKUP, MARKUP, MARKUP)
def test_any_text_gives_a_table_of_five_columns(title: str, path: str, note: str) -> None:
    finding = a_finding(
        title=title,
        location=Location(path=path, line=3),
        cost=Cost(seconds=1.0, kind=CostKind.OBSERVED, note=note[:40]),
    )
    tokens = PARSER.parse(text_of(finding, finding))
    rows = "".join({"tr_open": "\n", "td_open": "d", "th_open": "h"}.get(token.type, "") for token in tokens).split()
    assert rows == ["hhhhh", "ddddd", "ddddd"]
    last = [cell.content for before, cell in itertools.pairwise(tokens) if before.type == "td_open"][-1]
    assert last.startswith("1.00 s (observed")      # a bar that ended a cell would push it out
    assert last.endswith(")")
    assert sum(token.type == "heading_open" for token in tokens) == 2


@given(st.lists(st.text(st.characters()), min_size=1, max_size=5))
def test_any_source_stays_in_its_block(lines: list[str]) -> None:
    tokens = PARSER.parse(text_of(a_finding(evidence=Evidence(source=source_lines(*lines)))))
    [block] = [token for token in tokens if token.type == "fence"]
    assert block.content.count("\n") == len(lines)
    assert sum(token.type == "heading_open" for token in tokens) == 1


@pytest.mark.parametrize("number", [1, 40, 200, 3000])
def test_the_summary_fits_into_a_comment_and_counts_the_rest(number: int) -> None:
    findings = [
        a_finding(title=f"finding {n}", cause="why " * 100, severity=Severity(min(4, n // 10))) for n in range(number)
    ]
    text = text_of(*findings, not_seen=taps("something"))
    assert len(text.encode()) < GITHUB_LIMIT
    sections = text.count("\n### ")
    assert sections > 0
    left = [int(digits.replace(",", "")) for digits in re.findall(r"^([\d,]+) findings? more .*in full", text, re.M)]
    assert left == ([number - sections] if sections < number else [])
    rows = len(re.findall(r"^\| P\d \|", text, re.M))
    not_in_table = [
        int(digits.replace(",", ""))
        for digits in re.findall(r"^([\d,]+) findings? more .*not in this table", text, re.M)
    ]
    assert not_in_table == ([number - rows] if rows < number else [])


@pytest.mark.parametrize("filler", ["x" * 1_000_000, "$" * 100_000, "\u0000" * 100_000, "日本" * 100_000])
def test_one_endless_text_does_not_fill_the_comment(filler: str) -> None:
    finding = a_finding(
        title=filler,
        cause=filler,
        fix=Fix(text=filler, edit=filler),
        location=Location(path=filler, function=filler),
        evidence=Evidence(source=source_lines(*[filler] * 99), folded=(filler,) * 99),
        verification=(by_hand(filler),) * 99,
    )
    text = text_of(finding, not_seen=taps(filler) * 99)
    assert len(text.encode()) < GITHUB_LIMIT
    assert "1 finding more" in text or "\n### " in text


def test_a_long_text_says_that_it_was_cut() -> None:
    assert re.search("word\\w*[.]{3}\n", text_of(a_finding(cause="word" * 1000)))
    assert "- 2 more\n" in text_of(a_finding(verification=(by_hand("check"),) * 12))
