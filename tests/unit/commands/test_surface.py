"""The command line is frozen: adding, removing or renaming a flag is a change that users see."""

import argparse
from typing import Any

import pytest

from torchtriage.commands.change.fix import FixCommand
from torchtriage.commands.explain import ExplainCommand
from torchtriage.commands.main import COMMANDS, build_parser, command_named, main
from torchtriage.commands.run import RunCommand
from torchtriage.errors import CommandError, TriageError

SHARED = [
    "--color", "--fail-on", "--force", "--format", "--help", "--ignore", "--output", "--quiet", "--select", "--verbose",
    "-f", "-h", "-o", "-q", "-v",
]
TICKET = ["--folder", "--help", "--quiet", "-h", "-q"]
SURFACE = {
    "run": sorted(
        [*SHARED, "--baseline", "--html", "--measure", "--no-telemetry", "--redact", "--update-baseline", "-m"]
    ),
    "report": sorted([*SHARED, "--baseline", "--events", "--redact", "--update-baseline"]),
    "replay": sorted([*SHARED, "--budget", "--from", "--redact"]),
    "lint": sorted([*SHARED, "--baseline", "--fix", "--no-cache", "--recording", "--redact", "--update-baseline"]),
    "review": sorted(
        [
            "--apply", "--batch", "--domain", "--folder", "--help", "--ignore", "--min-severity", "--no-match",
            "--output", "--parameters", "--quiet", "--recording", "--select", "--verbose", "-h", "-o", "-q", "-v",
        ]
    ),
    "explain": sorted(SHARED),
    "mcp": ["--help", "-h"],
    "demo": sorted([*SHARED, "--measure"]),
    "fix": sorted(
        [*SHARED, "--apply", "--baseline", "--budget", "--label", "--steps", "--update-baseline", "--verify"]
    ),
    "verify": sorted(
        [
            "--after", "--before", "--budget", "--color", "--eager", "--fixes", "--force", "--format", "--help",
            "--locate", "--output", "--python", "--quiet", "--rev", "--seed", "--steps", "-f", "-h", "-o", "-q",
        ]
    ),
    "shapes": sorted(
        [
            *SHARED,
            "--backend", "--baseline", "--budget", "--inputs", "--one-by-one", "--redact", "--repeat", "--rounds",
            "--sizes", "--steps", "--update-baseline", "-m",
        ]
    ),
    "train": sorted(
        [
            *SHARED,
            "--baseline", "--compare-with", "--config", "--html", "--no-compile", "--redact", "--update-baseline",
            "--activation", "--batch", "--checkpoint", "--checkpoint-every", "--clip", "--clip-schedule",
            "--clip-value", "--compile", "--critic-lstm", "--no-critic-lstm", "--entropy", "--env", "--envs",
            "--epochs", "--eval-deterministic", "--no-eval-deterministic", "--eval-episodes", "--gae-lambda",
            "--gamma", "--hidden", "--jobs", "--jsonl", "--lr", "--lr-schedule", "--lstm", "--no-lstm", "--lstm-size",
            "--max-grad-norm", "--normalize-advantage", "--no-normalize-advantage", "--normalize-observation",
            "--no-normalize-observation", "--normalize-reward", "--no-normalize-reward", "--normalize-value",
            "--no-normalize-value", "--orthogonal", "--no-orthogonal", "--profile", "--no-profile", "--resume",
            "--seed", "--seeds", "--stepping", "--steps", "--target-kl", "--telemetry-level", "--threads",
            "--total-steps", "--value-coef",
        ]
    ),
    "ticket": ["--help", "-h"],
    "ticket new": sorted(
        [
            *TICKET,
            "--agent", "--apply", "--batch", "--category", "--domain", "--file", "--function", "--ignore", "--lines",
            "--lint", "--min-severity", "--no-match", "--select", "--severity", "--summary", "--title", "--verbose",
            "-v",
        ]
    ),
    "ticket list": sorted([*TICKET, "--format", "--severity", "--status"]),
    "ticket show": sorted([*TICKET, "--format"]),
    "ticket set": sorted([*TICKET, "--assignee", "--severity", "--status"]),
    "ticket review": sorted([*TICKET, "--evaluation", "--reviewer", "--role", "--verdict"]),
    "ticket import": sorted(TICKET),
    "ticket check": sorted([*TICKET, "--format"]),
    "ticket report": sorted([*TICKET, "--batch", "--output", "-o"]),
}


def subparsers(parser: argparse.ArgumentParser | None = None, prefix: str = "") -> dict[str, argparse.ArgumentParser]:
    """Every command, and every action of a command that has some."""
    parsers = {}
    for action in (parser or build_parser())._actions:
        for name, sub in action.choices.items() if isinstance(action, argparse._SubParsersAction) else ():
            parsers[f"{prefix}{name}"] = sub
            parsers |= subparsers(sub, f"{prefix}{name} ")
    return parsers


