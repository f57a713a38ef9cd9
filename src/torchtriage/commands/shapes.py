"""The `shapes` command."""

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import replace
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
from torchtriage.launch.folders import free_folder, remove_recording
from torchtriage.text import path_from_here

if TYPE_CHECKING:
    from torchtriage.findings.shape_study import ShapeStudy
    from torchtriage.shapes.experiment import Measurement

DEFAULT_BUDGET = "10m"
MAX_ROUNDS = 50
FUNCTION = "::"


class ShapesCommand:
    """Measure a program under several shape policies and report the best: static, automatic, dynamic or marked shapes.

    torchtriage shapes train.py --epochs 3                    a script; no edit needed
    torchtriage shapes model.py::decode --sizes 16,32,57x4    one function; decode_inputs(size) makes its arguments
    torchtriage shapes --budget 30m --steps 50000 train.py    measure for longer; the real run will have 50,000 steps

    The program runs repeatedly, each time in a separate process with an empty compile cache: unmodified, with
    dynamic=False, None and True, with only the varying dimensions marked, and with further policies where they make
    sense. The runs of a round take turns, so that a slowdown of the machine affects all of them equally. Rounds are
    repeated until the best policy is settled or the budget ends.
    """

    name = "shapes"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("-m", dest="module", action="store_true", help="run a module instead of a script")
        parser.add_argument("--budget", metavar="TIME", help=(
            f"how long to measure, such as 90s, 10m or 1h (default: {DEFAULT_BUDGET})"
        ))
        parser.add_argument("--rounds", metavar="N", help=f"maximum runs per policy (default: {MAX_ROUNDS})")
        parser.add_argument("--steps", metavar="N", help=(
            "length of the real run, in steps or calls (default: as measured)"
        ))
        parser.add_argument("--one-by-one", action="store_true", help=(
            "run the policies one after the other (default: in turns of 50 ms, if the program allows it)"
        ))
        parser.add_argument("--sizes", metavar="N,N,...", help=(
            "with FILE::FUNCTION: the sizes of its calls; 57x4 means 57, four times"
        ))
        parser.add_argument("--inputs", metavar="NAME", help=(
            "with FILE::FUNCTION: the function that makes the arguments for a size "
            "(default: FUNCTION_inputs, then make_inputs, of that file)"
        ))
        parser.add_argument("--repeat", metavar="N", help="with FILE::FUNCTION: calls per size (default: 10)")
        parser.add_argument("--backend", metavar="NAME", help=(
            "compile with this backend in every run (default: the program's own)"
        ))
        add_redact_flag(parser)
        add_baseline_flags(parser)
        add_shared_flags(parser)
        parser.add_argument("command", nargs=argparse.REMAINDER, metavar="script.py args... | file.py::function")

    def run(self, args: argparse.Namespace, config: Config) -> int:
        if args.command and FUNCTION in args.command[0]:
            args = with_flags_after(args)
            config = settings(args)
        check_gate(config, args)
        command = program_command(args)
        folder = free_folder(args.output or default_name(args.command), replace=args.force, flag="-o")
        with tempfile.TemporaryDirectory(prefix="torchtriage-shapes-", ignore_cleanup_errors=True) as work:
            previous = signal.signal(signal.SIGTERM, _end)
            try:
                study, measurement = measure(command, Path(work), args)
                save(study, measurement, folder)
            except KeyboardInterrupt:
                problem = "interrupted before the first complete run of the program; nothing was measured"
                raise CommandError(problem, exit_code=130) from None
            finally:
                signal.signal(signal.SIGTERM, previous)
        code = self._report(folder, args, config)
        return 130 if measurement.is_interrupted else code

    def _report(self, folder: Path, args: argparse.Namespace, config: Config) -> int:
        from torchtriage.diagnosis.report import build_report
        from torchtriage.recording.reader import read_recording

        with_events, with_history = config.format == "json", is_drawn(config, None)
        full = build_report(read_recording(folder), with_events=with_events, with_history=with_history)
        report = select_findings(full, config, args)
        show(report, config, args, next_command=f"torchtriage report {path_from_here(folder)} -v")
        return exit_code_of(report, config, args)


