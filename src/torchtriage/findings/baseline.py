"""A committed file of accepted fingerprints: only what is not in it fails."""

import json
from collections.abc import Iterable
from pathlib import Path

from torchtriage.errors import CommandError
from torchtriage.findings.model import Finding

SCHEMA = 1


def read_baseline(path: Path) -> set[str]:
    """The accepted fingerprints."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise CommandError(f"baseline {path} has schema {data['schema']}, this torchtriage reads {SCHEMA}; upgrade torchtriage")
        return {entry["fingerprint"] for entry in data["findings"]}
    except FileNotFoundError:
        raise CommandError(f"no baseline at {path}; make one with --update-baseline") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandError(f"cannot read baseline {path}: {error}; make it anew with --update-baseline") from error


def write_baseline(path: Path, findings: Iterable[Finding]) -> int:
    """Accept these findings; the file is sorted and readable, so that a review sees what is accepted."""
    entries = [
        {"fingerprint": f.fingerprint, "code": f.code, "slug": f.slug, "function": f.location.function, "title": f.title}
        for f in sorted(findings, key=lambda f: (f.code, f.fingerprint))
    ]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"schema": SCHEMA, "findings": entries}, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write baseline {path}: {error.strerror}; name another file with --baseline") from error
    return len(entries)
