"""Whatever a log or a trace holds, `report` reads it or refuses it."""

import os
import tracemalloc
from pathlib import Path

import pytest

from torchtriage.commands.report import MAX_LINE, read_source
from torchtriage.errors import CommandError

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


TRACES = Path(__file__).parents[2] / "recordings" / "traces"


def test_a_line_without_an_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    with (tmp_path / "train.log").open("wb") as file:
        file.truncate(30 * MAX_LINE)    # zeros
    tracemalloc.start()
    try:
        with pytest.raises(CommandError, match="is not a recording, a trace or a log of torch"):
            read_source(str(tmp_path / "train.log"))
        assert tracemalloc.get_traced_memory()[1] < 10 * MAX_LINE
    finally:
        tracemalloc.stop()


def test_links_and_pipes_in_a_folder_of_traces_are_left_out(tmp_path: Path) -> None:
    trace = next(TRACES.glob("*.log"))
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "other.log").symlink_to(trace)
    (folder / "endless.log").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe.log")
    with pytest.raises(CommandError, match="holds no recording and no trace"):
        read_source(str(folder))
    (folder / "own.log").write_bytes(trace.read_bytes())
    assert len(read_source(str(folder)).processes) == 1


def test_a_device_is_refused() -> None:
    with pytest.raises(CommandError, match="/dev/zero is a device"):
        read_source("/dev/zero")
