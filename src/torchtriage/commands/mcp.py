"""The `mcp` command."""

import argparse
import importlib.util

from torchtriage.config import Config
from torchtriage.errors import CommandError


class McpCommand:
    """Serve run, report, explain, lint and verify as tools of the Model Context Protocol, over stdin and stdout.

    A client starts it in the folder of the project, with the project's own Python: {"command": "torchtriage",
    "args": ["mcp"]}. The tools run programs with your rights; each has a time limit.
    """

    name = "mcp"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        del parser      # everything is an argument of a tool

    def run(self, args: argparse.Namespace, config: Config) -> int:
        if importlib.util.find_spec("mcp") is None:
            raise CommandError(
                "torchtriage mcp needs the package mcp, which is not installed here; pip install 'torchtriage[mcp]'"
            )
        try:
            from torchtriage.integrations.mcp.server import build_server
        except ImportError as error:    # mcp 1 has other names
            raise CommandError(
                f"torchtriage mcp needs mcp 2 or newer, and the installed one has another interface ({error}); "
                "pip install 'torchtriage[mcp]'"
            ) from error
        build_server().run("stdio")
        return 0
