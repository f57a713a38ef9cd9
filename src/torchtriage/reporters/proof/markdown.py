"""A proof as Markdown, for the description of a pull request."""

from collections.abc import Iterator

from torchtriage.findings.proof.verdict import Proof
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
from torchtriage.text import counted, duration


def render(proof: Proof) -> str:
    return "\n".join(_lines(proof)) + "\n"


def _lines(proof: Proof) -> Iterator[str]:
    yield f"## torchtriage verify: {proof.verdict}"
    yield ""
    yield _escaped(headline(proof))
    for reason in proof.reasons[1:]:
        yield f"- {_escaped(reason_sentence(reason))}"
    yield ""
    yield "| | before -> after |"
    yield "|---|---|"
    yield f"| program | {_cell(proof.before.label)} -> {_cell(proof.after.label)} |"
    yield f"| numbers | {_cell('; '.join([numbers_sentence(proof.numbers), *number_notes(proof.numbers)]))} |"
    if proof.location is not None:
        words = "; ".join([location_sentence(proof.location), *location_notes(proof.location)])
        yield f"| located | {_cell(words)} |"
    yield f"| time | {_cell(time_sentence(proof.time))} |"
    for name, text in counts(proof.before, proof.after):
        yield f"| {name} | {_cell(text)} |"
    for title, marks in (
        ("Fixed", proof.findings.fixed), ("New", proof.findings.new), ("Unchanged", proof.findings.unchanged),
    ):
        if marks:
            yield ""
            yield f"**{title}**"
            yield ""
            yield from (f"- {_escaped(finding_line(mark))}" for mark in marks)
    yield ""
    for note in proof.notes:
        yield f"- {_escaped(note)}"
    yield f"{counted(proof.num_runs, 'run')} in {duration(proof.seconds)}."


def _escaped(text: str) -> str:
    for character in "\\`*_<[]":
        text = text.replace(character, f"\\{character}")
    return text.replace("\n", " ")


def _cell(text: str) -> str:
    return _escaped(text).replace("|", "\\|")
