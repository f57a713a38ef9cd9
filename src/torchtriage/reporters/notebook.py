"""Findings as a short HTML fragment without a script, for a notebook."""

from torchtriage.findings.model import Finding
from torchtriage.findings.report import Report
from torchtriage.reporters.html.markup import Scope, scope_of, text
from torchtriage.reporters.html.verdict import what_is_wrong, what_it_costs
from torchtriage.reporters.summary import cost_text, tap_text
from torchtriage.text import counted, row

MAX_SHOWN = 10
# A notebook has its own colours and may be dark or light: only the badges set their own text and background colour.
_STYLE = """.torchtriage{font:14px/1.45 system-ui,sans-serif;max-width:60rem;overflow-wrap:anywhere}
.torchtriage p{margin:.2em 0}
.torchtriage details{border-top:1px solid rgba(128,128,128,.35);padding:.35em 0}
.torchtriage summary{cursor:pointer}
.torchtriage dl{display:grid;grid-template-columns:3em minmax(0,1fr);gap:.15em .8em;margin:.4em 0 .4em 1.1em}
.torchtriage dt{opacity:.75}.torchtriage dd{margin:0}
.torchtriage i{font:600 12px/1 system-ui,sans-serif;color:#fff;background:#5a616d;border-radius:3px;
padding:.15em .4em;margin-right:.4em}
.torchtriage i.P0{background:#8f0f1e}.torchtriage i.P1{background:#c0310a}
.torchtriage i.P2{background:#845600}.torchtriage i.P3{background:#1f6393}"""


def render(report: Report) -> str:
    scope = scope_of(report)
    shown = "".join(_finding(scope, f) for f in report.findings[:MAX_SHOWN])
    left = len(report.findings) - MAX_SHOWN
    more = f"<p>{counted(left, 'more finding')}: <code>.findings</code> has them all.</p>" if left > 0 else ""
    cost = what_it_costs(report)
    watched = ""
    if not report.findings:
        watched = f"<p>Watched: {text(row(map(tap_text, report.watched)) or 'nothing')}.</p>"
    return (
        f'<div class="torchtriage"><style>{_STYLE}</style><p><b>{text(what_is_wrong(report))}</b></p>'
        f"<p>{text(cost)}</p>{watched}{shown}{more}</div>"
    )


def _finding(scope: Scope, f: Finding) -> str:
    rows = [
        ("where", scope.place(f.location)), ("why", text(f.cause)), ("fix", text(f.fix.text)),
        ("cost", text(cost_text(f.cost) or "not measured")),
    ]
    fields = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows if value)
    badge = f'<i class="{f.severity.name}">{f.severity.name}</i>'
    return (
        f"<details><summary>{badge}<b>{text(f.code)}</b> {text(f.title)}</summary>"
        f"<dl>{fields}</dl></details>"
    )
