"""Graph breaks and recompiles in the output of tlparse."""

import html
import re
from dataclasses import dataclass
from pathlib import Path

from common import clean_environment, run, tlparse

_PLACE = re.compile(r"Graph break in user code at (.+):(\d+)")
_GB_ID = re.compile(r"gb(\d{4})\.html")
_ROW = re.compile(r"<tr>\s*<td>\s*<a[^>]*>\[([^\]]+)\]</a>(.*?)</tr>", re.S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """Places of breaks: those that the summary page speaks of, and those on any of the artifact pages.

    `recompiles` has the compile id of each artifact page with reasons of a recompile.
    """

    in_summary: set[tuple[str, int]]
    in_artifacts: set[tuple[str, int]]
    num_break_pages: int
    recompiles: list[str]


def pages_of(trace: Path, out: Path) -> Pages:
    run([tlparse(), str(trace), "-o", str(out), "--no-browser"], clean_environment(), check=False)
    rows = summary_rows(out / "failures_and_restarts.html")
    break_pages = list(out.glob("*/dynamo_graph_break_reason_*.txt"))
    in_summary, in_artifacts = set(), set()
    for page in break_pages:
        text = page.read_text(errors="replace")
        place = _PLACE.search(text)
        if place is None:
            continue
        in_artifacts.add((place[1], int(place[2])))
        if (_compile_of(page), _gb_id(text)) in rows:
            in_summary.add((place[1], int(place[2])))
    return Pages(
        in_summary=in_summary,
        in_artifacts=in_artifacts,
        num_break_pages=len(break_pages),
        recompiles=[_compile_of(page) for page in out.glob("*/recompile_reasons_*")],
    )


def summary_rows(page: Path) -> set[tuple[str, str]]:
    """(compile id, GB id) of each row; a restart's row has no file and line."""
    if not page.exists():
        return set()
    return {
        (row[1].split("_")[0], _gb_id(html.unescape(row[2]))) for row in _ROW.finditer(page.read_text(errors="replace"))
    }


def _compile_of(page: Path) -> str:
    """`-_2_0_1/…` is frame 2, compile 0, attempt 1."""
    _, frame, number, _ = page.parent.name.rsplit("_", 3)
    return f"{frame}/{number}"


def _gb_id(text: str) -> str:
    match = _GB_ID.search(text)
    return match[1] if match else ""
