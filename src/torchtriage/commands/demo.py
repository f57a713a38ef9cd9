"""The `demo` command."""

import argparse
import importlib.resources

from torchtriage.commands.base import add_shared_flags, say
from torchtriage.commands.run import observe_and_report
from torchtriage.config import Config
from torchtriage.errors import CommandError
from torchtriage.launch import supervise
from torchtriage.launch.folders import free_folder
from torchtriage.text import path_from_here


class DemoCommand:
    """Run a small training loop that has real torch.compile problems, and report what torchtriage finds in it."""

    name = "demo"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--measure", action="store_true", help="also time the graph breaks")
        add_shared_flags(parser)

    def run(self, args: argparse.Namespace, config: Config) -> int:
        args.html = True
        is_default = args.output is None
        folder = free_folder(
            args.output or "torchtriage-demo/demo.triage", replace=args.force or is_default, flag="-o",
        )
        # A copy beside the recording: the user can read it, fix it and run it again.
        script = folder.parent / "sick_policy.py"
        source = importlib.resources.files("torchtriage.demo") / "sick_policy.py"
        try:
            script.parent.mkdir(parents=True, exist_ok=True)
            script.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
        except OSError as error:
            raise CommandError(
                f"cannot write {script}: {error.strerror}; run the demo in a folder that you can write to"
            ) from error
        shown = path_from_here(script)
        say(args, f"running {shown}, a small policy with real torch.compile problems")
        return observe_and_report(supervise.python_command([shown], module=False), folder, args, config)
