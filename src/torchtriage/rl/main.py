"""The program that `torchtriage train` starts: `python -m torchtriage.rl.main NAME CONFIG`.

It trains one seed, or starts itself once per seed.
"""

import argparse
import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

from torchtriage.errors import CommandError, TriageError
from torchtriage.rl.config import TrainConfig
from torchtriage.rl.progress import Progress
from torchtriage.rl.results import result_lines

SIGNALS = (signal.SIGINT, signal.SIGTERM)
POLL_SECONDS = 0.1


class Stop:
    """The first Ctrl-C (or SIGTERM) stops the training after the update, the second stops it at once."""

    def __init__(self) -> None:
        self.number = 0
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def __call__(self) -> bool:
        return bool(self.number)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.number:
            raise KeyboardInterrupt
        self.number = number
        # os.write, because the handler may interrupt a print.
        os.write(2, b"\ntorchtriage: stopping after this update, with a checkpoint; Ctrl-C again stops at once\n")


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 130 after Ctrl-C, 2 if the training could not begin, 1 if it could not continue."""
    parser = argparse.ArgumentParser(prog="python -m torchtriage.rl.main")
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--no-bar", action="store_true")
    parser.add_argument("name", help="name of the recording; the folders beside it are named after it")
    parser.add_argument("config", help="settings as JSON, by flag name")
    args = parser.parse_args(words)
    try:
        config = TrainConfig.from_json(args.config)
        return _seeds(config, args) if config.seeds > 1 else _one(config, args)
    except TriageError as error:
        print(f"torchtriage: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, CommandError) else 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _one(config: TrainConfig, args: argparse.Namespace) -> int:
    stop = Stop()
    if config.profile:
        # Above Kineto's highest level: otherwise its own lines mix with the progress.
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    from torchtriage.rl.trainer import Trainer  # imports torch, so only once the signal handlers are installed

    label = f"seed {config.seed}" if args.no_bar else ""
    with Progress(config.total_steps, label=label, quiet=args.quiet, bar=not args.no_bar) as progress:
        trainer = Trainer(config, say=progress.say, progress=progress, should_stop=stop, beside=args.name)
        try:
            results = trainer.train()
        except TriageError as error:
            raise error if isinstance(error, CommandError) else CommandError(str(error), exit_code=1) from error
    if not args.quiet:
        print("\n".join(result_lines(results)), file=sys.stderr, flush=True)
    return 128 + stop.number if stop.number else 0


def _seeds(config: TrainConfig, args: argparse.Namespace) -> int:
    """Run one process per seed, `jobs` at a time; the first one that fails decides the exit code.

    Each process joins the recording by itself.
    """
    stop = Stop()
    seeds = list(range(config.seed, config.seed + config.seeds))
    children: list[subprocess.Popen[bytes]] = []
    exit_code = 0
    while seeds or children:
        while seeds and not stop() and len(children) < config.jobs:
            children.append(_start(config, seeds.pop(0), args))
        if stop():
            seeds.clear()
        for child in [child for child in children if child.poll() is not None]:
            children.remove(child)
            exit_code = exit_code or (child.returncode if child.returncode >= 0 else 128 - child.returncode)
        time.sleep(POLL_SECONDS)
    return 128 + stop.number if stop.number else exit_code


def _start(config: TrainConfig, seed: int, args: argparse.Namespace) -> "subprocess.Popen[bytes]":
    def folder_of_seed(folder: str) -> str:
        return f"{folder}/seed-{seed}" if folder else ""

    seed_config = dataclasses.replace(
        config,
        seed=seed,
        seeds=1,
        jobs=1,
        checkpoint=folder_of_seed(config.checkpoint),
        resume=folder_of_seed(config.resume),
        jsonl=f"{config.jsonl}.seed-{seed}" if config.jsonl else "",
    )
    words = ["--no-bar", f"{args.name}-seed-{seed}", seed_config.to_json()]
    if args.quiet:
        words.insert(0, "--quiet")
    return subprocess.Popen([sys.executable, "-m", "torchtriage.rl.main", *words])


if __name__ == "__main__":
    sys.exit(main())
