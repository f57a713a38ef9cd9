"""Measures a program under its policies, round after round, until it is settled which is best or the time is up."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torchtriage.errors import CommandError, TriageError
from torchtriage.findings.shape_study import BASELINE, VaryingSize
from torchtriage.recording.events import CompileCall
from torchtriage.recording.reader import read_recording
from torchtriage.recording.recording import Recording
from torchtriage.shapes.budget import Budget, num_runs_to_come
from torchtriage.shapes.functions.driver import REFUSED
from torchtriage.shapes.policies import (
    Policy,
    as_written,
    forced_policies,
    marked,
    mixed,
    raised_limit,
)
from torchtriage.shapes.runs.environment import checked_cache, file_times, takes_dimensions, written_files
from torchtriage.shapes.runs.process import Outcome, Program, run_in_turns, run_once
from torchtriage.shapes.runs.sizes import Mark, Marking, find_marks, seen_sizes, sources_value, varying
from torchtriage.shapes.runs.trial import Trial, main_process, read_trial
from torchtriage.shapes.runs.turns import why_alone
from torchtriage.shapes.verdict.by_function import mixed_choice
from torchtriage.shapes.verdict.race import Race
from torchtriage.text import counted, duration, duration_flag

UNLIMITED = 100_000     # recompiles, in a run that only looks at sizes
# The first of these that the program survives: nothing recompiles, so that every call is seen; then as it is but quick; then as it is.
LOOKS: tuple[Mapping[str, Any], ...] = (
    {"sizes": True, "backend": "eager", "dynamic": "true", "recompile_limit": UNLIMITED},
    {"sizes": True, "backend": "eager", "recompile_limit": UNLIMITED},
    {"sizes": True, "recompile_limit": UNLIMITED},
)


@dataclass(slots=True, kw_only=True)
class Measurement:
    """Everything that was found out, as far as it went."""

    race: Race = field(default_factory=Race)
    first: Recording | None = None                  # of the first run as written
    written: Outcome | None = None                  # the last run as written that was alone: its recording is kept
    num_asked: int = 0                              # the units that the real run will have; 0: as many as can be compared
    sizes: Sequence[VaryingSize] | None = None      # every one seen; None: they could not be seen
    marking: Marking | None = None
    with_dims: bool = True
    same: Mapping[str, str] = field(default_factory=dict)       # policies that were not run: why they are another one
    same_code: dict[str, str] = field(default_factory=dict)     # policies that were run once: whose code they compile
    files: Sequence[str] = ()                       # that each run writes again
    notes: list[str] = field(default_factory=list)
    last_run: str = ""                              # the policy whose files lie there now
    why_alone: str = ""                             # runs come one after the other; empty: they take turns
    is_interrupted: bool = False

    @property
    def is_static(self) -> bool:
        """No size varied, as far as a whole run shows, and nothing was recompiled for another reason."""
        first = self.race.trials[BASELINE][0]
        return self.sizes is not None and not varying(self.sizes) and not first.num_recompiles and not first.was_stopped

    @property
    def num_planned(self) -> int:
        """Without a wish, what all runs went through: nothing is estimated then."""
        return self.num_asked or self.race.span().num_units

    @property
    def calls(self) -> list[CompileCall]:
        return list(self.first.of(CompileCall)) if self.first is not None else []


class Experiment:
    """One program, its budget, and whom to tell what is going on."""

    def __init__(self, program: Program, budget: Budget, *, max_rounds: int, num_planned: int | None, users_sources: str,
                 tell: Callable[[str], None], one_by_one: bool = False) -> None:
        self.program, self.budget, self.max_rounds, self.tell, self.one_by_one = program, budget, max_rounds, tell, one_by_one
        self.users_sources = users_sources
        self.found = Measurement(num_asked=num_planned or 0)

    def measure(self) -> Measurement:
        """Ctrl-C ends it with what there is; without one whole run there is nothing."""
        if "backend" not in self.program.forced:
            self.program = replace(self.program, cache=checked_cache(self.program.folder, self.program.command[0]))
        self._run_as_written()
        try:
            self._look_at_sizes()
            self._choose_policies()
            self._run_rounds()
            self._leave_files_as_written()
        except KeyboardInterrupt:
            self.found.is_interrupted = True
        return self.found

    def _run_as_written(self) -> None:
        race = self.found.race
        race.enter(as_written())
        before = file_times(self.program.command)
        outcome = self._run(race.policies[BASELINE], 1, self.budget.of_first_run())
        self.found.files = written_files(before, file_times(self.program.command))
        self.found.first = read_recording(outcome.recording)
        race.add(trial_of(outcome, BASELINE, 1))
        check_first_run(outcome, race.span().num_units, has_calls=bool(self.found.calls), has_stdin=self.program.stdin is not None)

    def _look_at_sizes(self) -> None:
        self.tell("looking at the sizes of every call (backend eager)")
        for extra in LOOKS:
            recording = self._look(Policy(name="sizes"), extra)
            if recording is not None:
                self.found.sizes = seen_sizes(recording)
                return
        self.found.notes.append("the program fails when its sizes are looked at, so which of them vary is not known")

    def _look(self, policy: Policy, extra: Mapping[str, Any]) -> Recording | None:
        """A run that is not timed; None if it fails or calls nothing."""
        self.found.last_run = policy.name
        outcome = run_once(self.program, policy, self.budget.of_look(self.found.race), extra)
        try:
            recording = read_recording(outcome.recording)
        except TriageError:
            return None
        sizes = main_process(recording).policy.sizes
        return recording if (sizes if outcome.was_stopped else not outcome.exit_status and sizes is not None) else None

    def _choose_policies(self) -> None:
        found = self.found
        policies, found.same = forced_policies(found.calls, found.is_static)
        for policy in policies:
            found.race.enter(policy)
        if varying(found.sizes or ()):
            self._find_marks(found.sizes or ())
        if found.race.trials[BASELINE][0].hit_limit:
            found.race.enter(self._with_raised_limit(found.race.policies[BASELINE]))
        assert found.written is not None
        assert found.first is not None
        asked = "--one-by-one" if self.one_by_one else ""
        found.why_alone = asked or why_alone(found.written, found.first, found.files, len(found.race.policies))
        found.race.in_turns = not found.why_alone

    def _find_marks(self, sizes: Sequence[VaryingSize]) -> None:
        assert self.found.first is not None
        torch_version = str(main_process(self.found.first).program.torch)
        self.found.with_dims = takes_dimensions(torch_version)

        def policy(marks: Collection[Mark]) -> Policy:
            return marked(sources_value(marks, self.found.with_dims), self.users_sources)

        self.tell(f"marking what varies: {counted(len(varying(sizes)), 'size')}")
        extra = {"sizes": True, "backend": "eager", "recompile_limit": UNLIMITED}
        self.found.marking = find_marks(sizes, self.found.first, lambda marks: self._look(policy(marks), extra))
        self.found.race.enter(policy(self.found.marking.marks))

    def _with_raised_limit(self, base: Policy) -> Policy:
        widest = max((size.num_values for size in self.found.sizes or ()), default=0)
        return raised_limit(base, 2 * widest)

    def _run_rounds(self) -> None:
        race = self.found.race
        for number in range(1, self.max_rounds + 1):
            names = race.order(number, self.found.num_planned, bool(self.found.files))
            if len(race.policies) - len(race.failures) < 2 or not self.budget.fits(race, names, number):
                return
            self._run_round(number, names)
            race.judge_again()
            self.found.same_code |= race.drop_same_code()
            if race.ranking(self.found.num_planned).settled():
                return

    def _run_round(self, number: int, names: list[str]) -> None:
        if not self.found.race.in_turns or not self._run_in_turns(number, names):
            self._run_one_by_one(number, names)

    def _run_in_turns(self, number: int, names: Sequence[str]) -> bool:
        """Whether it went well; else the runs got into each other's way, and nothing of it counts."""
        race = self.found.race
        self.tell(f"round {number}: {len(names)} policies take turns, about {duration_flag(race.seconds_of(names))}")
        limit = self.budget.in_turns(race, names, self._num_to_come(number, 0))
        policies, together = [race.policies[name] for name in names], self.budget.of_round(race, names)
        outcomes = dict(zip(names, run_in_turns(self.program, policies, limit, together), strict=True))
        failed = [name for name, outcome in outcomes.items() if outcome.exit_status and not outcome.was_stopped]
        for name in failed:
            outcomes[name] = self._run(race.policies[name], None, limit)
            if not outcomes[name].exit_status:
                self.found.why_alone, race.in_turns = f"it failed while other runs of it were under way, under {name}, and not alone", False
                return False
        self.found.last_run = names[-1]
        for name, outcome in outcomes.items():
            if name not in failed:
                self._tell_of(name, number, outcome)
            trial = self._take(outcome, name, number)
            if number == 1:
                self._newcomers(trial, is_last=name == names[-1])
        return True

    def _run_one_by_one(self, number: int, names: list[str]) -> None:
        race, done = self.found.race, 0
        if number == 1 and not self.budget.allows_warm_up(race):
            names.remove(BASELINE)
        while names:
            name = names.pop(0)
            if not self.budget.left:
                return
            outcome = self._run(race.policies[name], number, self.budget.of_run(race, self._num_to_come(number, done)))
            done += 1
            trial = self._take(outcome, name, number)
            if number == 1:
                names += self._newcomers(trial, is_last=not names)

    def _num_to_come(self, number: int, done: int) -> int:
        race = self.found.race
        return num_runs_to_come(len(race.policies) - len(race.failures), number, done)

    def _take(self, outcome: Outcome, name: str, number: int) -> Trial:
        trial = trial_of(outcome, name, number)
        why = self.found.race.add(trial)
        if why:
            self.tell(f"{name}: {why}")
            if name == BASELINE:
                self.found.notes.append(f"a run {BASELINE} is left out: {why}")
        return trial

    def _newcomers(self, trial: Trial, is_last: bool) -> list[str]:
        """Policies that only the first round shows to be worth a try."""
        race, new = self.found.race, []
        if trial.policy == "dynamic=False" and trial.hit_limit and trial.policy not in race.failures:
            new.append(self._with_raised_limit(race.policies[trial.policy]))
        if is_last and not new and len(race.trials[BASELINE][0].functions) > 1:
            chosen = mixed_choice(race.compared())
            new += [mixed(chosen, self.found.calls)] if chosen else []
        new = [policy for policy in new if policy.name not in race.policies]
        for policy in new:
            race.enter(policy)
        return [policy.name for policy in new]

    def _leave_files_as_written(self) -> None:
        """Every run writes its files again: what stays must not come from a policy that was only tried."""
        if self.found.files and self.found.last_run != BASELINE:
            self.tell(f"once more {BASELINE}, for the files that the program writes")
            self._run(as_written(), None, self.budget.of_first_run())

    def _run(self, policy: Policy, number: int | None, limit: float) -> Outcome:
        """A timed run; one without a number belongs to no round."""
        self.found.last_run = policy.name
        outcome = run_once(self.program, policy, limit)
        if policy.name == BASELINE:
            self.found.written = outcome
        self._tell_of(policy.name, number, outcome)
        return outcome

    def _tell_of(self, name: str, number: int | None, outcome: Outcome) -> None:
        how = "stopped at its time limit after" if outcome.was_stopped else "took"
        self.tell(f"{f'round {number}, ' if number else ''}{name}: {how} {duration(outcome.seconds)}")


