"""docs/metrics.md lists the vocabulary of recording/series.py; `TORCHTRIAGE_GOLDEN=write` updates its tables."""

import os
import re
from pathlib import Path

from torchtriage.findings import catalogue
from torchtriage.recording.series import quantities

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"
IS_REWRITING = os.environ.get("TORCHTRIAGE_GOLDEN") == "write"
TABLE = re.compile(r"(<!-- series: ([^\n]+) -->\n).*?(<!-- end -->)", re.DOTALL)
MAX_CELL = 200


def table(section: str) -> str:
    """The quantities of a section, one per row."""
    rows = [("series", "meaning", "unit", "statistic", "healthy", "written by"), ("---",) * 6]
    for quantity in quantities(section):
        rows.append((
            f"`{quantity.pattern}`", quantity.meaning, quantity.unit, quantity.statistic, quantity.healthy,
            quantity.writer,
        ))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def test_the_tables_match_the_vocabulary() -> None:
    stored = PAGE.read_text()
    expected = TABLE.sub(lambda match: match[1] + table(match[2]) + match[3], stored)
    if IS_REWRITING:
        PAGE.write_text(expected)
    else:
        assert stored == expected, "write the tables with: TORCHTRIAGE_GOLDEN=write pytest tests/test_metrics_page.py"


def test_every_section_has_its_table() -> None:
    sections = [match[2] for match in TABLE.finditer(PAGE.read_text())]
    assert sections == list(dict.fromkeys(quantity.section for quantity in quantities()))


def test_every_learning_rule_has_a_row() -> None:
    codes = [code for code in catalogue.codes() if code.startswith(("TT4", "TT5", "TT6"))]
    assert re.findall(r"^\| (TT\d+) \|", PAGE.read_text(), re.MULTILINE) == codes


def test_no_cell_is_too_long_to_read() -> None:
    cells = [cell for line in PAGE.read_text().splitlines() if line.startswith("|") for cell in line.split(" | ")]
    assert [cell for cell in cells if len(cell) > MAX_CELL] == []
