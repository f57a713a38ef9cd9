"""The `demo` command."""

import argparse
import importlib.resources
from pathlib import Path

from torchtriage.commands.base import add_shared_flags, say
from torchtriage.commands.run import observe_and_report, prepared_folder
from torchtriage.config import Config
from torchtriage.launch import supervise


class Demo:
    """Run a small training loop with real torch.compile trouble in it, and show what torchtriage makes of it."""

    name = "demo"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--measure", action="store_true", help="also time the graph breaks")
        add_shared_flags(parser)

    def run(self, args: argparse.Namespace, config: Config) -> int:
        program = importlib.resources.files("torchtriage.demo") / "sick_policy.py"
        folder = prepared_folder(args.output or "demo.triage", force=args.force or args.output is None)
        with importlib.resources.as_file(program) as path:
            say(args, f"running {Path(path).name}, a policy with six hazards in it")
            return observe_and_report(supervise.python_command([str(path)], module=False), folder, args, config)
