"""The catalogue of rules: for every code its slug, category, default severity, page."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from torchtriage.findings.model import Category, Severity

# The rules of a run that lint also finds in the source. A rule of family 7 is found by lint alone.
ALSO_FOUND_BY_LINT = frozenset({
    "TT101", "TT102", "TT103", "TT104", "TT105", "TT106", "TT107", "TT108", "TT109", "TT110", "TT111", "TT112", "TT113",
    "TT114", "TT115", "TT116", "TT117", "TT118", "TT119", "TT120", "TT121", "TT125",
    "TT202", "TT203", "TT204", "TT205", "TT206", "TT207", "TT208", "TT209", "TT210", "TT211", "TT213", "TT214", "TT215",
    "TT216", "TT217", "TT218", "TT219", "TT220", "TT221", "TT223", "TT224",
    "TT302", "TT303", "TT305", "TT308", "TT309", "TT310",
})
_HEAD = re.compile(r"# (TT\d{3}): ([a-z0-9-]+)\n+(P[0-4]) · ([^\n]+)\n+([^\n]+)\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule; every field is read from its page."""

    code: str
    slug: str
    severity: Severity
    category: Category
    summary: str
    page: str

    @property
    def is_found_by_lint(self) -> bool:
        return self.code in ALSO_FOUND_BY_LINT or self.code.startswith("TT7")

    def section(self, heading: str) -> str:
        """The text under one of the fixed headings of the page."""
        return self.page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0].strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedOption:
    """An option of a fix that was applied to a program: the finding was gone and the result was the same."""

    code: str
    program: str            # its name in benchmarks/advice_cases
    option: str             # as the finding on this program prints it
    torch: tuple[str, ...]  # the versions


def parse_page(text: str) -> Rule:
    """The rule that a page describes.

    A page begins with `# TT204: changing-int-argument`, then `P2 · torch.compile compatibility`, then one sentence.
    """
    head = _HEAD.match(text)
    if head is None:
        raise ValueError(
            f"a rule page must begin with '# CODE: slug', 'P0..P4 · category' and one sentence; got {text[:80]!r}"
        )
    code, slug, severity, category, summary = head.groups()
    return Rule(
        code=code, slug=slug, severity=Severity[severity], category=Category(category), summary=summary, page=text,
    )


_PAGES = Path(__file__).with_name("rules")     # importlib.resources imports zipfile and others, which takes long
_cache: dict[str, Rule] = {}
MAX_CODE = 16


def rule(code: str) -> Rule:
    """The rule with this code; KeyError if there is none."""
    if code not in _cache:
        page = _PAGES / f"{code}.md"
        if not code.isalnum() or len(code) > MAX_CODE or not page.is_file():     # it may be any text that was typed
            raise KeyError(code)
        _cache[code] = parse_page(page.read_text(encoding="utf-8"))
    return _cache[code]


def codes() -> list[str]:
    """Every code, sorted."""
    pages = _PAGES.iterdir()
    return sorted(page.name.removesuffix(".md") for page in pages if page.name.endswith(".md"))


def tried_options(code: str) -> list[TriedOption]:
    """The options of a rule that the benchmark of the advice has tried; its `--record` writes the file."""
    text = Path(__file__).with_name("tried_options.json").read_text(encoding="utf-8")
    return [
        TriedOption(code=row["code"], program=row["program"], option=row["option"], torch=tuple(row["torch"]))
        for row in json.loads(text) if row["code"] == code
    ]
