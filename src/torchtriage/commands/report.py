"""The `report` command."""

import argparse
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from torchtriage.commands.base import (
    add_baseline_flags,
    add_redact_flag,
    add_shared_flags,
    exit_code_of,
    is_drawn,
    select_findings,
    show,
)
from torchtriage.config import Config
from torchtriage.errors import CommandError
from torchtriage.files import open_regular
from torchtriage.recording.recording import Recording
from torchtriage.text import counted

# The head of a line of torch's loggers, `V1115 23:29:16.365000 4711 torch/_dynamo/guards.py:1] [0/1] ...`.
_TORCH_LINE = re.compile(
    r"\b[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d{1,9} [^\]\n]{1,400}?\.py:\d{1,9}\]|torch/_(?:dynamo|inductor|functorch)/")
MAX_LINE = 1 << 20      # characters; a longer line, which no logger writes, is read as several


class ReportCommand:
    """Show the findings of a recording, of a trace or log of torch.compile, or of a log of scalars.

    A trace is a file or folder of TORCH_TRACE, a log the text of TORCH_LOGS (- reads stdin). Scalars are those of
    TensorBoard, progress.csv, JSON lines or trainer_state.json.
    """

    name = "report"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("source", metavar="RECORDING|TRACE|LOG|-", help=(
            "a .triage folder, a trace file or folder, a text log, - for a log on stdin, or the scalars that a "
            "training logged: a TensorBoard event file or folder, progress.csv, JSON lines, trainer_state.json"
        ))
        parser.add_argument("--events", action="store_true", help=(
            "with --format json: also list every graph break and recompile"
        ))
        add_redact_flag(parser)
        add_baseline_flags(parser)
        add_shared_flags(parser)

    def run(self, args: argparse.Namespace, config: Config) -> int:
        from torchtriage.diagnosis.report import build_report

        recording = read_source(args.source)
        full = build_report(recording, with_events=args.events, with_history=is_drawn(config, args.output))
        report = select_findings(full, config, args)
        show(report, config, args, path=args.output)
        return exit_code_of(report, config, args)


def read_source(source: str) -> Recording:
    """A recording from any source that `report` accepts."""
    from torchtriage.capture.readers.scalar_log import is_scalar_log, read_scalar_logs, scalar_logs
    from torchtriage.capture.readers.trace_file import is_trace, read_traces
    from torchtriage.recording.reader import is_recording, read_recording

    if source == "-":
        sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]  # a text stream always has it
        return _log(sys.stdin, "stdin", None)
    path = Path(source)
    if not path.exists():
        raise CommandError(
            f"nothing at {path}; give a .triage folder, a TORCH_TRACE file or folder, a TORCH_LOGS text log, a log of "
            "scalars (TensorBoard, CSV, JSON lines), or -"
        )
    if path.is_char_device() or path.is_block_device():
        raise CommandError(f"{path} is a device; give a file or a folder, or - for stdin")
    try:
        if is_recording(path):
            return read_recording(path)
        if path.is_dir():
            logs = scalar_logs(path)
            return read_scalar_logs(logs) if logs else read_traces(_trace_files(path))
        with path.open("rb") as file:
            head = file.read(1 << 16)
        if is_trace(head):
            return read_traces([path])
        if is_scalar_log(path, head):
            return read_scalar_logs([path])
        with path.open(encoding="utf-8", errors="replace") as text:
            return _log(text, str(path), time.gmtime(path.stat().st_mtime).tm_year)
    except OSError as error:
        problem = "permission denied" if isinstance(error, PermissionError) else error.strerror or error
        raise CommandError(f"cannot read {error.filename or path}: {problem}") from error


def _log(text: TextIO, name: str, year: int | None) -> Recording:
    """A text log; refused if no line of it is one of torch's, as "no findings" would then mean nothing."""
    from torchtriage.capture.readers.log_file import read_log

    num_lines = num_of_torch = 0

    def counted_lines() -> Iterator[str]:
        nonlocal num_lines, num_of_torch
        for line in iter(lambda: text.readline(MAX_LINE), ""):
            num_lines += bool(line.strip())
            num_of_torch += bool(_TORCH_LINE.search(line))
            yield line

    recording = read_log(counted_lines(), year=year)
    if num_lines and not num_of_torch and not any(process.events for process in recording.processes):
        raise CommandError(
            f"{name} is not a recording, a trace or a log of torch: none of its {counted(num_lines, 'line')} comes "
            "from torch; report reads a .triage folder, a TORCH_TRACE file or folder, or the output of a program run "
            "with TORCH_LOGS=graph_breaks,recompiles"
        )
    return recording


def _trace_files(folder: Path) -> list[Path]:
    from torchtriage.capture.readers.trace_file import is_trace

    traces = []
    for path in sorted(folder.rglob("*")):
        # A folder from elsewhere may have links to files of this machine, and pipes.
        if path.is_symlink() or not path.is_file():
            continue
        with open_regular(path) as file:
            if is_trace(file.read(1 << 16)):
                traces.append(path)
    if not traces:
        raise CommandError(
            f"{folder} holds no recording and no trace; make one with: torchtriage run SCRIPT.py, "
            f"or TORCH_TRACE={folder} python SCRIPT.py"
        )
    return traces
