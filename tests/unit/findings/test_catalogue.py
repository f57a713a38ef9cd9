"""Every rule has a page of the fixed form, and every page has a rule that emits its code."""

import re
from collections import Counter
from pathlib import Path

import pytest

import torchtriage
from torchtriage.findings import catalogue

SOURCE = Path(torchtriage.__file__).parent
HEADINGS = ["What it is", "Why it hurts", "Example", "Fix", "When the fix is not safe", "How to verify"]
CODES = catalogue.codes()
EMITTED = {
    code
    for path in SOURCE.rglob("*.py")
    for code in re.findall(r"""["'](TT\d{3})["']""", path.read_text(encoding="utf-8"))
}


def headings(page: str) -> list[str]:
    """The second-level headings outside code blocks."""
    return re.findall(r"^## (.+)$", re.sub(r"^```.*?^```", "", page, flags=re.M | re.S), re.M)


def section(page: str, name: str) -> str:
    return re.split(r"^## ", page, flags=re.M)[headings(page).index(name) + 1].split("\n", 1)[1].strip()


def test_there_are_rules_of_every_family() -> None:
    assert {code[:3] for code in CODES} >= {"TT1", "TT2", "TT3", "TT9"}


@pytest.mark.parametrize("code", CODES)
def test_a_page_parses_and_is_named_by_its_code(code: str) -> None:
    rule = catalogue.rule(code)
    assert rule.code == code
    assert rule.page.startswith(f"# {code}: {rule.slug}\n")


@pytest.mark.parametrize("code", CODES)
def test_a_page_has_the_fixed_headings_in_order(code: str) -> None:
    page_headings = headings(catalogue.rule(code).page)
    assert page_headings[:len(HEADINGS)] == HEADINGS
    assert page_headings[len(HEADINGS):] in ([], ["See also"])


@pytest.mark.parametrize("code", CODES)
def test_no_section_of_a_page_is_empty(code: str) -> None:
    page = catalogue.rule(code).page
    assert [name for name in headings(page) if not section(page, name)] == []


@pytest.mark.parametrize("code", CODES)
def test_a_page_shows_code_before_and_after(code: str) -> None:
    example = section(catalogue.rule(code).page, "Example")
    assert example.index("Before:") < example.index("After:")
    assert example.count("```python") >= 2


@pytest.mark.parametrize("code", CODES)
def test_the_summary_is_one_sentence(code: str) -> None:
    summary = re.sub(r"`[^`]*`", "code", catalogue.rule(code).summary)
    assert summary.endswith(".")
    assert not re.search(r"[.!?] ", summary)
    assert summary[0].isupper() or summary.startswith("code")


@pytest.mark.parametrize("code", CODES)
def test_a_page_refers_only_to_rules_that_exist(code: str) -> None:
    assert set(re.findall(r"\bTT\d{3}\b", catalogue.rule(code).page)) <= set(CODES)


def test_slugs_are_unique() -> None:
    assert [slug for slug, number in Counter(catalogue.rule(code).slug for code in CODES).items() if number > 1] == []


def test_every_code_that_the_source_emits_has_a_page() -> None:
    assert sorted(set(EMITTED) - set(CODES)) == []


def test_every_page_is_about_a_code_that_the_source_emits() -> None:
    assert sorted(set(CODES) - set(EMITTED)) == []


def test_a_code_that_does_not_exist_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        catalogue.rule("TT000")


@pytest.mark.parametrize("text", [
    "", "# TT101: print-in-graph", "# TT101: Print In Graph\n\nP3 · torch.compile compatibility\n\nA print.\n",
    "# TT101: print-in-graph\n\nP5 · torch.compile compatibility\n\nA print.\n",
    "# TT101: print-in-graph\n\nP3 · no such category\n\nA print.\n",
    "# TT101: print-in-graph\n\nP3 · torch.compile compatibility\n",
])
def test_a_malformed_page_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        catalogue.parse_page(text)


@pytest.mark.parametrize("code", ["TT101" * 1000, "../../../README", "", "TT101\n"])
def test_what_is_not_the_name_of_a_rule_reads_no_file(code: str) -> None:
    with pytest.raises(KeyError):
        catalogue.rule(code)
