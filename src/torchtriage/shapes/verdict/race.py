"""The policies that are measured against each other, each with its trials until it is eliminated."""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchtriage.findings.shape_study import BASELINE
from torchtriage.shapes.policies import ShapePolicy, by_simplicity
from torchtriage.shapes.runs.trial import Span, Trial, common_span, unit_of
from torchtriage.shapes.verdict.ranking import FAR_BEHIND, FAR_BEHIND_IN_TURNS, MIN_ROUNDS, Ranking, ranked
from torchtriage.text import counted, duration, factor


@dataclass(slots=True, kw_only=True)
class Race:
    """Grows by one trial at a time; everything else follows from the trials."""

    policies: dict[str, ShapePolicy] = field(default_factory=dict)
    trials: dict[str, list[Trial]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    in_turns: bool = False      # the runs of a round take turns, which makes them less noisy

    def enter(self, policy: ShapePolicy) -> None:
        self.policies.setdefault(policy.name, policy)
        self.trials.setdefault(policy.name, [])

    def add(self, trial: Trial) -> str:
        """Add a trial, replacing one of the same round. Returns why it cannot be compared; empty if it can.

        A trial that cannot be compared eliminates its policy; of the baseline, only the trial itself is dropped.
        """
        baseline = self.trials[BASELINE]
        why = failure(trial, baseline) if baseline else ""
        if not why:
            others = [t for t in self.trials[trial.policy] if t.round != trial.round]
            self.trials[trial.policy] = [*others, trial]
        elif trial.policy != BASELINE:
            self.failures[trial.policy] = why
        return why

    def judge_again(self) -> None:
        """Check every trial again, now that there are more baseline runs to compare it with."""
        for name, runs in self.compared().items():
            reasons = [why for trial in runs if (why := failure(trial, self.trials[BASELINE]))]
            if reasons and name != BASELINE:
                self.failures[name] = reasons[0]

    def drop_same_code(self) -> dict[str, str]:
        """Of several policies that compile exactly the same code, keep only the simplest.

        Returns dropped policy -> the policy that represents it.
        """
        dropped: dict[str, str] = {}
        simplest: dict[tuple[object, ...], str] = {}
        for name in by_simplicity(list(self.policies)):
            runs = self.compared().get(name)
            if runs and runs[-1].code and not runs[-1].was_stopped:
                code = runs[-1].code, runs[-1].num_compiles, runs[-1].num_eager_calls
                if simplest.setdefault(code, name) != name:
                    dropped[name] = simplest[code]
                    del self.policies[name], self.trials[name]
        return dropped

    def compared(self) -> dict[str, list[Trial]]:
        """The trials of the policies that did not fail."""
        return {name: runs for name, runs in self.trials.items() if runs and name not in self.failures}

    def span(self) -> Span:
        return common_span([trial for runs in self.compared().values() for trial in runs])

    def ranking(self, num_planned: int) -> Ranking:
        far = FAR_BEHIND_IN_TURNS if self.in_turns else FAR_BEHIND
        return ranked(self.compared(), self.span(), num_planned, baseline=BASELINE, far_behind=far)

    def order(self, number: int, num_planned: int, baseline_last: bool) -> list[str]:
        """The policies to run in this round, rotated so that none always goes first.

        Eliminated policies are skipped; a new policy always runs alongside the baseline.
        """
        names = [name for name in self.policies if name not in self.failures]
        new = [name for name in names if not self.trials[name]]
        if number > 1:
            running = self.ranking(num_planned).running()
            names = [name for name in names if name in running or name in new]
        is_needed = baseline_last or len(names) < 2 or new or (number <= MIN_ROUNDS and not self.in_turns)
        if is_needed and BASELINE not in names:
            names.insert(0, BASELINE)
        first = (number - 1) % len(names)
        rotated = names[first:] + names[:first]
        if baseline_last:
            return [name for name in rotated if name != BASELINE] + [BASELINE]
        return rotated

    def seconds_of(self, names: Sequence[str]) -> float:
        """The time that the processes of these policies take, one run each; a policy without a run takes the mean."""
        means = [statistics.fmean(t.seconds for t in runs) for name in names if (runs := self.trials[name])]
        if not means:
            return 0.0
        return sum(means) + (len(names) - len(means)) * statistics.fmean(means)


MAX_COMPARED = 4_000_000    # bytes of output
MAX_SHOWN = 60              # characters of a line of it


def failure(trial: Trial, baseline: Sequence[Trial]) -> str:
    """Why a trial cannot be compared with those of the unmodified program; empty if it can."""
    unit = unit_of(baseline)
    if trial.was_stopped:
        return _too_slow(trial, baseline[0], unit)
    if trial.exit_status:
        return f"ended with status {trial.exit_status}: {last_line(trial)}"
    units, expected = trial.num_units(unit), {t.num_units(unit) for t in baseline if not t.was_stopped}
    if not units:
        return "called no compiled function"
    # A single baseline run does not show whether the program always makes the same number of steps.
    if len(baseline) > 1 and len(expected) == 1 and units < min(expected):
        return f"ended early: {counted(units, unit)} instead of {min(expected):,}"
    return ""


def _too_slow(trial: Trial, baseline: Trial, unit: str) -> str:
    """A trial that was stopped at its time limit is compared only if it was not far behind by then."""
    units, expected = trial.num_units(unit), baseline.num_units(unit)
    if units >= expected:
        return ""
    span = common_span([trial, baseline])
    here = f"stopped at its {duration(trial.seconds)} limit after {units:,} of {counted(expected, unit)}"
    if span.unit != unit or not span.num_units:
        return here
    ratio = span.total(trial, span.num_units) / span.total(baseline, span.num_units)
    return f"{here}: {factor(ratio)} slower than the unmodified program" if ratio > FAR_BEHIND.ratio else ""


def last_line(trial: Trial) -> str:
    lines = _text(trial.stderr).rstrip().splitlines()
    return lines[-1].strip() if lines else "nothing on stderr"


def output_notes(trials: Mapping[str, Sequence[Trial]]) -> tuple[list[str], dict[str, list[str]]]:
    """(notes on the program, notes by policy): nondeterministic output, and output that differs from the baseline's."""
    expected = [_text(t.stdout) for t in trials.get(BASELINE, ()) if not t.was_stopped]
    if not expected:
        return [], {}
    other = next((text for text in expected if text != expected[0]), None)
    if other is not None:
        difference = first_difference(other, expected[0])
        return [f"not deterministic: two runs of the unmodified program printed different output ({difference}), "
                "so outputs are not compared"], {}
    notes = {}
    for name, runs in trials.items():
        texts = [_text(t.stdout) for t in runs if name != BASELINE and not t.was_stopped]
        differing = next((text for text in texts if text != expected[0]), None)
        if differing is not None:
            notes[name] = [f"output differs from the baseline run ({first_difference(differing, expected[0])})"]
    if notes and len(expected) == 1:
        return ["the unmodified program ran only once, so whether its output is deterministic is unknown"], notes
    return [], notes


def unit_notes(trials: Sequence[Trial]) -> list[str]:
    """Whether runs of the unmodified program differ in their number of units."""
    unit = unit_of(trials)
    units = sorted({t.num_units(unit) for t in trials if not t.was_stopped})
    if len(units) < 2:
        return []
    return [f"runs of the unmodified program made {units[0]:,} to {counted(units[-1], unit)}; "
            "all runs are compared over the part they have in common"]


def first_difference(text: str, expected: str) -> str:
    """line 3: 'loss 0.12' instead of 'loss 0.13'."""
    pairs = itertools.zip_longest(text.splitlines(), expected.splitlines())
    for number, (line, other) in enumerate(pairs, start=1):
        if line != other:
            return f"line {number}: {_shown(line)} instead of {_shown(other)}"
    return "only in its line endings"


def _shown(line: str | None) -> str:
    if line is None:
        return "nothing"
    return repr(line if len(line) <= MAX_SHOWN else line[:MAX_SHOWN] + "...")


def _text(path: str) -> str:
    if not path:
        return ""
    with Path(path).open("rb") as file:
        return file.read(MAX_COMPARED).decode("utf-8", "replace")
