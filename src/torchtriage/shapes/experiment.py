"""Measures a program under its policies, round by round, until the best one is settled or the budget ends."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torchtriage.errors import CommandError, TriageError
from torchtriage.findings.shape_study import BASELINE, VaryingSize, policy_label, policy_phrase
from torchtriage.proof.runs.process import Program, RunOutcome, run_in_turns, run_once
from torchtriage.proof.runs.surroundings import checked_cache, file_times, written_files
from torchtriage.recording.events import CompileCall
from torchtriage.recording.reader import read_recording
from torchtriage.recording.recording import Recording
from torchtriage.shapes.budget import Budget, num_runs_to_come
from torchtriage.shapes.functions.driver import REFUSED
from torchtriage.shapes.policies import (
    ShapePolicy,
    baseline_policy,
    forced_policies,
    marked,
    mixed,
    raised_limit,
)
from torchtriage.shapes.runs.alone import why_alone
from torchtriage.shapes.runs.environment import takes_dimensions
from torchtriage.shapes.runs.sizes import Mark, Marking, find_marks, recorded_sizes, sources_value, varying
from torchtriage.shapes.runs.trial import Trial, main_process, read_trial
from torchtriage.shapes.verdict.advice import BUDGET_MARGIN
from torchtriage.shapes.verdict.by_function import mixed_choice
from torchtriage.shapes.verdict.race import Race
from torchtriage.shapes.verdict.ranking import MIN_ROUNDS
from torchtriage.text import counted, duration, duration_flag

UNLIMITED = 100_000     # recompiles, in a run that only records sizes
# Tried in this order until the program succeeds: without recompiles, so that every call is recorded; with its own
# dynamic= but on a fast backend; with everything but the limit as in the program.
SIZES_RUNS: tuple[Mapping[str, Any], ...] = (
    {"sizes": True, "backend": "eager", "dynamic": "true", "recompile_limit": UNLIMITED},
    {"sizes": True, "backend": "eager", "recompile_limit": UNLIMITED},
    {"sizes": True, "recompile_limit": UNLIMITED},
)


@dataclass(slots=True, kw_only=True)
class Measurement:
    """All results of an experiment so far."""

    race: Race = field(default_factory=Race)
    first: Recording | None = None                  # of the first baseline run
    last_baseline: RunOutcome | None = None         # the last baseline run that was alone: its recording is kept
    num_asked: int = 0                              # planned units of the real run; 0: as many as can be compared
    sizes: Sequence[VaryingSize] | None = None      # all that were recorded; None: they could not be recorded
    marking: Marking | None = None
    with_dims: bool = True
    same: Mapping[str, str] = field(default_factory=dict)       # policies that were not run: why they equal another
    same_code: dict[str, str] = field(default_factory=dict)     # policies that ran once -> the policy with their code
    files: Sequence[str] = ()                       # that each run overwrites
    notes: list[str] = field(default_factory=list)
    last_run: str = ""                              # the policy that wrote the current files
    why_alone: str = ""                             # why runs come one after the other; empty: they take turns
    is_interrupted: bool = False

    @property
    def is_static(self) -> bool:
        """No size varied over a complete run, and nothing recompiled for another reason."""
        first = self.race.trials[BASELINE][0]
        has_fixed_sizes = self.sizes is not None and not varying(self.sizes)
        return has_fixed_sizes and not first.num_recompiles and not first.was_stopped

    @property
    def num_planned(self) -> int:
        """By default the units that all runs completed: then nothing is estimated."""
        return self.num_asked or self.race.span().num_units

    @property
    def calls(self) -> list[CompileCall]:
        return list(self.first.of(CompileCall)) if self.first is not None else []


class Experiment:
    """One program and its budget; `say` receives progress messages."""

    def __init__(
        self, program: Program, budget: Budget, *, max_rounds: int, num_planned: int | None, users_sources: str,
        say: Callable[[str], None], one_by_one: bool = False,
    ) -> None:
        self.program, self.budget, self.max_rounds, self.say = program, budget, max_rounds, say
        self.one_by_one = one_by_one
        self.users_sources = users_sources
        self.measurement = Measurement(num_asked=num_planned or 0)

    def measure(self) -> Measurement:
        """Ctrl-C ends it with the results so far; before the first complete run there are none."""
        if "backend" not in self.program.forced:
            cache = checked_cache(self.program.folder, self.program.command[0])
            self.program = replace(self.program, cache=cache)
        self._run_first()
        try:
            self._record_sizes()
            self._choose_policies()
            self._run_rounds()
            self._restore_files()
        except KeyboardInterrupt:
            self.measurement.is_interrupted = True
        return self.measurement

    def _run_first(self) -> None:
        """The first run of the unmodified program."""
        measurement, race = self.measurement, self.measurement.race
        race.enter(baseline_policy())
        before = file_times(self.program.command)
        outcome = self._run(race.policies[BASELINE], 1, self.budget.of_first_run())
        measurement.files = written_files(before, file_times(self.program.command))
        measurement.first = read_recording(outcome.recording)
        race.add(trial_of(outcome, BASELINE, 1))
        has_stdin = self.program.stdin is not None
        check_first_run(outcome, race.span().num_units, has_calls=bool(measurement.calls), has_stdin=has_stdin)
        self._warn_of_small_budget()

    def _warn_of_small_budget(self) -> None:
        """Say before the budget is spent that it will not be enough for a verdict."""
        policies, _ = forced_policies(self.measurement.calls, is_static=False)
        num_policies = len(policies) + 2    # with the unmodified program and the marked sizes
        needed = self.budget.needed(self.measurement.race.trials[BASELINE][0], num_policies)
        if needed > self.budget.seconds:
            self.say(
                f"the budget of {duration(self.budget.seconds)} is probably too small: {MIN_ROUNDS} rounds of "
                f"{num_policies} policies need about {duration(needed)}, estimated from the first run; "
                f"stop and give --budget {duration_flag(BUDGET_MARGIN * needed)}, or see what fits")

    def _record_sizes(self) -> None:
        self.say("recording the sizes of every call (backend eager)")
        for forced in SIZES_RUNS:
            recording = self._run_for_sizes(ShapePolicy(name="sizes"), forced)
            if recording is not None:
                self.measurement.sizes = recorded_sizes(recording)
                return
        self.measurement.notes.append("the program fails while its sizes are recorded, so it is unknown which vary")

    def _run_for_sizes(self, policy: ShapePolicy, forced: Mapping[str, Any]) -> Recording | None:
        """A run that is not timed; None if it fails or calls nothing."""
        self.measurement.last_run = policy.name
        outcome = run_once(self.program, policy, self.budget.of_sizes_run(self.measurement.race), forced)
        try:
            recording = read_recording(outcome.recording)
        except TriageError:
            return None
        sizes = main_process(recording).policy.sizes
        if outcome.was_stopped:
            return recording if sizes else None
        return recording if not outcome.exit_status and sizes is not None else None

    def _choose_policies(self) -> None:
        measurement, race = self.measurement, self.measurement.race
        policies, measurement.same = forced_policies(measurement.calls, measurement.is_static)
        for policy in policies:
            race.enter(policy)
        if varying(measurement.sizes or ()) and self.budget.left:
            self._find_marks(measurement.sizes or ())
        if race.trials[BASELINE][0].hit_limit:
            race.enter(self._with_raised_limit(race.policies[BASELINE]))
        measurement.why_alone = "--one-by-one" if self.one_by_one else self._why_alone()
        race.in_turns = not measurement.why_alone

    def _why_alone(self) -> str:
        measurement = self.measurement
        assert measurement.last_baseline is not None
        assert measurement.first is not None
        num_runs = len(measurement.race.policies)
        return why_alone(measurement.last_baseline, measurement.first, measurement.files, num_runs)

    def _find_marks(self, sizes: Sequence[VaryingSize]) -> None:
        measurement = self.measurement
        assert measurement.first is not None
        measurement.with_dims = takes_dimensions(str(main_process(measurement.first).program.torch))

        def policy(marks: Collection[Mark]) -> ShapePolicy:
            return marked(sources_value(marks, measurement.with_dims), self.users_sources)

        self.say(f"marking the varying dimensions: {counted(len(varying(sizes)), 'size')}")
        forced = {"sizes": True, "backend": "eager", "recompile_limit": UNLIMITED}
        measurement.marking = find_marks(
            sizes, measurement.first, lambda marks: self._run_for_sizes(policy(marks), forced),
        )
        measurement.race.enter(policy(measurement.marking.marks))

    def _with_raised_limit(self, base: ShapePolicy) -> ShapePolicy:
        most_values = max((size.num_values for size in self.measurement.sizes or ()), default=0)
        return raised_limit(base, 2 * most_values)

    def _run_rounds(self) -> None:
        measurement, race = self.measurement, self.measurement.race
        for number in range(1, self.max_rounds + 1):
            names = race.order(number, measurement.num_planned, bool(measurement.files))
            if len(race.policies) - len(race.failures) < 2 or not self.budget.fits(race, names, number):
                return
            self._run_round(number, names)
            race.judge_again()
            measurement.same_code |= race.drop_same_code()
            if race.ranking(measurement.num_planned).settled():
                return

    def _run_round(self, number: int, names: list[str]) -> None:
        if not self.measurement.race.in_turns or not self._run_in_turns(number, names):
            self._run_one_by_one(number, names)

    def _run_in_turns(self, number: int, names: Sequence[str]) -> bool:
        """Whether the round succeeded; if the runs interfered with each other, none of it counts."""
        measurement, race = self.measurement, self.measurement.race
        self.say(f"round {number}: {len(names)} policies in turns, about {duration_flag(race.seconds_of(names))}")
        limit = self.budget.in_turns(race, names, self._num_to_come(number, 0))
        policies = [race.policies[name] for name in names]
        results = run_in_turns(self.program, policies, limit, self.budget.of_round(race, names))
        outcomes = dict(zip(names, results, strict=True))
        failed = [name for name, outcome in outcomes.items() if outcome.exit_status and not outcome.was_stopped]
        for name in failed:
            outcomes[name] = self._run(race.policies[name], None, limit)
            if not outcomes[name].exit_status:
                measurement.why_alone = f"under {policy_label(name)} it failed beside other runs, but not alone"
                race.in_turns = False
                return False
        measurement.last_run = names[-1]
        for name, outcome in outcomes.items():
            if name not in failed:
                self._report(name, number, outcome)
            trial = self._add_trial(outcome, name, number)
            if number == 1:
                self._enter_newcomers(trial, is_last=name == names[-1])
        return True

    def _run_one_by_one(self, number: int, names: list[str]) -> None:
        race, num_done = self.measurement.race, 0
        if number == 1 and not self.budget.allows_warm_up(race):
            names.remove(BASELINE)
        while names:
            name = names.pop(0)
            if not self.budget.left:
                return
            limit = self.budget.of_run(race, self._num_to_come(number, num_done))
            outcome = self._run(race.policies[name], number, limit)
            num_done += 1
            trial = self._add_trial(outcome, name, number)
            if number == 1:
                names += self._enter_newcomers(trial, is_last=not names)

    def _num_to_come(self, number: int, num_done: int) -> int:
        race = self.measurement.race
        return num_runs_to_come(len(race.policies) - len(race.failures), number, num_done)

    def _add_trial(self, outcome: RunOutcome, name: str, number: int) -> Trial:
        trial = trial_of(outcome, name, number)
        why = self.measurement.race.add(trial)
        if why:
            self.say(f"{policy_label(name)}: {why}")
            if name == BASELINE:
                self.measurement.notes.append(f"one run of {policy_phrase(name)} is excluded: {why}")
        return trial

    def _enter_newcomers(self, trial: Trial, is_last: bool) -> list[str]:
        """Enter the policies that only the first round shows to be worth trying; returns their names."""
        race, policies = self.measurement.race, list[ShapePolicy]()
        if trial.policy == "dynamic=False" and trial.hit_limit and trial.policy not in race.failures:
            policies.append(self._with_raised_limit(race.policies[trial.policy]))
        if is_last and not policies and len(race.trials[BASELINE][0].functions) > 1:
            choice = mixed_choice(race.compared())
            if choice:
                policies.append(mixed(choice, self.measurement.calls))
        newcomers = [policy for policy in policies if policy.name not in race.policies]
        for policy in newcomers:
            race.enter(policy)
        return [policy.name for policy in newcomers]

    def _restore_files(self) -> None:
        """Every run overwrites the program's files: those of a policy that was only tried must not stay."""
        if self.measurement.files and self.measurement.last_run != BASELINE:
            self.say(f"running {policy_phrase(BASELINE)} once more, for the files it writes")
            self._run(baseline_policy(), None, self.budget.of_first_run())

    def _run(self, policy: ShapePolicy, number: int | None, limit: float) -> RunOutcome:
        """A timed run; a run without a number does not belong to a round."""
        self.measurement.last_run = policy.name
        outcome = run_once(self.program, policy, limit)
        if policy.name == BASELINE:
            self.measurement.last_baseline = outcome
        self._report(policy.name, number, outcome)
        return outcome

    def _report(self, name: str, number: int | None, outcome: RunOutcome) -> None:
        how = "stopped at its time limit after" if outcome.was_stopped else "took"
        place = f"round {number}, " if number else ""
        self.say(f"{place}{policy_label(name)}: {how} {duration(outcome.seconds)}")


