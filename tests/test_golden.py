"""Every format of the report of every stored recording equals the file in `tests/golden`; `make golden` rewrites it."""

import difflib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchtriage import __version__
from torchtriage.commands.main import main

RECORDINGS = Path(__file__).parent / "recordings"
GOLDEN = Path(__file__).parent / "golden"
IS_REWRITING = os.environ.get("TORCHTRIAGE_GOLDEN") == "write"
SOURCES = sorted([*RECORDINGS.glob("*/*.log"), *RECORDINGS.glob("*/*.triage")])
FORMS = {
    "report.txt": ["--format", "text"],
    "verbose.txt": ["--format", "text", "-v"],
    "report.json": ["--format", "json", "--events"],
    "report.md": ["--format", "markdown"],
    "report.html": ["--format", "html"],
    "report.sarif": ["--format", "sarif"],
    "github.txt": ["--format", "github"],
}
READ_FROM_ENVIRONMENT = ("TORCHTRIAGE", "GITHUB_", "NO_COLOR", "FORCE_COLOR")
RECORDED_AT = 1_780_000_000     # a log's lines name no year; the time of its file does
MAX_DIFF_LINES = 40
MAX_DIFF_WIDTH = 240


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder, without settings, in UTC, with a terminal of 80 columns."""
    for name in list(os.environ):
        if name.startswith(READ_FROM_ENVIRONMENT):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield tmp_path
    time.tzset()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_the_report_equals_the_stored_one(
    source: Path, form: str, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = workplace / source.name
    if source.is_dir():
        shutil.copytree(source, copy)
    else:
        shutil.copy(source, copy)
        os.utime(copy, (RECORDED_AT, RECORDED_AT))
    status = main(["report", *FORMS[form], "--color", "never", source.name])
    output = capsys.readouterr()
    assert status == 0, output.err
    report = comparable(output.out, form, workplace)
    stored = stored_path(source, form)
    if IS_REWRITING:
        stored.parent.mkdir(parents=True, exist_ok=True)
        stored.write_text(report, encoding="utf-8")
    expected = stored.read_text(encoding="utf-8") if stored.exists() else ""
    if report != expected:
        pytest.fail(
            f"{difference(expected, report, stored)}\nif this is what a user should see: make golden", pytrace=False
        )


def test_every_stored_report_has_its_recording() -> None:
    wanted = {stored_path(source, form) for source in SOURCES for form in FORMS}
    for path in sorted(GOLDEN.glob("*/*/*")):
        if IS_REWRITING and path not in wanted:
            path.unlink()
        assert path in wanted or not path.exists(), f"{path} has no recording; make golden deletes it"


def stored_path(source: Path, form: str) -> Path:
    return GOLDEN / source.parent.name / source.stem / form


def comparable(report: str, form: str, workplace: Path) -> str:
    """The report without what changes with a version or a folder; a page also without its constant style and script."""
    report = report.replace(str(workplace), "WORKPLACE")
    if form == "report.sarif":
        report = report.replace(f'"{__version__}"', '"VERSION"')
    if form == "report.html":
        report = readable_page(report)
    return report if report.endswith("\n") else report + "\n"


def readable_page(page: str) -> str:
    """One tag per line, and one line per part of the data that the charts are drawn from."""
    page = re.sub(r"<style>.*?</style>", "<style>STYLE</style>", page, flags=re.DOTALL)
    page = re.sub(r"<script>.*?</script>", "<script>SCRIPT</script>", page, flags=re.DOTALL)
    page = re.sub(r"sha256-[\w+/=]+", "sha256-HASH", page)
    before, opening, rest = page.partition('<script type="application/json" id="data">')
    data, closing, after = rest.partition("</script>")
    parts = [f"{name}: {json.dumps(value, separators=(',', ':'))}" for name, value in json.loads(data).items()]
    return "\n".join([tag_per_line(before), opening, *parts, tag_per_line(closing + after)])


def tag_per_line(html: str) -> str:
    return html.replace("><", ">\n<")


def difference(expected: str, report: str, stored: Path) -> str:
    """A unified diff, cut short."""
    name = stored.relative_to(GOLDEN.parent).as_posix()
    lines = list(
        difflib.unified_diff(expected.splitlines(), report.splitlines(), name, "this report", n=1, lineterm="")
    )
    shown = [line[:MAX_DIFF_WIDTH] for line in lines[:MAX_DIFF_LINES]]
    if len(lines) > MAX_DIFF_LINES:
        shown.append(f"... {len(lines) - MAX_DIFF_LINES} more lines")
    return "\n".join(shown)
