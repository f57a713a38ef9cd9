"""The numbers of a run are read from its recording; damage costs a line, not the run."""

import json
from pathlib import Path

from torchtriage.proof.numbers.rows import read_numbers


def step(number: int, loss: float) -> str:
    return json.dumps({
        "kind": "step", "optimizer": 0, "step": number, "time": 0.5, "losses": [[loss, 1e-7]], "draws": [1, 2, 3, 0],
        "gradients": {"w": [1.0, 1, 1, 1, 1, 1e-7]}, "weights": {"w": [2.0, 1, 1, 1, 1, 1e-7]}})


def test_rows_and_totals_are_read(tmp_path: Path) -> None:
    end = json.dumps({"kind": "end", "rank": None, "steps": 2, "graph_ops": 40, "graph_calls": 4, "eager_ops": 7})
    (tmp_path / "proof-7.numbers").write_text("\n".join([step(1, 0.5), step(2, 0.25), end]))
    numbers = read_numbers(tmp_path)
    assert [row.losses[0][0] for row in numbers.rows] == [0.5, 0.25]
    assert (numbers.num_steps, numbers.graph_ops, numbers.graph_calls, numbers.eager_ops) == (2, 40, 4, 7)


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "proof-7.numbers").write_text("\n".join([step(1, 0.5), step(2, 0.25)[:40], "[]", '{"kind": "step"}']))
    numbers = read_numbers(tmp_path)
    assert (len(numbers.rows), numbers.num_steps) == (1, 1)


def test_ranks_follow_each_other_in_order(tmp_path: Path) -> None:
    for pid, rank, loss in ((1, "1", 0.1), (2, "0", 0.2)):
        end = json.dumps({"kind": "end", "rank": rank, "steps": 1})
        (tmp_path / f"proof-{pid}.numbers").write_text(f"{step(1, loss)}\n{end}\n")
    numbers = read_numbers(tmp_path)
    assert ([row.losses[0][0] for row in numbers.rows], numbers.num_ranks) == ([0.2, 0.1], 2)


def test_a_recording_without_numbers_has_none(tmp_path: Path) -> None:
    assert not read_numbers(tmp_path).is_there
