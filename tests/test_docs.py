"""The docs say what the program does: generated pages are current, transcripts come from real runs, the README stays short."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import command

ROOT = Path(__file__).parent.parent
NUMBER = re.compile(r"\d+(?:\.\d+)? (?:s|ms|us)\b")


def test_generated_pages_are_current() -> None:
    done = subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}run: make docs"


def test_the_readme_fits_on_a_few_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


@pytest.mark.parametrize("page", ["README.md", "docs/formats.md"])
def test_a_transcript_is_what_the_command_prints(page: str) -> None:
    text = (ROOT / page).read_text()
    transcripts = re.findall(r"```console\n\$ torchtriage ([^\n]+)\n(.*?)```", text, re.S)
    assert transcripts
    for words, printed in transcripts:
        done = command(ROOT, *words.split(), env={"COLUMNS": "100"})
        assert normal(done.stdout) == normal(printed)


def normal(text: str) -> str:
    """Without the times, which differ from run to run."""
    return NUMBER.sub("N", text).strip()


def test_every_link_in_the_docs_leads_somewhere() -> None:
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), ROOT / "examples" / "README.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page} links to {target}"


def test_every_review_finding_has_a_row_and_every_test_that_it_names_exists() -> None:
    text = (ROOT / "docs" / "review-findings.md").read_text()
    report = (ROOT / "tests" / "unit" / "tickets" / "seeds" / "batch7-pytorch.md").read_text()
    findings = set(re.findall(r"B7-[A-Z]{2}-\d\d", report))
    assert len(findings) == 21
    rows = re.findall(r"^\| (B\d-[A-Z]{2}-\d\d) .*$", text, re.M)
    assert sorted(rows) == sorted(findings | {"B7-PT-07", "B5-PT-06", "B8-PT-06"})
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text))
    assert len(named) > 30
    assert not [f"{path}::{name}" for path, name in named if not re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.M)]
