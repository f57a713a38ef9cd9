"""A recording with one damaged value loses that value and reports the loss; `report` never ends in a traceback."""

import functools
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from torchtriage.commands.main import main
from torchtriage.config import FORMATS
from torchtriage.recording.reader import LAUNCHER_FILE, STUDY_FILE

RUNS = sorted((Path(__file__).parents[2] / "recordings" / "runs").glob("*.triage"))
NAN, INFINITY = float("nan"), float("inf")
HUGE = 10**400      # float() of it overflows
WRONG: list[Any] = [
    None, True, False, 0, -1, 1.5, 10**30, HUGE, 2**63, 1e308, NAN, INFINITY, -INFINITY, "", "text", "1", "\ud800",
    "a\0b",
    "x" * 10_000, [], [None], [NAN], [["x"]], [0] * 1000, {}, {"x": None}, {"": {"y": []}}, {"eager": {"x": HUGE}},
]
NOT_JSON = ["", "{", "nul", "[1,]", "[" * 100_000, "9" * 10_000, '"\\ud800"', "\x00", "[" * 500 + "]" * 500]
# Table -> (its key, the columns to damage)
TABLES = {
    "events": ("id", ("kind", "time", "step", "rank", "pid", "compile_id", "payload")),
    "sources": ("rowid", ("path", "line", "first_line", "text", "qualname")),
    "series": ("rowid", ("name", "steps", "data")),
}
CELLS: list[Any] = [
    None, -1, 2**62, NAN, INFINITY, 1e308, "", "text", "\0", b"", b"\xff", b"\xff" * 7, b"\0\0\xc0\x7f" * 3,
]
DELETED = object()


@dataclass(frozen=True)
class Outcome:
    """How `torchtriage report` ended."""

    status: int
    stdout: str
    stderr: str


def report(folder: Path, *flags: str) -> Outcome:
    stdout, stderr = StringIO(), StringIO()
    with redirect_stdout(stdout), redirect_stderr(stderr):
        status = main(["report", str(folder), *flags])
    return Outcome(status, stdout.getvalue(), stderr.getvalue())


@functools.cache
def stored_facts(path: Path) -> dict[str, Any]:
    with closing(sqlite3.connect(path)) as db:
        return {key: json.loads(value) for key, value in db.execute("select key, value from facts")}


@functools.cache
def num_rows(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute(f"select count(*) from {table}").fetchone()[0])


def cell(path: Path, query: str) -> str:
    with closing(sqlite3.connect(path)) as db:
        return str(db.execute(query).fetchone()[0])


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside a JSON value, the value itself first."""
    yield path
    if isinstance(value, dict):
        items: Any = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        return
    for key, inner in items:
        yield from paths_in(inner, (*path, key))


def with_damage(value: Any, path: tuple[Any, ...], wrong: Any) -> Any:
    """A copy of a JSON value in which the value at `path` is wrong, or deleted."""
    if not path:
        return wrong
    key, *rest = path
    changed = value.copy()
    if not rest and wrong is DELETED:
        del changed[key]
    else:
        changed[key] = with_damage(value[key], tuple(rest), wrong)
    return changed


def damaged_json(data: st.DataObject, value: Any) -> str:
    """The text of a JSON value with one damage anywhere in it; garbage if the value itself would be deleted."""
    path = data.draw(st.sampled_from(list(paths_in(value))))
    wrong = data.draw(st.sampled_from([DELETED, *WRONG]))
    if not path and wrong is DELETED:
        return data.draw(st.sampled_from(NOT_JSON))
    return json.dumps(with_damage(value, path, wrong))


def assert_ends_normally(outcome: Outcome) -> None:
    assert "Traceback" not in outcome.stderr
    assert "internal error" not in outcome.stderr
    assert (outcome.status, outcome.stderr) == (0, "") or (outcome.status == 2 and outcome.stderr.count("\n") == 1)


def files_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.sqlite"))


@contextmanager
def copy_of(run: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(shutil.copytree(run, Path(folder) / run.name))


def execute(path: Path, statement: str, values: tuple[Any, ...]) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)


@settings(max_examples=120)
@given(st.data(), st.sampled_from(RUNS), st.sampled_from(FORMATS))
def test_one_damaged_fact_never_ends_a_report(data: st.DataObject, run: Path, form: str) -> None:
    name = data.draw(st.sampled_from(files_of(run)))
    facts = stored_facts(run / name)
    key = data.draw(st.sampled_from(sorted(facts)))
    value = damaged_json(data, facts[key])
    redact = data.draw(st.sampled_from([[], ["--redact"]]))
    with copy_of(run) as folder:
        execute(folder / name, "update facts set value = ? where key = ?", (value, key))
        assert_ends_normally(report(folder, "--format", form, "--events", "--verbose", *redact))


@settings(max_examples=60)
@given(st.data(), st.sampled_from([run for run in RUNS if (run / STUDY_FILE).exists()]), st.sampled_from(FORMATS))
def test_one_damaged_value_of_a_study_never_ends_a_report(data: st.DataObject, run: Path, form: str) -> None:
    text = damaged_json(data, json.loads((run / STUDY_FILE).read_text()))
    with copy_of(run) as folder:
        (folder / STUDY_FILE).write_text(text, encoding="utf-8", errors="surrogatepass")
        assert_ends_normally(report(folder, "--format", form, "--events", "--verbose"))


@settings(max_examples=120)
@given(st.data(), st.sampled_from(RUNS), st.sampled_from(FORMATS))
def test_one_damaged_row_never_ends_a_report(data: st.DataObject, run: Path, form: str) -> None:
    name = next(name for name in files_of(run) if name != LAUNCHER_FILE)
    table = data.draw(st.sampled_from([table for table in TABLES if num_rows(run / name, table)]))
    key, columns = TABLES[table]
    column = data.draw(st.sampled_from(columns))
    row = data.draw(st.integers(0, num_rows(run / name, table) - 1))
    where = f"{key} = (select {key} from {table} limit 1 offset {row})"
    value: Any = data.draw(st.sampled_from(CELLS))
    if column == "payload" and data.draw(st.booleans()):
        value = damaged_json(data, json.loads(cell(run / name, f"select payload from events where {where}")))
    with copy_of(run) as folder:
        try:
            execute(folder / name, f"update {table} set {column} = ? where {where}", (value,))
        except sqlite3.IntegrityError:      # the table refuses NULL here
            reject()
        assert_ends_normally(report(folder, "--format", form, "--events", "--verbose"))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("value", ["1e308", "[" * 100_000], ids=["huge", "deep"])
def test_a_time_without_a_date_is_left_out_and_reported(value: str, form: str) -> None:
    [run] = [run for run in RUNS if run.name.startswith("demo")]
    with copy_of(run) as folder:
        execute(folder / LAUNCHER_FILE, "update facts set value = ? where key = 'end'", (value,))
        assert_ends_normally(report(folder, "--format", form))
        page = json.loads(report(folder, "--format", "json").stdout)
    assert "end of the launcher is damaged and was left out" in [finding["title"] for finding in page["findings"]]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("time", [1e308, "text"])
def test_an_event_without_a_date_is_unparsed_and_reported(time: Any, form: str) -> None:
    [run] = [run for run in RUNS if run.name.startswith("demo")]
    name = next(name for name in files_of(run) if name != LAUNCHER_FILE)
    with copy_of(run) as folder:
        execute(folder / name, "update events set time = ? where id = 17", (time,))
        assert_ends_normally(report(folder, "--format", form))
        page = json.loads(report(folder, "--format", "json").stdout)
    assert "TT906" in [finding["code"] for finding in page["findings"]]
