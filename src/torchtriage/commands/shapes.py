"""The `shapes` command."""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from torchtriage.commands.base import (
    add_baseline_flags,
    add_redact_flag,
    add_shared_flags,
    check_gate,
    exit_code_of,
    is_drawn,
    say,
    select_findings,
    settings,
    show,
)
from torchtriage.config import Config
from torchtriage.errors import CommandError
from torchtriage.launch import supervise
from torchtriage.launch.folders import free_folder
from torchtriage.text import path_from_here

if TYPE_CHECKING:
    from torchtriage.findings.shape_study import ShapeStudy
    from torchtriage.shapes.experiment import Measurement

DEFAULT_BUDGET = "10m"
MAX_ROUNDS = 50
FUNCTION = "::"


class ShapesCommand:
    """Measure a program under several shape policies and say which is best: static, automatic, dynamic, or only what varies.

    torchtriage shapes train.py --epochs 3                               a script, as it is: no edit needed
    torchtriage shapes model.py::decode --sizes 16,32,57x4               one function; decode_inputs(size) makes its arguments
    torchtriage shapes --budget 30m --steps 50000 train.py               longer, and for a run of so many steps

    The program is run again and again, each time in a process of its own with an empty compile cache: as written, with dynamic=False,
    None and True, with only the dimensions marked that vary, and more where it makes sense. The runs of a round take turns, so that what
    slows the machine down slows all of them alike. Rounds are repeated until the best policy is settled or the budget ends.
    """

    name = "shapes"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("-m", dest="module", action="store_true", help="run a module instead of a script")
        parser.add_argument("--budget", metavar="TIME", help=f"how long to measure, such as 90s, 10m or 1h (default: {DEFAULT_BUDGET})")
        parser.add_argument("--rounds", metavar="N", help=f"at most so many runs of each policy (default: {MAX_ROUNDS})")
        parser.add_argument("--steps", metavar="N", help="the steps (or calls) that the real run will have (default: those of the program)")
        parser.add_argument("--one-by-one", action="store_true", help=(
            "run the policies one after the other (default: in turns of 50 ms, where the program allows it)"
        ))
        parser.add_argument("--sizes", metavar="N,N,...", help="with FILE::FUNCTION: the sizes of its calls; 57x4 is 57, four times")
        parser.add_argument("--inputs", metavar="NAME", help=(
            "with FILE::FUNCTION: what makes the arguments for a size (default: FUNCTION_inputs, then make_inputs, of that file)"
        ))
        parser.add_argument("--repeat", metavar="N", help="with FILE::FUNCTION: calls of each size (default: 10)")
        parser.add_argument("--backend", metavar="NAME", help="compile with this backend in every run (default: the program's own)")
        add_redact_flag(parser)
        add_baseline_flags(parser)
        add_shared_flags(parser)
        parser.add_argument("command", nargs=argparse.REMAINDER, metavar="script.py args... | file.py::function")

    def run(self, args: argparse.Namespace, config: Config) -> int:
        if args.command and FUNCTION in args.command[0]:
            args = with_flags_behind(args)
            config = settings(args)
        check_gate(config, args)
        command = program_command(args)
        folder = free_folder(args.output or default_name(args.command), replace=args.force, flag="-o")
        with tempfile.TemporaryDirectory(prefix="torchtriage-shapes-", ignore_cleanup_errors=True) as work:
            previous = signal.signal(signal.SIGTERM, _end)
            try:
                study, found = measured(command, Path(work), args)
                keep(study, found, folder)
            except KeyboardInterrupt:
                raise CommandError("interrupted before the program had run once; nothing was measured", exit_code=130) from None
            finally:
                signal.signal(signal.SIGTERM, previous)
        code = self._report(folder, args, config)
        return 130 if found.is_interrupted else code

    def _report(self, folder: Path, args: argparse.Namespace, config: Config) -> int:
        from torchtriage.diagnosis.report import build_report
        from torchtriage.recording.reader import read_recording

        full = build_report(read_recording(folder), with_events=config.format == "json", with_history=is_drawn(config, None))
        report = select_findings(full, config, args)
        show(report, config, args, next_command=f"torchtriage report {path_from_here(folder)} -v")
        return exit_code_of(report, config, args)


