"""Runs the commands of the transcripts in the docs and rewrites what they print; `--check` only compares.

A page is run from top to bottom in an empty folder that has the examples and the recordings of the tests in it:

- a block after `<!-- file: NAME -->` is written to that file,
- a `diff` block after `<!-- apply -->` is applied,
- in a `console` block every line that begins with `$ ` is run by the shell, and the lines below it are what it prints,
- `<!-- run: COMMAND -->` is run and its output is not shown.

Times differ from run to run: neither they nor the share of a run that they make up are compared.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = (
    "README.md",
    "docs/tutorial.md",
    "docs/case-studies/flex-attention-decode.md",
    "docs/guides/learning-health.md",
    "docs/guides/lint.md",
    "docs/guides/origin.md",
    "docs/guides/shapes.md",
    "docs/guides/review.md",
    "docs/guides/tickets.md",
    "docs/reference/formats.md",
    "skills/torch-compile-debug/SKILL.md",
)
BLOCK = re.compile(
    r"(?:<!-- (?P<action>file: (?P<name>\S+)|apply) -->\n+)?^```(?P<language>\w+)\n(?P<text>.*?)^```$"
    r"|<!-- run: (?P<hidden>.+?) -->", re.S | re.M,
)
COMMAND = re.compile(r"^\$ (?P<line>.+)\n(?P<printed>(?:(?!\$ ).*\n)*)", re.M)
VOLATILE = re.compile(r"\d+(?:\.\d+)? (?:s|ms|us)\b|(?<= in )\d+\.\d+s\b")
SHARE = re.compile(r"\d+% of this run was compiling: ")


def run_page(text: str, folder: Path) -> str:
    """The page with the output of its commands as they print it now."""

    def run_block(match: re.Match[str]) -> str:
        if match["hidden"]:
            shell(match["hidden"], folder)
            return match[0]
        if match["name"]:
            path = folder / match["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(match["text"], encoding="utf-8")
        elif match["action"]:
            subprocess.run(["git", "apply", "-"], cwd=folder, input=match["text"], text=True, check=True)
        if match["language"] != "console":
            return match[0]
        printed = COMMAND.sub(lambda command: run_command(command, folder), match["text"])
        return match[0].replace(match["text"], printed)

    return BLOCK.sub(run_block, text)


def run_command(match: re.Match[str], folder: Path) -> str:
    """The command with its output; the text of the page where only times differ."""
    printed = shell(match["line"], folder)
    if comparable(printed) == comparable(match["printed"]):
        printed = match["printed"]
    return f"$ {match['line']}\n{printed}"


def shell(line: str, folder: Path) -> str:
    ours = ("TORCHTRIAGE", "TORCH_LOGS", "TORCH_TRACE", "NO_COLOR", "FORCE_COLOR", "PYTEST")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', '')}"
    environment |= {"COLUMNS": "100", "OMP_NUM_THREADS": "1", "PATH": path}
    done = subprocess.run(line, shell=True, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, timeout=300)
    return "".join(f"{row}\n" for row in done.stdout.rstrip("\n").splitlines())


def comparable(text: str) -> str:
    """The text without times; lines are joined, because the width of a time decides where they are wrapped."""
    return " ".join(VOLATILE.sub("N", SHARE.sub("", text)).split())


def main() -> int:
    pages = [argument for argument in sys.argv[1:] if not argument.startswith("-")] or PAGES
    is_check, num_stale = "--check" in sys.argv, 0
    for page in pages:
        path = ROOT / page
        text = path.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "examples").symlink_to(ROOT / "examples")
            (Path(folder) / "tests").symlink_to(ROOT / "tests")
            current = run_page(text, Path(folder))
        if current == text:
            continue
        num_stale += 1
        if is_check:
            print(difference(text, current, page))
        else:
            path.write_text(current, encoding="utf-8")
            print(f"rewritten: {page}")
    return int(is_check and num_stale > 0)


def difference(old: str, new: str, page: str) -> str:
    import difflib

    return "\n".join(difflib.unified_diff(old.splitlines(), new.splitlines(), page, f"{page}, run again", lineterm=""))


if __name__ == "__main__":
    sys.exit(main())