def test_the_commands_and_their_flags_are_these() -> None:
    surface = {
        name: sorted(o for action in parser._actions for o in action.option_strings)
        for name, parser in subparsers().items()
    }
    assert surface == SURFACE


def test_every_command_and_every_flag_has_help() -> None:
    for name in COMMANDS:
        assert command_named(name).name == name
        assert type(command_named(name)).__doc__
    for parser in subparsers().values():
        assert [action.dest for action in parser._actions if not action.help and action.dest != "command"] == []


def test_the_first_line_of_each_command_is_a_sentence() -> None:
    for parser in subparsers().values():
        assert (parser.description or "").split("\n")[0].endswith("."), parser.prog


def test_help_fits_into_80_columns_except_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for parser in subparsers().values():
        lines = [line for line in parser.format_help().splitlines() if not line.startswith("torchtriage ")]
        assert [line for line in lines if len(line) > 80] == []


def test_no_default_of_a_flag_overrides_the_configuration() -> None:
    for name, parser in subparsers().items():
        for action in parser._actions:
            assert action.default in (None, False, argparse.SUPPRESS), f"{name} {action.dest}"


@pytest.mark.parametrize(("words", "command", "is_plain"), [
    (["run", "train.py"], ["train.py"], False),
    (["run", "train.py", "-q", "--select", "x", "-o", "y"], ["train.py", "-q", "--select", "x", "-o", "y"], False),
    (["run", "-q", "train.py", "-v"], ["train.py", "-v"], False),
    (["run", "-m", "pkg.train", "--lr", "1"], ["pkg.train", "--lr", "1"], False),
    (["run", "train.py", "--", "x"], ["train.py", "--", "x"], False),
    (["run", "train.py", "a", "--", "--b"], ["train.py", "a", "--", "--b"], False),
    (["run", "--", "torchrun", "train.py"], ["torchrun", "train.py"], True),
    (["run", "-o", "x", "--measure", "--", "torchrun", "--", "y"], ["torchrun", "--", "y"], True),
    (["run", "--"], [], True),
    (["run"], [], False),
])
def test_arguments_are_split_between_torchtriage_and_the_program(
    words: list[str], command: list[str], is_plain: bool, monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[argparse.Namespace] = []
    monkeypatch.setattr(RunCommand, "run", lambda self, args, config: seen.append(args) or 0)
    assert main(words) == 0
    assert (seen[0].command, seen[0].plain_command) == (command, is_plain)


@pytest.mark.parametrize(
    "words", [[], ["dance"], ["report"], ["report", "x", "--format", "xml"], ["explain", "TT101", "--color", "pink"]]
)
def test_wrong_usage_is_exit_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage: torchtriage" in captured.err


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["run", "--help"],
        ["report", "-h"],
        ["explain", "-h"],
        ["demo", "-h"],
        ["train", "-h"],
        ["shapes", "-h"],
        ["--version"],
        ["ticket", "-h"],
        ["ticket", "set", "-h"],
    ],
)
def test_help_and_version_are_exit_0_on_stdout(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 0
    assert "torchtriage" in capsys.readouterr().out


@pytest.mark.parametrize(("error", "status", "text"), [
    (CommandError("no such thing; do this"), 2, "torchtriage: no such thing; do this\n"),
    (CommandError("refused", exit_code=5), 5, "torchtriage: refused\n"),
    (TriageError("damaged"), 2, "torchtriage: damaged\n"),
])
def test_an_expected_error_is_one_line(
    error: Exception, status: int, text: str, raising: Any, capsys: pytest.CaptureFixture[str],
) -> None:
    raising(error)
    assert main(["explain", "TT101"]) == status
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", text)


def test_an_internal_error_is_exit_2_and_never_looks_like_findings(
    raising: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(ZeroDivisionError("oops"))
    assert main(["explain", "TT101"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" in captured.err
    assert captured.err.endswith(
        "torchtriage: internal error, ZeroDivisionError: oops; please report it with the lines above\n"
    )


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the explain command raise."""
    def make(error: Exception) -> None:
        def run(self: Any, args: Any, config: Any) -> int:
            raise error

        monkeypatch.setattr(ExplainCommand, "run", run)

    return make


@pytest.mark.parametrize(("words", "flags"), [
    (["fix", "--verify", "train.py", "--steps", "5"], (None, None)),
    (["fix", "--verify", "train.py", "--budget", "5m", "--", "--steps", "5"], ("5m", None)),
    (["fix", "--steps", "9", "--verify", "train.py", "--", "--steps", "5"], (None, "9")),
])
def test_flags_of_fix_may_follow_the_script_where_two_dashes_end_them(
    words: list[str], flags: tuple[str | None, str | None], monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[argparse.Namespace] = []
    monkeypatch.setattr(FixCommand, "run", lambda self, args, config: seen.append(args) or 0)
    assert main(words) == 0
    assert seen[0].verify == ["train.py", "--steps", "5"]
    assert (seen[0].budget, seen[0].steps) == flags
