"""Which findings remain after flags, baseline, comments, or fail the command."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchtriage.config import Config
from torchtriage.errors import CommandError
from torchtriage.files import read_regular, replace_file
from torchtriage.findings import catalogue
from torchtriage.findings.model import Finding, Severity
from torchtriage.findings.report import Report

BASELINE_SCHEMA = 1
MAX_BASELINE = 64 << 20     # bytes; an accepted finding takes about 250
# A comment of the form "torchtriage: ignore[TT101] reason" behind a "#".
_COMMENT = re.compile(r"#\s*torchtriage:\s*ignore\b(?:\[([^\]]*)\])?\s*(.*)", re.IGNORECASE)


def check_rules_exist(config: Config) -> None:
    """Reject a code that matches no rule: a gate that selects it would always pass."""
    for item in (*config.select, *config.ignore):
        if not any(code.startswith(item) for code in catalogue.codes()):
            raise CommandError(f"no rule begins with {item!r}; list the rules with: torchtriage explain")


def is_wanted(finding: Finding, config: Config) -> bool:
    """Whether --select and --ignore keep the finding."""
    if config.select and not finding.code.startswith(config.select):
        return False
    return not (config.ignore and finding.code.startswith(config.ignore))


def selected(report: Report, config: Config) -> Report:
    """The report without the findings that --select, --ignore and the baseline remove; it counts those."""
    wanted = [f for f in report.findings if is_wanted(f, config)]
    accepted = read_baseline(Path(config.baseline)) if config.baseline else set()
    new = [f for f in wanted if f.fingerprint not in accepted]
    num_hidden = len(report.findings) - len(wanted)
    return replace(report, findings=new, num_known=len(wanted) - len(new), num_hidden=num_hidden)


def failing(report: Report, config: Config) -> list[Finding]:
    """The findings at or above --fail-on."""
    if config.fail_on == "never":
        return []
    return [f for f in report.findings if f.severity <= Severity[config.fail_on]]


def read_baseline(path: Path) -> set[str]:
    """The fingerprints that a baseline file accepts."""
    try:
        data = json.loads(read_regular(path, MAX_BASELINE, follow=True))
        schema = data["schema"]
        if schema != BASELINE_SCHEMA:
            raise CommandError(
                f"baseline {path} has schema {schema}, this torchtriage reads {BASELINE_SCHEMA}; upgrade torchtriage"
            )
        return {entry["fingerprint"] for entry in data["findings"]}
    except FileNotFoundError:
        raise CommandError(f"no baseline at {path}; make one with --update-baseline") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CommandError(f"cannot read baseline {path}: {reason}; write it again with --update-baseline") from error


def write_baseline(path: Path, findings: Iterable[Finding]) -> int:
    """Accept these findings; returns their number. The file is sorted and readable, so it can be reviewed."""
    entries = []
    for f in sorted(findings, key=lambda f: (f.code, f.fingerprint)):
        entries.append({
            "fingerprint": f.fingerprint, "code": f.code, "slug": f.slug,
            "function": f.location.function, "title": f.title,
        })
    text = json.dumps({"schema": BASELINE_SCHEMA, "findings": entries}, indent=1) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode())
    except OSError as error:
        raise CommandError(
            f"cannot write baseline {path}: {error.strerror}; name another file with --baseline"
        ) from error
    return len(entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """The codes that a comment accepts on its line, and its reason."""

    codes: tuple[str, ...]
    reason: str

    def covers(self, code: str) -> bool:
        return code in self.codes


Comments = dict[tuple[str, int], Suppression]       # by path and line


def suppression_in(line: str) -> Suppression | None:
    """The suppression on a source line; without a code it accepts nothing and is reported as unused."""
    match = _COMMENT.search(line)
    if match is None:
        return None
    codes = tuple(code.strip().upper() for code in (match[1] or "").split(",") if code.strip())
    return Suppression(codes=codes, reason=match[2].strip())


def suppressed(findings: Sequence[Finding], comments: Comments) -> tuple[list[Finding], int, list[str]]:
    """(remaining findings, number of suppressed findings, comments that suppressed nothing)."""
    used: set[tuple[str, int]] = set()
    remaining = []
    for finding in findings:
        place = (finding.location.path, finding.location.line or 0)
        if place in comments and comments[place].covers(finding.code):
            used.add(place)
        else:
            remaining.append(finding)
    unused = []
    for (path, line), comment in sorted(comments.items(), key=lambda item: item[0]):
        if (path, line) not in used:
            unused.append(f"{path}:{line}: ignore[{','.join(comment.codes)}]")
    return remaining, len(findings) - len(remaining), unused
