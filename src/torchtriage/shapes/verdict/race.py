"""The policies that are measured against each other, their trials, and who still takes part."""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchtriage.findings.shape_study import BASELINE
from torchtriage.shapes.policies import Policy, by_simplicity
from torchtriage.shapes.runs.trial import Span, Trial, common_span, unit_of
from torchtriage.shapes.verdict.ranking import FAR_BEHIND, FAR_BEHIND_IN_TURNS, MIN_ROUNDS, Ranking, ranked
from torchtriage.text import counted, duration, factor


@dataclass(slots=True, kw_only=True)
class Race:
    """Grows by one trial at a time; everything else is worked out from the trials."""

    policies: dict[str, Policy] = field(default_factory=dict)
    trials: dict[str, list[Trial]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    in_turns: bool = False      # the runs of a round, which then differ less by chance

    def enter(self, policy: Policy) -> None:
        self.policies.setdefault(policy.name, policy)
        self.trials.setdefault(policy.name, [])

    def add(self, trial: Trial) -> str:
        """Take a trial in, in the place of one in the same round; why it cannot be compared, if so.

        Its policy is out then, while as written only this run is left out.
        """
        written = self.trials[BASELINE]
        why = failure(trial, written) if written else ""
        if not why:
            self.trials[trial.policy] = [*(t for t in self.trials[trial.policy] if t.round != trial.round), trial]
        elif trial.policy != BASELINE:
            self.failures[trial.policy] = why
        return why

    def judge_again(self) -> None:
        """Look at every trial again, now that there are more runs as written to compare it with."""
        for name, runs in self.compared().items():
            why = next(filter(None, (failure(trial, self.trials[BASELINE]) for trial in runs)), "")
            if why and name != BASELINE:
                self.failures[name] = why

    def drop_same_code(self) -> dict[str, str]:
        """Policies under which exactly the same code is compiled are one: of each only the simplest stays. Who left, and for whom."""
        left: dict[str, str] = {}
        stay: dict[tuple[object, ...], str] = {}
        for name in by_simplicity(list(self.policies)):
            runs = self.compared().get(name)
            if runs and runs[-1].code and not runs[-1].was_stopped:
                own = runs[-1].code, runs[-1].num_compiles, runs[-1].num_eager_calls
                if stay.setdefault(own, name) != name:
                    left[name] = stay[own]
                    del self.policies[name], self.trials[name]
        return left

    def compared(self) -> dict[str, list[Trial]]:
        """The trials of the policies that did not fail."""
        return {name: runs for name, runs in self.trials.items() if runs and name not in self.failures}

    def span(self) -> Span:
        return common_span([trial for runs in self.compared().values() for trial in runs])

    def ranking(self, num_planned: int) -> Ranking:
        far = FAR_BEHIND_IN_TURNS if self.in_turns else FAR_BEHIND
        return ranked(self.compared(), self.span(), num_planned, baseline=BASELINE, far_behind=far)

    def order(self, number: int, num_planned: int, written_last: bool) -> list[str]:
        """Who runs in a round, each beginning with another one; a policy that lost already does not, one that is new meets as written."""
        names = [name for name in self.policies if name not in self.failures]
        new = [name for name in names if not self.trials[name]]
        if number > 1:
            running = self.ranking(num_planned).running()
            names = [name for name in names if name in running or name in new]
        is_needed = written_last or len(names) < 2 or new or (number <= MIN_ROUNDS and not self.in_turns)
        if is_needed and BASELINE not in names:
            names.insert(0, BASELINE)
        turned = names[(number - 1) % len(names):] + names[:(number - 1) % len(names)]
        return [name for name in turned if name != BASELINE] + [BASELINE] if written_last else turned

    def seconds_of(self, names: Sequence[str]) -> float:
        """How long the processes of these policies take, one run each."""
        known = [statistics.fmean(t.seconds for t in runs) for name in names if (runs := self.trials[name])]
        return sum(known) + (len(names) - len(known)) * (statistics.fmean(known) if known else 0.0)


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
        return f"ended early: {counted(units, unit)} instead of {min(expected):,}"
    return ""


def _too_slow(trial: Trial, written: Trial, unit: str) -> str:
    """A trial that was stopped at its time limit is compared only if it was not far behind there."""
    units, reached = trial.num_units(unit), written.num_units(unit)
    if units >= reached:
        return ""
    span = common_span([trial, written])
    here = f"stopped after {duration(trial.seconds)} at {units:,} of {counted(reached, unit)}"
    if span.unit != unit or not span.num_units:
        return here
    ratio = span.total(trial, span.num_units) / span.total(written, span.num_units)
    return f"{here}, {factor(ratio)} the time that they took {BASELINE}" if ratio > FAR_BEHIND.ratio else ""


def last_line(trial: Trial) -> str:
    lines = _text(trial.stderr).rstrip().splitlines()
    return lines[-1].strip() if lines else "nothing on stderr"


def output_notes(trials: Mapping[str, Sequence[Trial]]) -> tuple[list[str], dict[str, list[str]]]:
    """(notes on the program, notes by policy): whether runs as written print the same, and which policies print something else."""
    written = [_text(t.stdout) for t in trials.get(BASELINE, ()) if not t.was_stopped]
    if not written:
        return [], {}
    odd = next((text for text in written if text != written[0]), None)
    if odd is not None:
        difference = first_difference(odd, written[0])
        return [f"not deterministic: two runs {BASELINE} printed different things ({difference}), so outputs are not compared"], {}
    notes = {}
    for name, runs in trials.items():
        texts = [_text(t.stdout) for t in runs if name != BASELINE and not t.was_stopped]
        differing = next((text for text in texts if text != written[0]), None)
        if differing is not None:
            notes[name] = [f"printed something else than {BASELINE} ({first_difference(differing, written[0])})"]
    few = [] if len(written) > 1 else [f"the program ran only once {BASELINE}: whether its output is deterministic is not known"]
    return (few if notes else []), notes


def unit_notes(trials: Sequence[Trial]) -> list[str]:
    """Whether runs as written differ in how far they go."""
    unit = unit_of(trials)
    units = sorted({t.num_units(unit) for t in trials if not t.was_stopped})
    if len(units) < 2:
        return []
    return [f"runs {BASELINE} went through {units[0]:,} to {counted(units[-1], unit)}; all are compared over what they have in common"]


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
