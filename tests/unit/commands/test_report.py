"""Whatever a log or a trace holds, `report` reads it or refuses it."""

from pathlib import Path

import pytest

from torchtriage.commands.report import read_source

PREFIX = "V1115 23:29:16.365000 4711 "


@pytest.mark.parametrize("line", [
    PREFIX + "a" * 500_000,
    PREFIX + "a" * 500_000 + ".py:1] [0/0] [__recompiles] Recompiling function f",
    PREFIX + "torch/_dynamo/x.py:1] Skipping frame " + " a" * 100_000,
    PREFIX + "torch/_dynamo/x.py:1] [0/0] [__recompiles] Recompiling function " + "f in " * 100_000,
    PREFIX * 5000,
], ids=range(5))
def test_a_very_long_line_of_a_log_is_read(tmp_path: Path, line: str) -> None:
    text = "V1115 23:29:16.365000 4711 torch/_dynamo/guards.py:1] [0/1] [__recompiles] Recompiling function g in a.py:3"
    (tmp_path / "train.log").write_text(f"{line}\n{text}\n")
    [process] = read_source(str(tmp_path / "train.log")).processes
    assert "g" in [getattr(event, "function", "") for event in process.events]