def measured(command: list[str], work: Path, args: argparse.Namespace) -> tuple["ShapeStudy", "Measurement"]:
    """Run the experiment within its budget."""
    from torchtriage.shapes.budget import Budget, parse_duration
    from torchtriage.shapes.experiment import Experiment
    from torchtriage.shapes.policies import SOURCES
    from torchtriage.shapes.runs.environment import kept_stdin
    from torchtriage.shapes.runs.process import Program
    from torchtriage.shapes.verdict.study import study_of

    budget = Budget(seconds=parse_duration(args.budget or DEFAULT_BUDGET))
    users_sources = os.environ.get(SOURCES, "")
    max_rounds, num_planned = number(args.rounds, "--rounds", MAX_ROUNDS), number(args.steps, "--steps", 0)
    stdin, note = kept_stdin(work / "stdin")
    program = Program(command=command, folder=work, stdin=stdin, forced={"backend": args.backend} if args.backend else {})
    say(args, f"measuring shape policies for about {args.budget or DEFAULT_BUDGET}; the program's output is kept from the terminal")
    experiment = Experiment(
        program, budget, max_rounds=max_rounds, num_planned=num_planned, users_sources=users_sources, one_by_one=args.one_by_one,
        tell=lambda text: say(args, text),
    )
    found = experiment.measure()
    found.notes += [note] if note else []
    return study_of(found, args.command, spent_seconds=budget.spent, users_sources=users_sources), found


def keep(study: "ShapeStudy", found: "Measurement", folder: Path) -> None:
    """The recording of the last run as written, with the study in it."""
    from torchtriage.findings.shape_study import STUDY_FILE

    assert found.written is not None    # without a run as written there is no study
    recording = found.written.recording
    (recording / STUDY_FILE).write_text(json.dumps(study.to_dict(), indent=1), encoding="utf-8")
    try:
        shutil.copytree(recording, folder)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise CommandError(f"cannot write {folder}: {error}; name another with -o") from error


def program_command(args: argparse.Namespace) -> list[str]:
    """The command that every run starts."""
    from torchtriage.shapes.functions.driver import DEFAULT_REPEAT, parse_sizes

    if not args.command:
        raise CommandError("nothing to measure; try: torchtriage shapes train.py, or: torchtriage shapes model.py::decode --sizes 16,32")
    first = args.command[0]
    path, separator, function = first.partition(FUNCTION)
    if not args.module and not Path(path).is_file():
        raise CommandError(f"no script at {path}; give a Python script, a module with -m, or FILE.py::FUNCTION")
    if not separator:
        if args.sizes or args.inputs or args.repeat:
            raise CommandError(f"--sizes, --inputs and --repeat are for one function; name it: torchtriage shapes {first}::FUNCTION ...")
        return supervise.python_command(args.command, args.module)
    if not args.sizes:
        raise CommandError(f"{function} needs sizes to be called with; give them: torchtriage shapes {first} --sizes 16,32,57x4")
    parse_sizes(args.sizes)
    repeat = number(args.repeat, "--repeat", DEFAULT_REPEAT)
    words = ["torchtriage.shapes.functions.driver", path, function, args.sizes, args.inputs or "", str(repeat)]
    return supervise.python_command(words, module=True)


def with_flags_behind(args: argparse.Namespace) -> argparse.Namespace:
    """What stands behind FILE::FUNCTION is ours: there is no program whose own it could be."""
    parser = argparse.ArgumentParser(prog="torchtriage shapes")
    ShapesCommand().add_arguments(parser)
    first, *words = args.command
    found = parser.parse_args(words, namespace=argparse.Namespace(**{**vars(args), "command": []}))
    if found.command:
        raise CommandError(f"{' '.join(found.command)} behind {first} is no flag; one function takes none, its inputs come from --inputs")
    found.command = [first]
    return found


def number(text: str | None, flag: str, default: int) -> int:
    if text is None:
        return default
    if not text.replace(",", "").replace("_", "").isdigit() or int(text.replace(",", "")) < 1:
        raise CommandError(f"{flag} {text} is no number of 1 or more; give one such as {flag} 3")
    return int(text.replace(",", ""))


def default_name(command: list[str]) -> str:
    return f"{Path(command[0].partition(FUNCTION)[0]).stem}-shapes-{time.strftime('%Y%m%d-%H%M%S')}.triage"


def _end(received: int, frame: FrameType | None) -> None:
    """Asked to end: the child is stopped and the temporary folder removed on the way out."""
    sys.exit(128 + received)
