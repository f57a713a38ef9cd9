"""The page of each rule that a finding names, once."""

from torchtriage.findings import catalogue
from torchtriage.findings.report import Report
from torchtriage.reporters.html.escape import text
from torchtriage.reporters.html.markdown import to_html
from torchtriage.reporters.html.scope import section
from torchtriage.reporters.html.verdict import badge


def rules_section(report: Report) -> str:
    rules = [rule for code in sorted({f.code for f in report.findings}) if (rule := _rule(code)) is not None]
    linked = {rule.code for rule in rules}
    pages = [
        f'<details class="rule" id="rule-{rule.code}"><summary>{badge(rule.severity)}<span class="code">{rule.code}</span>'
        f'<h3>{rule.slug}</h3><span class="place">{text(rule.summary)}</span></summary>'
        f'<div class="words">{to_html(_without_head(rule), linked=linked)}</div></details>'
        for rule in rules
    ]
    return section("rules", "Rules", *pages) if pages else ""


def rule_link(code: str, label: str) -> str:
    """A link to the rule's page, or only the label if there is none. The label is HTML."""
    return label if _rule(code) is None else f'<a href="#rule-{code}">{label}</a>'


def _rule(code: str) -> catalogue.Rule | None:
    """None for a code that is not in the catalogue, as a finding made by hand may have."""
    try:
        return catalogue.rule(code)
    except KeyError:
        return None


def _without_head(rule: catalogue.Rule) -> str:
    """The page from its first heading on; the summary line of the list already shows what stands above it."""
    return rule.page[rule.page.index("\n## "):]