def trial_of(outcome: Outcome, policy: str, number: int) -> Trial:
    """What a run left; a recording that cannot be read holds no units."""
    try:
        recording = read_recording(outcome.recording)
    except TriageError:
        recording = Recording(processes=())
    return read_trial(
        recording, policy, number, seconds=outcome.seconds, exit_status=outcome.exit_status, was_stopped=outcome.was_stopped,
        stdout=str(outcome.stdout), stderr=str(outcome.stderr), code=outcome.code, pauses=outcome.pauses,
    )


def check_first_run(outcome: Outcome, num_units: int, *, has_calls: bool, has_stdin: bool) -> None:
    """It must end well, or be stopped by us, and have called something compiled."""
    if outcome.exit_status and not outcome.was_stopped:
        raise CommandError(_failure(outcome, has_stdin))
    ran = f"it ran for {duration(outcome.seconds)}" + (" and was stopped at its time limit" if outcome.was_stopped else "")
    more = "; raise --budget, or give the program less to do" if outcome.was_stopped else ""
    if not has_calls:
        raise CommandError(f"the program makes no torch.compile call, so there is no policy to choose; {ran}{more}")
    if not num_units:
        raise CommandError(f"the program calls torch.compile, but no compiled function came to its end; {ran}{more}")


def _failure(outcome: Outcome, has_stdin: bool) -> str:
    last_words = outcome.last_words()
    if outcome.exit_status == REFUSED:
        return last_words.rpartition("torchtriage: ")[2]
    text = f"the program fails as written, with status {outcome.exit_status}, so nothing was measured; its last words:\n{last_words}"
    if "EOFError" in last_words and not has_stdin:
        text += "\nit reads stdin, which is a terminal or empty here; give every run the same input: torchtriage shapes ... < input.txt"
    return text