def measure(command: list[str], work: Path, args: argparse.Namespace) -> tuple["ShapeStudy", "Measurement"]:
    """Run the experiment within its budget."""
    from torchtriage.proof.budget import parse_duration
    from torchtriage.proof.runs.process import Program
    from torchtriage.proof.runs.surroundings import kept_stdin
    from torchtriage.reporters.shape_text import with_sentences
    from torchtriage.shapes.budget import Budget
    from torchtriage.shapes.experiment import Experiment
    from torchtriage.shapes.policies import SOURCES
    from torchtriage.shapes.verdict.study import study_of

    budget = Budget(seconds=parse_duration(args.budget or DEFAULT_BUDGET))
    users_sources = os.environ.get(SOURCES, "")
    max_rounds = parse_number(args.rounds, "--rounds", MAX_ROUNDS)
    num_planned = parse_number(args.steps, "--steps", 0)
    stdin, note = kept_stdin(work / "stdin")
    forced = {"backend": args.backend} if args.backend else {}
    program = Program(command=command, folder=work, stdin=stdin, forced=forced)
    say(args, f"measuring shape policies for about {args.budget or DEFAULT_BUDGET}; the program's output is not shown")
    experiment = Experiment(
        program, budget, max_rounds=max_rounds, num_planned=num_planned, users_sources=users_sources,
        one_by_one=args.one_by_one, say=lambda text: say(args, text),
    )
    measurement = experiment.measure()
    if note:
        measurement.notes.append(note)
    study = study_of(measurement, args.command, spent_seconds=budget.spent, users_sources=users_sources)
    return with_sentences(replace(study, standing=standing_findings(measurement))), measurement


def standing_findings(measurement: "Measurement") -> list[str]:
    """The codes of the P0 and P1 findings of the unmodified program, which no advice on policies may hide."""
    from torchtriage.diagnosis.diagnose import diagnose
    from torchtriage.findings.model import Severity
    from torchtriage.recording.reader import read_recording

    assert measurement.last_baseline is not None    # without a baseline run there is no study
    findings = diagnose(read_recording(measurement.last_baseline.recording))
    return list(dict.fromkeys(finding.code for finding in findings if finding.severity <= Severity.P1))


def save(study: "ShapeStudy", measurement: "Measurement", folder: Path) -> None:
    """Save the recording of the last baseline run, with the study in it."""
    from torchtriage.findings.shape_study import STUDY_FILE

    assert measurement.last_baseline is not None    # without a baseline run there is no study
    recording = measurement.last_baseline.recording
    (recording / STUDY_FILE).write_text(json.dumps(study.to_dict(), indent=1), encoding="utf-8")
    try:
        shutil.copytree(recording, folder)
    except FileExistsError as error:
        raise CommandError(f"{folder} exists by now; it is left alone, name another with -o") from error
    except OSError as error:
        with contextlib.suppress(OSError):
            remove_recording(folder)
        raise CommandError(f"cannot write {folder}: {error}; name another with -o") from error


def program_command(args: argparse.Namespace) -> list[str]:
    """The command that every run starts."""
    from torchtriage.shapes.functions.driver import DEFAULT_REPEAT, parse_sizes

    if not args.command:
        raise CommandError("nothing to measure; try: torchtriage shapes train.py, "
                           "or: torchtriage shapes model.py::decode --sizes 16,32")
    first = args.command[0]
    path, separator, function = first.partition(FUNCTION)
    if not args.module and not Path(path).is_file():
        raise CommandError(f"no script at {path}; give a Python script, a module with -m, or FILE.py::FUNCTION")
    if not separator:
        if args.sizes or args.inputs or args.repeat:
            raise CommandError("--sizes, --inputs and --repeat are for one function; "
                               f"name it: torchtriage shapes {first}::FUNCTION ...")
        return supervise.python_command(args.command, args.module)
    if not args.sizes:
        raise CommandError(f"{function} needs sizes for its calls; "
                           f"give them: torchtriage shapes {first} --sizes 16,32,57x4")
    parse_sizes(args.sizes)
    repeat = parse_number(args.repeat, "--repeat", DEFAULT_REPEAT)
    words = ["torchtriage.shapes.functions.driver", path, function, args.sizes, args.inputs or "", str(repeat)]
    return supervise.python_command(words, module=True)


def with_flags_after(args: argparse.Namespace) -> argparse.Namespace:
    """Flags after FILE::FUNCTION belong to torchtriage, since there is no program that could take them."""
    parser = argparse.ArgumentParser(prog="torchtriage shapes")
    ShapesCommand().add_arguments(parser)
    first, *words = args.command
    parsed = parser.parse_args(words, namespace=argparse.Namespace(**{**vars(args), "command": []}))
    if parsed.command:
        raise CommandError(f"{' '.join(parsed.command)} after {first} is not a flag; "
                           "a function takes no arguments, its inputs come from --inputs")
    parsed.command = [first]
    return parsed


def parse_number(text: str | None, flag: str, default: int) -> int:
    if text is None:
        return default
    digits = text.replace(",", "")
    if not digits.replace("_", "").isdigit() or int(digits) < 1:
        raise CommandError(f"{flag} {text} is not a number of 1 or more; give one such as {flag} 3")
    return int(digits)


def default_name(command: list[str]) -> str:
    return f"{Path(command[0].partition(FUNCTION)[0]).stem}-shapes-{time.strftime('%Y%m%d-%H%M%S')}.triage"


def _end(received: int, frame: FrameType | None) -> None:
    """Exit on SIGTERM, which stops the child process and removes the temporary folder."""
    sys.exit(128 + received)
