"""The `replay` command."""

import argparse
from pathlib import Path

from torchtriage.commands.base import add_redact_flag, add_shared_flags, exit_code_of, say, select_findings, show
from torchtriage.commands.shapes import parse_number
from torchtriage.config import Config
from torchtriage.errors import CommandError

DEFAULT_BUDGET = "1h"


class ReplayCommand:
    """Run a recorded program again to name the operation that made its first NaN or Inf.

    torchtriage replay train.triage             follow the steps in which the recording saw it appear
    torchtriage replay train.triage --from 1    follow all steps up to that one

    The program runs in a copy of its working folder, as it was recorded, up to those steps. They run eagerly, and each
    operation is followed, also in the backward pass and in the optimizer. If they are finite, the program runs once
    more as it is compiled. The result is kept in the recording, and is part of its report from then on.
    """

    name = "replay"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("source", metavar="RECORDING", help="a .triage folder whose training had NaN or Inf")
        parser.add_argument("--from", dest="first_step", metavar="STEP", help=(
            "the first step that is followed (default: the last one that was seen to be finite)"
        ))
        parser.add_argument("--budget", metavar="TIME", help=(
            f"how long the runs may take, such as 10m or 2h (default: {DEFAULT_BUDGET})"
        ))
        add_redact_flag(parser)
        add_shared_flags(parser)

    def run(self, args: argparse.Namespace, config: Config) -> int:
        from torchtriage.diagnosis.report import build_report
        from torchtriage.recording.reader import read_recording

        folder = Path(args.source)
        try:
            _find_origin(folder, args)
        except KeyboardInterrupt:
            raise CommandError("interrupted; nothing was found", exit_code=130) from None
        report = select_findings(build_report(read_recording(folder)), config, args)
        show(report, config, args, path=args.output)
        return exit_code_of(report, config, args)


def _find_origin(folder: Path, args: argparse.Namespace) -> None:
    from torchtriage.proof.budget import TimeLimit, parse_duration
    from torchtriage.proof.locate.replay import Replay, recorded_fault
    from torchtriage.proof.verify import work_folder
    from torchtriage.recording.facts import to_dict
    from torchtriage.recording.origins.origin import write_origin
    from torchtriage.recording.reader import is_recording, read_recording

    if not is_recording(folder):
        raise CommandError(f"{folder} is not a recording; make one with: torchtriage run SCRIPT.py")
    first_step = parse_number(args.first_step, "--from", 0) or None
    recording = read_recording(folder)
    fault = recorded_fault(recording, first_step)
    limit = TimeLimit(seconds=parse_duration(args.budget or DEFAULT_BUDGET))
    with work_folder() as work:
        replay = Replay(recording=recording, work=work, limit=limit, say=lambda text: say(args, text))
        origin = replay.find(fault)
    try:
        write_origin(folder, to_dict(origin))
    except OSError as error:
        raise CommandError(f"cannot write into {folder}: {error.strerror}") from error
