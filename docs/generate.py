"""Writes docs/reference/rules.md and docs/reference/commands from the rule pages and the parser.

With `--check` it only compares.
"""

import argparse
import sys
from pathlib import Path

from torchtriage.commands.main import COMMANDS, build_parser
from torchtriage.findings import catalogue

REFERENCE = Path(__file__).parent / "reference"
FAMILIES = {
    "TT1": "graph breaks",
    "TT2": "recompiles",
    "TT3": "compile coverage and cost",
    "TT4": "gradients, weights, numerics",
    "TT5": "recurrent state",
    "TT6": "PPO",
    "TT7": "training and telemetry code",
    "TT9": "the recording itself",
}


def rules_page() -> str:
    lines = [
        "# Rules",
        "",
        "`torchtriage explain CODE` prints the page of a rule: an example, the fix, and when the fix is not safe.",
        "The last column says which rules `torchtriage lint` finds in the source, before a run.",
        "",
    ]
    for prefix, title in FAMILIES.items():
        lines += [f"## {prefix}xx: {title}", ""]
        lines += ["| code | severity | slug | what it finds | lint |", "|---|---|---|---|---|"]
        for rule in (catalogue.rule(code) for code in catalogue.codes() if code.startswith(prefix)):
            link = f"../../src/torchtriage/findings/rules/{rule.code}.md"
            lint = "yes" if rule.is_found_by_lint else ""
            lines.append(f"| [{rule.code}]({link}) | {rule.severity.name} | {rule.slug} | {rule.summary} | {lint} |")
        lines.append("")
    return "\n".join(lines)


def command_page(name: str, parser: argparse.ArgumentParser) -> str:
    """The help text and options of a command, followed by those of its actions, if it has any."""
    nested = next((a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction)), {})
    lines = [f"# torchtriage {name}", "", "```", parser.description or "", "```", "", *options_table(parser)]
    for action, sub in nested.items():
        lines += ["", f"## torchtriage {name} {action}", "", "```", sub.description or "", "```", ""]
        lines += options_table(sub)
    return "\n".join(lines) + "\n"


def options_table(parser: argparse.ArgumentParser) -> list[str]:
    lines = ["| option | meaning |", "|---|---|"]
    for action in parser._actions:
        names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        form = action.metavar or "|".join(map(str, action.choices or ()))
        value = f" {form}" if action.option_strings and form else ""
        cells = (f"`{names}{value}`", action.help or "the program, with its arguments")
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return lines


def pages() -> dict[Path, str]:
    texts = {REFERENCE / "rules.md": rules_page()}
    subparsers = next(a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    for name in COMMANDS:
        page = REFERENCE / "commands" / f"{name}.md"
        texts[page] = command_page(name, subparsers.choices[name])
    return texts


def main() -> int:
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv:
        print("\n".join(f"stale: {path}" for path in stale) or "docs are current")
        return int(bool(stale))
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
