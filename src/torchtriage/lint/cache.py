"""The result of lint kept on disk, so that unchanged source is not read again."""

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torchtriage import __version__
from torchtriage.files import replace_file
from torchtriage.findings.model import (
    YOU,
    Category,
    Check,
    CheckKind,
    Evidence,
    Finding,
    Fix,
    Location,
    Severity,
    SourceLine,
)
from torchtriage.findings.selection import Suppression
from torchtriage.lint.project import UnreadFile
from torchtriage.lint.result import LintResult

FOLDER = ".torchtriage_cache"
MAX_RESULTS = 8     # of different paths or states of the source; the oldest is dropped


class LintCache:
    """Results by the content of all files that were read for them."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FOLDER / "lint.json"

    def key(self, contents: Mapping[str, bytes], roots: Iterable[str], outside: Iterable[str] = ()) -> str:
        """A hash of everything that a result depends on: the files, the rules, the version of Python.

        `outside` describes what was read beside the linted files.
        """
        digest = hashlib.sha256()
        for part in (__version__, sys.version, *roots, *_own_state(), *outside):
            digest.update(part.encode() + b"\0")
        for path, data in sorted(contents.items()):
            digest.update(path.encode("utf-8", "surrogateescape") + b"\0" + hashlib.sha256(data).digest())
        return digest.hexdigest()

    def find(self, key: str) -> LintResult | None:
        """The result under this key; None if there is none, or if the file is damaged."""
        entry = self._read().get(key)
        try:
            return None if entry is None else _result_of(entry)
        except (KeyError, TypeError, ValueError):
            return None

    def keep(self, key: str, result: LintResult) -> None:
        """Write the result; a folder that cannot be written is no error, as the cache only saves time."""
        entries = {key: _entry_of(result)}
        for known, entry in self._read().items():
            if known != key and len(entries) < MAX_RESULTS:
                entries[known] = entry
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            ignored = self.path.parent / ".gitignore"
            if not ignored.exists():
                ignored.write_text("*\n")
            replace_file(self.path, json.dumps(entries).encode())
        except OSError:
            pass

    def _read(self) -> dict[str, Any]:
        try:
            entries = json.loads(self.path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return entries if isinstance(entries, dict) else {}


def _own_state() -> Iterable[str]:
    """Size and time of the files of lint and of the rule pages, which change while a rule is written."""
    package = Path(__file__).parent
    for folder in (package, package.parent / "findings" / "rules"):
        for root, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                if name.endswith((".py", ".md")):
                    status = os.stat(os.path.join(root, name))
                    yield f"{name} {status.st_size} {status.st_mtime_ns}"


def _entry_of(result: LintResult) -> dict[str, Any]:
    return {
        "findings": [asdict(finding) for finding in result.findings],
        "comments": [[path, line, list(c.codes), c.reason] for (path, line), c in result.comments.items()],
        "facts": dict(result.facts),
        "unread": [[u.path, u.reason] for u in result.unread],
    }


def _result_of(entry: Mapping[str, Any]) -> LintResult:
    return LintResult(
        findings=[_finding_of(fields) for fields in entry["findings"]],
        comments={
            (path, line): Suppression(codes=tuple(codes), reason=reason)
            for path, line, codes, reason in entry["comments"]
        },
        facts=entry["facts"],
        unread=[UnreadFile(path, reason) for path, reason in entry["unread"]],
    )


def _finding_of(fields: Mapping[str, Any]) -> Finding:
    """A finding of lint, which has neither cost nor ranks nor steps."""
    source = [SourceLine(**line) for line in fields["evidence"]["source"]]
    evidence = Evidence(source=tuple(source), notes=tuple(fields["evidence"]["notes"]))
    return Finding(
        code=fields["code"], slug=fields["slug"], title=fields["title"], severity=Severity(fields["severity"]),
        category=Category(fields["category"]), cause=fields["cause"],
        fix=Fix(text=fields["fix"]["text"], safe=fields["fix"]["safe"]),
        location=Location(**fields["location"]),
        raised_at=_place_of(fields["raised_at"]), owner=YOU, evidence=evidence,
        verification=tuple(_check_of(check) for check in fields["verification"]),
        related=tuple(fields["related"]), fingerprint=fields["fingerprint"],
    )


def _check_of(fields: Mapping[str, Any]) -> Check:
    return Check(CheckKind(fields["kind"]), fields["subject"], _place_of(fields["place"]), fields["code"])


def _place_of(fields: Mapping[str, Any] | None) -> Location | None:
    return None if fields is None else Location(**fields)
