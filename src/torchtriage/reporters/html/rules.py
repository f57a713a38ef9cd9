"""The pages of the rules that the findings name, each once."""

import re
from collections.abc import Collection

from torchtriage.findings import catalogue
from torchtriage.findings.report import Report
from torchtriage.reporters.html.markup import block, section, text
from torchtriage.reporters.html.verdict import badge

_PARTS = re.compile(
    r"^```[^\n]*\n(?P<code>.*?)^```$"
    r"|^#+ (?P<heading>[^\n]+)$"
    r"|^- (?P<item>[^\n]+(?:\n  [^\n]+)*)$"
    r"|(?P<words>[^\n]+(?:\n(?!```|#|- )[^\n]+)*)",
    re.M | re.S,
)
_CODE_SPAN = re.compile(r"`([^`]+)`")
_RULE = re.compile(r"\bTT\d{3}\b")


def rules_section(report: Report) -> str:
    codes = sorted({f.code for f in report.findings})
    rules = [rule for rule in map(_rule, codes) if rule is not None]
    linked = {rule.code for rule in rules}
    pages = [
        f'<details class="rule" id="rule-{rule.code}">'
        f'<summary>{badge(rule.severity)}<span class="code">{rule.code}</span>'
        f'<h3>{rule.slug}</h3><span class="place">{text(rule.summary)}</span></summary>'
        f'<div class="words">{to_html(_without_head(rule), linked=linked)}</div></details>'
        for rule in rules
    ]
    return section("rules", "Rules", *pages) if pages else ""


def rule_link(code: str, label: str) -> str:
    """A link to the rule's page, or only the label if there is none. The label is HTML."""
    return label if _rule(code) is None else f'<a href="#rule-{code}">{label}</a>'


def _rule(code: str) -> catalogue.Rule | None:
    """None for a code that is not in the catalogue, which a finding made by hand may have."""
    try:
        return catalogue.rule(code)
    except KeyError:
        return None


def _without_head(rule: catalogue.Rule) -> str:
    """The page from its first section heading on; the summary line of the list already shows the part before it."""
    return rule.page[rule.page.index("\n## "):]


def to_html(page: str, *, heading: str = "h4", linked: Collection[str] = ()) -> str:
    """A page without its first heading; a code in `linked` becomes a link to its page in this report."""
    out: list[str] = []
    in_list = False
    for part in _PARTS.finditer(page.partition("\n")[2]):
        is_item = part["item"] is not None
        if is_item != in_list:
            out.append("<ul>" if is_item else "</ul>")
            in_list = is_item
        if part["code"] is not None:
            out.append(f"<pre>{block(part['code'].rstrip())}</pre>")
        elif part["heading"] is not None:
            out.append(f"<{heading}>{text(part['heading'])}</{heading}>")
        elif is_item:
            out.append(f"<li>{_inline(part['item'], linked)}</li>")
        else:
            out.append(f"<p>{_inline(part['words'], linked)}</p>")
    return "\n".join([*out, "</ul>"] if in_list else out)


def _inline(words: str, linked: Collection[str]) -> str:
    """Text with code spans and links to rules; a code span contains no link."""
    def link(match: re.Match[str]) -> str:
        code = match[0]
        return f'<a href="#rule-{code}">{code}</a>' if code in linked else code

    pieces = _CODE_SPAN.split(" ".join(words.split()))
    out = []
    for i, piece in enumerate(pieces):
        is_code = i % 2 == 1
        out.append(f"<code>{text(piece)}</code>" if is_code else _RULE.sub(link, text(piece)))
    return "".join(out)
