"""Trials of edits, as text or JSON: what each was worth, what the patch holds."""

import json
from typing import Any

from torchtriage.findings.edits.trials import EditTrial, TrialReport
from torchtriage.findings.proof.verdict import Proof
from torchtriage.reporters.fixes.data import FIX_SCHEMA, edit_as_dict
from torchtriage.reporters.fixes.text import head
from torchtriage.reporters.json import finding_as_dict, plain
from torchtriage.reporters.proof.sentences import counts, headline, numbers_sentence, reason_sentence, time_sentence
from torchtriage.text import counted, duration


def as_text(report: TrialReport, patch_path: str = "") -> str:
    blocks = [_trial(trial) for trial in report.trials]
    if report.without:
        listing = "".join(f"  {head(finding)}\n    {reason}\n" for finding, reason in report.without)
        blocks.append(f"no edit:\n{listing}")
    if report.untried:
        listing = "".join(f"  {head(finding)}\n" for finding in report.untried)
        blocks.append(f"not tried, as {_end(report)}:\n{listing}")
    blocks.append(_verdict(report, patch_path))
    return "\n".join(blocks)


def _trial(trial: EditTrial) -> str:
    edit = trial.proposed.edit
    return (
        f"{head(trial.finding)}\n  [{edit.label}] {edit.text}\n"
        f"  {str(trial.proof.verdict).upper()}: {headline(trial.proof)}\n  {_worth(trial.proof)}\n"
    )


def _worth(proof: Proof) -> str:
    """What changed in counts and in time."""
    changed = [f"{name} {text}" for name, text in counts(proof.before, proof.after)]
    return "; ".join([*changed, f"time: {time_sentence(proof.time)}"])


def _verdict(report: TrialReport, patch_path: str) -> str:
    findings = len({trial.finding.fingerprint for trial in report.trials})
    lines = [f"{len(report.kept)} of {counted(findings, 'finding')} cured by an edit that was verified"]
    if not report.trials:
        lines = ["no edit was tried"]
    for trial in report.dropped:
        lines.append(f"verified alone, but not together with the others: {head(trial.finding)}")
    proof = report.together or (report.kept[0].proof if len(report.kept) == 1 else None)
    if proof is not None:
        title = "together" if report.together is not None else "worth"
        lines.append(f"{title}: {numbers_sentence(proof.numbers)}; {_worth(proof)}")
    elif len(report.kept) > 1:
        lines.append(f"not proven together, as {_end(report)}")
    if report.ended_by:
        lines.append(f"{_end(report)}: this is what was shown until then")
    if patch_path:
        lines.append(f"wrote {patch_path}; apply it with: git apply {patch_path}")
    return "\n".join([*lines, f"{duration(report.seconds)} in total"]) + "\n"


def _end(report: TrialReport) -> str:
    return "the budget ended" if report.ended_by == "budget" else "Ctrl-C ended the trials"


def as_json(report: TrialReport, patch_path: str = "") -> str:
    """The findings with `verified`: whether an edit in the patch was proven to cure them."""
    kept = {trial.finding.fingerprint for trial in report.kept}
    findings: dict[str, dict[str, Any]] = {}
    for trial in report.trials:
        row = findings.setdefault(trial.finding.fingerprint, {
            **finding_as_dict(trial.finding), "verified": trial.finding.fingerprint in kept, "trials": [],
        })
        row["trials"].append({
            **edit_as_dict(trial.proposed.edit), "diff": trial.proposed.diff, "verdict": str(trial.proof.verdict),
            "reasons": [reason_sentence(reason) for reason in trial.proof.reasons],
            "numbers": str(trial.proof.numbers.state), "proof": trial.proof.to_dict(),
        })
    for finding, reason in report.without:
        findings[finding.fingerprint] = {
            **finding_as_dict(finding), "verified": False, "trials": [], "reason": reason}
    for finding in report.untried:
        findings[finding.fingerprint] = {
            **finding_as_dict(finding), "verified": False, "trials": [], "reason": f"not tried: {_end(report)}"}
    return json.dumps(plain({
        "schema": FIX_SCHEMA, "findings": list(findings.values()), "num_kept": len(report.kept),
        "together": report.together.to_dict() if report.together is not None else None,
        "dropped": [trial.finding.fingerprint for trial in report.dropped], "patch": report.patch,
        "patch_path": patch_path, "ended_by": report.ended_by, "seconds": report.seconds,
    }), indent=1) + "\n"