def trial_of(outcome: RunOutcome, policy: str, number: int) -> Trial:
    """The trial of a finished run; a recording that cannot be read has no units."""
    try:
        recording = read_recording(outcome.recording)
    except TriageError:
        recording = Recording(processes=())
    return read_trial(
        recording, policy, number, pauses=outcome.pauses, seconds=outcome.seconds, exit_status=outcome.exit_status,
        was_stopped=outcome.was_stopped, stdout=str(outcome.stdout), stderr=str(outcome.stderr), code=outcome.code,
    )


def check_first_run(outcome: RunOutcome, num_units: int, *, has_calls: bool, has_stdin: bool) -> None:
    """The first run must succeed, or reach its time limit, and must have called a compiled function."""
    if outcome.exit_status and not outcome.was_stopped:
        raise CommandError(_failure(outcome, has_stdin))
    ran, remedy = f"it ran for {duration(outcome.seconds)}", ""
    if outcome.was_stopped:
        ran += " and was stopped at its time limit"
        remedy = "; raise --budget, or give the program less to do"
    if not has_calls and outcome.was_stopped:
        raise CommandError(f"the program did not come to a torch.compile call: {ran}{remedy}")
    if not has_calls:
        raise CommandError(f"the program does not call torch.compile, so there is no policy to choose; {ran}{remedy}")
    if not num_units:
        raise CommandError(f"the program calls torch.compile, but no compiled function returned; {ran}{remedy}")


def _failure(outcome: RunOutcome, has_stdin: bool) -> str:
    last_lines = outcome.last_lines()
    if outcome.exit_status == REFUSED:
        return last_lines.rpartition("torchtriage: ")[2]
    text = (f"the unmodified program fails with status {outcome.exit_status}, so nothing was measured; "
            f"the end of its stderr:\n{last_lines}")
    if "EOFError" in last_lines and not has_stdin:
        text += ("\nit reads stdin, which is a terminal or empty here; "
                 "give every run the same input: torchtriage shapes ... < input.txt")
    return text
