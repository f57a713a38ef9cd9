"""Whether a policy ran the same program: how it ended, how far it came, what it printed."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchtriage.findings.shape_study import AS_WRITTEN
from torchtriage.shapes.ranking import FAR_BEHIND
from torchtriage.shapes.trials import Trial, common_span, unit_of
from torchtriage.shapes.wording import seconds_text, times_text, units_text

MAX_COMPARED = 4_000_000    # bytes of output
MAX_SHOWN = 60              # characters of a line of it


def failure(trial: Trial, written: Sequence[Trial]) -> str:
    """Why a trial cannot be compared with those of the program as written; empty if it can."""
    unit = unit_of(written)
    if trial.was_stopped:
        return _too_slow(trial, written[0], unit)
    if trial.exit_status:
        return f"ended with status {trial.exit_status}: {last_line(trial)}"
    units, expected = trial.num_units(unit), {t.num_units(unit) for t in written if not t.was_stopped}
    if not units:
        return "called no compiled function"
    # One run as written does not tell whether the program always goes equally far.
    if len(written) > 1 and len(expected) == 1 and units < min(expected):
        return f"ended early: {units_text(units, unit)} instead of {min(expected):,}"
    return ""


def _too_slow(trial: Trial, written: Trial, unit: str) -> str:
    """A trial that was stopped at its time limit is compared only if it was not far behind there."""
    units, reached = trial.num_units(unit), written.num_units(unit)
    if units >= reached:
        return ""
    span = common_span([trial, written])
    here = f"stopped after {seconds_text(trial.seconds)} at {units:,} of {units_text(reached, unit)}"
    if span.unit != unit or not span.num_units:
        return here
    ratio = span.total(trial, span.num_units) / span.total(written, span.num_units)
    return f"{here}, {times_text(ratio)} the time that they took {AS_WRITTEN}" if ratio > FAR_BEHIND.ratio else ""


def last_line(trial: Trial) -> str:
    lines = _text(trial.stderr).rstrip().splitlines()
    return lines[-1].strip() if lines else "nothing on stderr"


def output_notes(trials: Mapping[str, Sequence[Trial]]) -> tuple[list[str], dict[str, list[str]]]:
    """(notes on the program, notes by policy): whether runs as written print the same, and which policies print something else."""
    written = [_text(t.stdout) for t in trials.get(AS_WRITTEN, ()) if not t.was_stopped]
    if not written:
        return [], {}
    odd = next((text for text in written if text != written[0]), None)
    if odd is not None:
        difference = first_difference(odd, written[0])
        return [f"not deterministic: two runs {AS_WRITTEN} printed different things ({difference}), so outputs are not compared"], {}
    notes = {}
    for name, runs in trials.items():
        texts = [_text(t.stdout) for t in runs if name != AS_WRITTEN and not t.was_stopped]
        differing = next((text for text in texts if text != written[0]), None)
        if differing is not None:
            notes[name] = [f"printed something else than {AS_WRITTEN} ({first_difference(differing, written[0])})"]
    few = [] if len(written) > 1 else [f"the program ran only once {AS_WRITTEN}: whether its output is deterministic is not known"]
    return (few if notes else []), notes


def unit_notes(trials: Sequence[Trial]) -> list[str]:
    """Whether runs as written differ in how far they go."""
    unit = unit_of(trials)
    units = sorted({t.num_units(unit) for t in trials if not t.was_stopped})
    if len(units) < 2:
        return []
    return [f"runs {AS_WRITTEN} went through {units[0]:,} to {units_text(units[-1], unit)}; all are compared over what they have in common"]


def first_difference(text: str, expected: str) -> str:
    """line 3: 'loss 0.12' instead of 'loss 0.13'."""
    pairs = itertools.zip_longest(text.splitlines(), expected.splitlines())
    for number, (line, other) in enumerate(pairs, start=1):
        if line != other:
            return f"line {number}: {_shown(line)} instead of {_shown(other)}"
    return "only in its line ends"


def _shown(line: str | None) -> str:
    return "nothing" if line is None else repr(line if len(line) <= MAX_SHOWN else line[:MAX_SHOWN] + "...")


def _text(path: str) -> str:
    if not path:
        return ""
    with Path(path).open("rb") as file:
        return file.read(MAX_COMPARED).decode("utf-8", "replace")
