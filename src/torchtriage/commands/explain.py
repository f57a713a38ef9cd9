"""The `explain` command."""

import argparse
import difflib
import importlib.util
import json
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchtriage.commands.base import add_shared_flags, write_json, write_out
from torchtriage.config import Config
from torchtriage.errors import CommandError
from torchtriage.findings import catalogue

SCHEMA = 1      # of the JSON


class ExplainCommand:
    """Explain a torchtriage rule (TT203, or its slug) or a PyTorch graph break (GB0059), or list all rules."""

    name = "explain"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("rule", nargs="?", metavar="TT203|GB0059", help="a code, a slug or a GB id")
        add_shared_flags(parser)

    def run(self, args: argparse.Namespace, config: Config) -> int:
        is_json = config.format == "json"
        if args.rule is None:
            rules = [catalogue.rule(code) for code in catalogue.codes()]
            facts: dict[str, Any] = {"rules": [_head_facts(rule) for rule in rules]}
            text = "" if is_json else "".join(f"{rule.code}  {rule.severity.name}  {rule.slug}\n" for rule in rules)
        elif re.fullmatch(r"gb\d{4}", args.rule, re.I):
            facts = graph_break_facts(args.rule.upper())
            text = "" if is_json else graph_break_text(facts)
        else:
            rule = rule_named(args.rule)
            facts = rule_facts(rule)
            text = "" if is_json else rule_page(rule)
        if is_json:
            write_json({"schema": SCHEMA, **facts})
        else:
            write_out(text)
        return 0


def rule_named(name: str) -> catalogue.Rule:
    """The rule with this code or slug."""
    by_slug = {catalogue.rule(code).slug: code for code in catalogue.codes()}
    code = by_slug.get(name.lower(), name.upper())
    try:
        return catalogue.rule(code)
    except KeyError:
        near = difflib.get_close_matches(name, [*catalogue.codes(), *by_slug], n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "list them with: torchtriage explain"
        raise CommandError(f"no rule {name!r}; {hint}") from None


def rule_page(rule: catalogue.Rule) -> str:
    """The page of a rule, with the options that were tried."""
    page = rule.page
    if rule.code in catalogue.ALSO_FOUND_BY_LINT:
        page = page.replace(f"\n{rule.summary}\n", f"\n{rule.summary}\nAlso found by lint, before a run.\n", 1)
    return f"{page.rstrip()}\n{tried_text(rule.code)}"


def rule_facts(rule: catalogue.Rule) -> dict[str, Any]:
    """The page of a rule by its headings."""
    headings = re.findall(r"^## (.+)$", rule.page, re.M)
    tried = [
        {"option": each.option, "torch": list(each.torch), "program": each.program}
        for each in catalogue.tried_options(rule.code)
    ]
    return {**_head_facts(rule), "sections": {name: rule.section(name) for name in headings}, "tried": tried}


def _head_facts(rule: catalogue.Rule) -> dict[str, Any]:
    return {
        "code": rule.code, "slug": rule.slug, "severity": rule.severity.name, "category": str(rule.category),
        "summary": rule.summary, "found_by_lint": rule.is_found_by_lint,
    }


def tried_text(code: str) -> str:
    """The options that were applied to a program, each with its versions of torch; empty if none was."""
    options = catalogue.tried_options(code)
    if not options:
        return ""
    lines = [
        "", "## Tried",
        "Applied to programs of benchmarks/advice_cases: the finding was gone, and the result was the same unless the",
        "option says that it changes. An option that is missing here was not tried.",
    ]
    for option in options:
        versions = ", ".join(option.torch)
        words = f"- {option.option} (tried on torch {versions}; {option.program})"
        lines += textwrap.wrap(words, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def graph_break_facts(gb_id: str) -> dict[str, Any]:
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
    return {
        "id": gb_id, "type": str(entry.get("Gb_type", "")), "explanation": str(entry.get("Explanation") or ""),
        "hints": [str(hint) for hint in entry.get("Hints") or ()], "source": path.name,
    }


def graph_break_text(facts: Mapping[str, Any]) -> str:
    lines = [f"{facts['id']}: {facts['type']}", ""]
    lines += textwrap.wrap(facts["explanation"], 100)
    for hint in facts["hints"]:
        lines += [f"  - {line}" for line in textwrap.wrap(hint, 96)]
    return "\n".join([*lines, "", f"(from PyTorch's registry, {facts['source']})"]) + "\n"
