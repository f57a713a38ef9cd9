"""What `torchtriage shapes` refuses before it runs anything, and how its words are read."""

import argparse
import sys
from pathlib import Path

import pytest

from tests.programs import write
from torchtriage.commands import shapes as module
from torchtriage.commands.main import main
from torchtriage.commands.shapes import parse_number, program_command, with_flags_after
from torchtriage.errors import CommandError


@pytest.mark.parametrize(("words", "message"), [
    ([], "nothing to measure; try: torchtriage shapes train.py"),
    (["nowhere.py"], "no script at nowhere.py"),
    (["nowhere.py::f", "--sizes", "3"], "no script at nowhere.py"),
    (["m.py::f"], "f needs sizes for its calls; give them: torchtriage shapes m.py::f --sizes 16,32,57x4"),
    (["m.py::f", "--sizes", "big"], "big is not a size"),
    (["m.py::f", "--sizes", "3", "--repeat", "none"], "--repeat none is not a number of 1 or more"),
    (["m.py::f", "--sizes", "3", "stray"], "stray after m.py::f is not a flag"),
    (["--sizes", "3", "m.py"],
     "--sizes, --inputs and --repeat are for one function; name it: torchtriage shapes m.py::FUNCTION"),
    (["--budget", "soon", "m.py"], "--budget soon is not a duration"),
    (["--rounds", "0", "m.py"], "--rounds 0 is not a number of 1 or more"),
    (["--steps", "many", "m.py"], "--steps many is not a number of 1 or more"),
])
def test_invalid_arguments_are_reported_before_anything_runs(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "", "m.py")
    assert main(["shapes", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert [path.name for path in tmp_path.iterdir()] == ["m.py"]


def arguments(words: list[str], monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    seen: list[argparse.Namespace] = []
    monkeypatch.setattr(module.ShapesCommand, "run", lambda self, args, config: seen.append(args) or 0)
    assert main(["shapes", *words]) == 0
    return seen[0]


def test_words_after_a_script_belong_to_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    args = arguments(["--budget", "5m", "train.py", "--budget", "9"], monkeypatch)
    assert (args.budget, args.command) == ("5m", ["train.py", "--budget", "9"])


def test_flags_after_a_function_belong_to_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "", "m.py")
    words = ["-q", "m.py::f", "--sizes", "4,8", "--budget", "1m", "--format", "json"]
    args = with_flags_after(arguments(words, monkeypatch))
    assert (args.quiet, args.sizes, args.budget, args.format, args.command) == (True, "4,8", "1m", "json", ["m.py::f"])
    assert program_command(args) == [
        sys.executable, "-m", "torchtriage.shapes.functions.driver", "m.py", "f", "4,8", "", "10",
    ]


@pytest.mark.parametrize(("text", "expected"), [("3", 3), ("50,000", 50_000), ("50_000", 50_000), (None, 7)])
def test_a_number_may_be_written_with_separators(text: str | None, expected: int) -> None:
    assert parse_number(text, "--steps", 7) == expected


@pytest.mark.parametrize("text", ["-1", "1.5", "", ","])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="is not a number"):
        parse_number(text, "--steps", 7)
