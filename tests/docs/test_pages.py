"""The pages of the docs are current, linked and short."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "examples" / "README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
]
PACKAGE = ROOT / "src" / "torchtriage"
STRUCTURE = [ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/internals/*.md"))]


def test_generated_pages_are_current() -> None:
    done = subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}run: make docs"


def test_the_readme_fits_on_a_few_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def test_every_link_in_the_docs_has_a_target() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page} links to {target}"


def test_every_review_finding_has_a_row_with_tests_that_exist() -> None:
    text = (ROOT / "docs" / "internals" / "review-findings.md").read_text()
    report = (ROOT / "tests" / "unit" / "tickets" / "seeds" / "batch7-pytorch.md").read_text()
    findings = set(re.findall(r"B7-[A-Z]{2}-\d\d", report))
    assert len(findings) == 21
    rows = re.findall(r"^\| (B\d-[A-Z]{2}-\d\d) .*$", text, re.M)
    assert sorted(rows) == sorted(findings | {"B7-PT-07", "B5-PT-06", "B8-PT-06"})
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text))
    assert len(named) > 30
    for path, name in named:
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.M), f"{path}::{name} does not exist"


RULES = sorted((PACKAGE / "findings" / "rules").glob("*.md"))


@pytest.mark.parametrize("page", [*PAGES, *RULES], ids=lambda page: str(page.relative_to(ROOT)))
def test_a_list_below_a_paragraph_has_a_blank_line_above_it(page: Path) -> None:
    """Without it the site shows the list as part of the paragraph; GitHub does not."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M)
    assert re.findall(r"^(?![ #|<]|- |\d+\. )\S.*\n(?=- |\d+\. )", text, re.M) == []


MAX_CELL = 200      # characters; a longer cell is a paragraph, and belongs below the table


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_table_cell_is_longer_than_200_characters(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    cells = [cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", row)]
    assert [cell for cell in cells if len(cell) > MAX_CELL] == []


@pytest.mark.parametrize("page", STRUCTURE, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_named_in_pages_about_the_tree_exist(page: Path) -> None:
    """`src/...`, `tests/...`, and files and folders of the package such as `capture/observer.py`."""
    named = re.findall(r"`((?:src|tests|docs|benchmarks|examples)/[\w./-]*|(?:\w+/)+\w+\.py)`", page.read_text())
    for path in named:
        assert "nnn" in path or (ROOT / path).exists() or (PACKAGE / path).exists(), path


def test_contributing_names_every_folder_of_the_package() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    folders = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")} - {"."}
    assert [folder for folder in sorted(folders) if f"| `{folder}` |" not in text] == []
