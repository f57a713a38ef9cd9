"""The shape policy that suits each compiled function best."""

import statistics
from collections.abc import Mapping, Sequence

from torchtriage.findings.shape_study import BASELINE
from torchtriage.shapes.policies import FORCED, by_simplicity
from torchtriage.shapes.runs.trial import Trial
from torchtriage.shapes.verdict.ranking import TOLERANCE

MIN_GAIN = 0.1      # a function gets its own policy only if that saves this share of its time


def best_by_function(trials: Mapping[str, Sequence[Trial]]) -> dict[str, str]:
    """Compiled function -> the simplest policy under which its calls took least; as written unless another gains enough."""
    found = {}
    for function, totals in _function_totals(trials).items():
        best = next(name for name in by_simplicity(list(totals)) if totals[name] <= (1 + TOLERANCE) * min(totals.values()))
        found[function] = best if totals[best] < (1 - MIN_GAIN) * totals[BASELINE] else BASELINE
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
    best, totals, sites = best_by_function(trials), _function_totals(trials), trials[BASELINE][0].sites
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
    for function in trials[BASELINE][0].functions:
        lanes = {
            name: [t.functions[function] for t in runs if function in t.functions]
            for name, runs in trials.items() if name == BASELINE or name in FORCED
        }
        units = min(lane.num_units for some in lanes.values() for lane in some)
        found[function] = {name: statistics.median(lane.total(units) for lane in some) for name, some in lanes.items() if some}
    return found
