"""The `explain` command."""

import argparse
import difflib
import importlib.util
import json
import re
import textwrap
from pathlib import Path
from typing import Any

from torchtriage.commands.base import add_shared_flags, write_out
from torchtriage.config import Config
from torchtriage.errors import CommandError
from torchtriage.findings import catalogue


class ExplainCommand:
    """Explain a torchtriage rule (TT203, or its slug) or a PyTorch graph break (GB0059), or list all rules."""

    name = "explain"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("rule", nargs="?", metavar="TT203|GB0059", help="a code, a slug or a GB id")
        add_shared_flags(parser)

    def run(self, args: argparse.Namespace, config: Config) -> int:
        if args.rule is None:
            rules = [catalogue.rule(code) for code in catalogue.codes()]
            text = "".join(f"{rule.code}  {rule.severity.name}  {rule.slug}\n" for rule in rules)
        elif re.fullmatch(r"gb\d{4}", args.rule, re.I):
            text = graph_break_text(args.rule.upper())
        else:
            text = rule_page(args.rule)
        write_out(text)
        return 0


def rule_page(name: str) -> str:
    """The page of the rule with this code or slug."""
    by_slug = {catalogue.rule(code).slug: code for code in catalogue.codes()}
    code = by_slug.get(name.lower(), name.upper())
    try:
        rule = catalogue.rule(code)
    except KeyError:
        near = difflib.get_close_matches(name, [*catalogue.codes(), *by_slug], n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "list them with: torchtriage explain"
        raise CommandError(f"no rule {name!r}; {hint}") from None
    if code not in catalogue.ALSO_FOUND_BY_LINT:
        return rule.page
    return rule.page.replace(f"\n{rule.summary}\n", f"\n{rule.summary}\nAlso found by lint, before a run.\n", 1)


def graph_break_text(gb_id: str) -> str:
    """PyTorch's explanation of a graph break, read from the installed torch without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise CommandError(
            f"{gb_id} is explained by PyTorch's own registry, and torch is not installed here; pip install torch"
        )
    path = Path(spec.origin).parent / "_dynamo" / "graph_break_registry.json"
    try:
        registry: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"this torch has no readable graph-break registry at {path}: {error}") from error
    if gb_id not in registry:
        raise CommandError(
            f"no {gb_id} in the registry of the installed torch ({len(registry)} ids); it may come from another version"
        )
    entry = registry[gb_id]
    entry = entry[0] if isinstance(entry, list) else entry
    lines = [f"{gb_id}: {entry.get('Gb_type', '')}", ""]
    lines += textwrap.wrap(str(entry.get("Explanation") or ""), 100)
    for hint in entry.get("Hints") or ():
        lines += [f"  - {line}" for line in textwrap.wrap(str(hint), 96)]
    return "\n".join([*lines, "", f"(from PyTorch's registry, {path.name})"]) + "\n"
