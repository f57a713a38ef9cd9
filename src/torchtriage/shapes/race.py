"""The policies that are measured against each other, their trials, and who still takes part."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torchtriage.findings.shape_study import AS_WRITTEN
from torchtriage.shapes.checks import failure
from torchtriage.shapes.policies import FORCED, Policy, by_simplicity
from torchtriage.shapes.ranking import FAR_BEHIND, FAR_BEHIND_IN_TURNS, MIN_ROUNDS, TOLERANCE, Ranking, ranked
from torchtriage.shapes.trials import Span, Trial, common_span

MIN_GAIN = 0.1      # a function goes its own way only for so much of its time


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
        written = self.trials[AS_WRITTEN]
        why = failure(trial, written) if written else ""
        if not why:
            self.trials[trial.policy] = [*(t for t in self.trials[trial.policy] if t.round != trial.round), trial]
        elif trial.policy != AS_WRITTEN:
            self.failures[trial.policy] = why
        return why

    def judge_again(self) -> None:
        """Look at every trial again, now that there are more runs as written to compare it with."""
        for name, runs in self.compared().items():
            why = next(filter(None, (failure(trial, self.trials[AS_WRITTEN]) for trial in runs)), "")
            if why and name != AS_WRITTEN:
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
        return ranked(self.compared(), self.span(), num_planned, baseline=AS_WRITTEN, far_behind=far)

    def order(self, number: int, num_planned: int, written_last: bool) -> list[str]:
        """Who runs in a round, each beginning with another one; a policy that lost already does not, one that is new meets as written."""
        names = [name for name in self.policies if name not in self.failures]
        new = [name for name in names if not self.trials[name]]
        if number > 1:
            running = self.ranking(num_planned).running()
            names = [name for name in names if name in running or name in new]
        is_needed = written_last or len(names) < 2 or new or (number <= MIN_ROUNDS and not self.in_turns)
        if is_needed and AS_WRITTEN not in names:
            names.insert(0, AS_WRITTEN)
        turned = names[(number - 1) % len(names):] + names[:(number - 1) % len(names)]
        return [name for name in turned if name != AS_WRITTEN] + [AS_WRITTEN] if written_last else turned

    def seconds_of(self, names: Sequence[str]) -> float:
        """How long the processes of these policies take, one run each."""
        known = [statistics.fmean(t.seconds for t in runs) for name in names if (runs := self.trials[name])]
        return sum(known) + (len(names) - len(known)) * (statistics.fmean(known) if known else 0.0)


def best_by_function(trials: Mapping[str, Sequence[Trial]]) -> dict[str, str]:
    """Compiled function -> the simplest policy under which its calls took least; as written unless another gains enough."""
    found = {}
    for function, totals in _function_totals(trials).items():
        best = next(name for name in by_simplicity(list(totals)) if totals[name] <= (1 + TOLERANCE) * min(totals.values()))
        found[function] = best if totals[best] < (1 - MIN_GAIN) * totals[AS_WRITTEN] else AS_WRITTEN
    return found


def mixed_choice(trials: Mapping[str, Sequence[Trial]]) -> dict[str, str]:
    """path:line of a torch.compile call -> the forced policy that suits its functions; empty if one policy for all is as good."""
    found = {site: set(wanted.values()) for site, wanted in _wanted_by_site(trials).items()}
    return {site: next(iter(names)) for site, names in found.items() if len(names) == 1 and names <= FORCED.keys()}


def divided_sites(trials: Mapping[str, Sequence[Trial]]) -> dict[str, list[str]]:
    """path:line of a torch.compile call -> its functions, where they want different policies and one call can have only one."""
    return {site: list(wanted) for site, wanted in _wanted_by_site(trials).items() if len(set(wanted.values())) > 1}


def _wanted_by_site(trials: Mapping[str, Sequence[Trial]]) -> dict[str, dict[str, str]]:
    """path:line of a torch.compile call -> its functions -> the policy that suits each; empty if one policy for all is as good."""
    best, totals, sites = best_by_function(trials), _function_totals(trials), trials[AS_WRITTEN][0].sites
    names = set.intersection(*(set(by_policy) for by_policy in totals.values())) if totals else set()
    together = sum(totals[function][name] for function, name in best.items())
    if not names or together > (1 - TOLERANCE) * min(sum(by_policy[name] for by_policy in totals.values()) for name in names):
        return {}
    found: dict[str, dict[str, str]] = {}
    for function, name in best.items():
        found.setdefault(sites[function], {})[function] = name
    return found


def _function_totals(trials: Mapping[str, Sequence[Trial]]) -> dict[str, dict[str, float]]:
    """Compiled function -> policy -> seconds of the calls that all its runs made; of the policies that one call can follow alone."""
    found = {}
    for function in trials[AS_WRITTEN][0].functions:
        lanes = {
            name: [t.functions[function] for t in runs if function in t.functions]
            for name, runs in trials.items() if name == AS_WRITTEN or name in FORCED
        }
        units = min(lane.num_units for some in lanes.values() for lane in some)
        found[function] = {name: statistics.median(lane.total(units) for lane in some) for name, some in lanes.items() if some}
    return found
