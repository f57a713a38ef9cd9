"""The `train` command."""

import argparse
import importlib.util
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchtriage.commands.base import add_baseline_flags, add_redact_flag, add_shared_flags, check_gate, complain
from torchtriage.commands.run import add_html_flag, check_page_is_free, observe_and_report
from torchtriage.config import Config, train_table
from torchtriage.errors import CommandError
from torchtriage.launch import supervise
from torchtriage.launch.folders import free_folder
from torchtriage.rl.config import CHECKPOINTS, DEFAULTS, FIELDS, TrainConfig, checked, from_file, parsed, resolved
from torchtriage.rl.results import Results, comparison, summary

GROWTH = "growth"


class TrainCommand:
    """Train a policy with PPO, compiled and watched, and report the findings.

    torchtriage train                                  CartPole-v1 with the settings of RL Zoo
    torchtriage train --env CartPoleNoVel-v1           with an LSTM, as the environment hides the velocities
    torchtriage train --seeds 10 --jobs 2 --html       ten seeds, a summary, and their curves on one page
    torchtriage train --resume train-a.checkpoint      continue a stopped run

    Settings, each overriding the one before: the environment's published ones, [tool.torchtriage.train] in
    pyproject.toml, --config, flags.
    """

    name = "train"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        group = parser.add_argument_group("settings")
        for name, one in FIELDS.items():
            _add_flag(group, name, one.metadata["help"], one.metadata["choices"])
        group.add_argument(
            "--no-compile", dest="compile", action="store_const", const="no", help="same as --compile no"
        )
        parser.add_argument("--config", metavar="FILE.toml", help="read settings from a file, one key per setting")
        parser.add_argument("--compare-with", metavar="RECORDING", help=(
            "report whether return and speed differ from an earlier training"
        ))
        add_html_flag(parser)
        add_redact_flag(parser)
        add_baseline_flags(parser)
        add_shared_flags(parser)

    def run(self, args: argparse.Namespace, config: Config) -> int:
        check_gate(config, args)
        train = settings(args)
        _check_installed(train)
        if train.resume and not any(Path(train.resume).glob(f"**/{CHECKPOINTS}")):
            raise CommandError(
                f"no checkpoint in {train.resume}; make one with: torchtriage train --checkpoint {train.resume}"
            )
        earlier = _earlier_results(Path(args.compare_with)) if args.compare_with else []
        name = f"train-{train.env.replace('/', '-')}-{time.strftime('%Y%m%d-%H%M%S')}.triage"
        folder = free_folder(args.output or name, replace=args.force, flag="-o")
        check_page_is_free(folder, args)
        words = [str(folder.with_suffix("")), train.to_json()]
        if args.quiet:
            words.insert(0, "--quiet")
        command = supervise.python_command(["torchtriage.rl.main", *words], module=True)
        # The training has its own monitor, and a progress bar instead of the status line.
        code = observe_and_report(command, folder, args, replace(config, telemetry=False), status=False, not_begun=2)
        if not args.quiet and folder.exists():
            _print_summary(_results(folder), earlier, args.compare_with)
        return code


def settings(args: argparse.Namespace) -> TrainConfig:
    """The settings of pyproject.toml, --config and the flags of this call."""
    table, path = train_table(Path.cwd())
    layers = [checked(table, f"[tool.torchtriage.train] of {path}")]
    if args.config:
        layers.append(from_file(Path(args.config)))
    flags = {}
    for name in FIELDS:
        value = getattr(args, name)
        if value is not None:
            flags[name] = parsed(name, value, _flag(name))
    return resolved(*layers, flags)


def _add_flag(group: Any, name: str, text: str, choices: tuple[str, ...]) -> None:
    default = DEFAULTS[name]
    if isinstance(default, bool):
        group.add_argument(
            _flag(name),
            action=argparse.BooleanOptionalAction,
            default=None,
            help=f"{text} (default: {_default_text(default)})",
        )
    elif name == "compile":
        group.add_argument(_flag(name), nargs="?", const="yes", choices=choices, help=f"{text} (default: {default})")
    else:
        metavar = None if choices else {int: "N", float: "X", tuple: "N,N"}.get(type(default), "TEXT")
        type_ = str.upper if name == "telemetry_level" else str
        if default != "":
            text += f" (default: {_default_text(default)})"
        group.add_argument(_flag(name), metavar=metavar, choices=choices or None, type=type_, help=text)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _default_text(default: Any) -> str:
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return f"{default:,}" if isinstance(default, int) else str(default)


def _check_installed(train: TrainConfig) -> None:
    if importlib.util.find_spec("torch") is None:
        raise CommandError(
            "training needs torch, which is not installed; install it with: pip install 'torchtriage[torch]'"
        )
    if train.env != GROWTH and importlib.util.find_spec("gymnasium") is None:
        raise CommandError(
            "environments come from gymnasium, which is not installed; install it with: pip install 'torchtriage[rl]'"
        )


def _results(folder: Path) -> list[Results]:
    """The results of every training in a recording that ran to its end."""
    from torchtriage.recording.reader import read_recording
    from torchtriage.recording.validation import WrongTypeError, checked

    results = []
    for process in read_recording(folder).processes:
        if process.training is None or not process.training.results:
            continue
        try:
            results.append(checked(process.training.results, Results))
        except WrongTypeError:
            name = process.name or "a training"
            complain(f"the results of {name} in {folder} are damaged and left out")
    return results


def _earlier_results(folder: Path) -> list[Results]:
    from torchtriage.recording.reader import is_recording

    if not is_recording(folder):
        raise CommandError(f"no recording at {folder}; make one with: torchtriage train -o {folder}")
    results = _results(folder)
    if not results:
        raise CommandError(
            f"{folder} contains no results of a training; compare with a recording that torchtriage train made"
        )
    return results


def _print_summary(results: list[Results], earlier: list[Results], name: str | None) -> None:
    lines = summary(results) if len(results) > 1 else []
    if earlier and results:
        lines += comparison(results, earlier, name or "")
    if lines:
        print("\n".join(lines), file=sys.stderr, flush=True)
