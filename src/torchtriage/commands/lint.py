"""The `lint` command."""

import argparse
import os
from pathlib import Path

from torchtriage.commands.base import (
    add_baseline_flags,
    add_redact_flag,
    add_shared_flags,
    exit_code_of,
    select_findings,
    show,
)
from torchtriage.config import Config


class LintCommand:
    """Show what in the source will hurt: breaks, recompiles and costs of compiled code, before anything runs."""

    name = "lint"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "paths",
            nargs="*",
            metavar="PATH",
            help=("Python files, or folders that contain them (default: the working folder)"),
        )
        add_redact_flag(parser)
        add_baseline_flags(parser)
        add_shared_flags(parser)

    def run(self, args: argparse.Namespace, config: Config) -> int:
        from torchtriage.lint.check import lint

        paths = [Path(path) for path in args.paths or ["."]]
        report = select_findings(lint(paths, working_folder=os.getcwd()), config, args)
        show(report, config, args, path=args.output)
        return exit_code_of(report, config, args)
