"""A proof as text for a terminal."""

import textwrap
from collections.abc import Iterator

from torchtriage.findings.proof.verdict import Proof, ProofVerdict
from torchtriage.reporters.proof.location import location_notes, location_sentence
from torchtriage.reporters.proof.sentences import (
    counts,
    finding_line,
    headline,
    number_notes,
    numbers_sentence,
    reason_sentence,
    time_sentence,
)
from torchtriage.text import counted, duration, harmless

MAX_FINDINGS = 8
_COLOURS = {ProofVerdict.VERIFIED: "\033[32m", ProofVerdict.REFUTED: "\033[31m", ProofVerdict.UNDECIDED: "\033[33m"}
_MARGIN = 11


def render(proof: Proof, width: int = 80, colour: bool = False) -> str:
    lines = [line for name, text in _rows(proof) for line in _wrapped(name, harmless(text), width)]
    verdict = str(proof.verdict).upper()
    if colour:
        lines[0] = lines[0].replace(verdict, f"{_COLOURS[proof.verdict]}\033[1m{verdict}\033[0m", 1)
    return "\n".join(lines) + "\n"


def _rows(proof: Proof) -> Iterator[tuple[str, str]]:
    yield str(proof.verdict).upper(), headline(proof)
    for reason in proof.reasons[1:]:
        yield "and", reason_sentence(reason)
    yield "", ""
    yield "before", proof.before.label
    yield "after", proof.after.label
    for name, marks in (
        ("fixed", proof.findings.fixed), ("new", proof.findings.new), ("unchanged", proof.findings.unchanged),
    ):
        for mark in marks[:MAX_FINDINGS]:
            yield name, finding_line(mark)
            name = ""
        if len(marks) > MAX_FINDINGS:
            yield "", f"and {counted(len(marks) - MAX_FINDINGS, 'more finding')}"
    yield "numbers", numbers_sentence(proof.numbers)
    for note in number_notes(proof.numbers):
        yield "", note
    if proof.location is not None:
        yield "located", location_sentence(proof.location)
        for note in location_notes(proof.location):
            yield "", note
    yield "time", time_sentence(proof.time)
    yield "counts", "; ".join(f"{name} {text}" for name, text in counts(proof.before, proof.after))
    if proof.steps_limit:
        yield "note", f"both sides were ended after {counted(proof.steps_limit, 'optimizer step')} (--steps)"
    for note in proof.notes:
        yield "note", note
    yield "", f"{counted(proof.num_runs, 'run')} in {duration(proof.seconds)}"


def _wrapped(name: str, text: str, width: int) -> list[str]:
    if not text:
        return [""]
    margin = f"{name:<{_MARGIN - 1}} " if len(name) < _MARGIN else f"{name} "
    return textwrap.wrap(
        text, max(40, width), initial_indent=margin, subsequent_indent=" " * _MARGIN, break_on_hyphens=False)
