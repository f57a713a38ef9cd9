"""The best shape policy of each compiled function."""

import statistics
from collections.abc import Mapping, Sequence

from torchtriage.findings.shape_study import BASELINE
from torchtriage.shapes.policies import FORCED, by_simplicity
from torchtriage.shapes.runs.trial import Trial
from torchtriage.shapes.verdict.ranking import TOLERANCE

MIN_GAIN = 0.1      # a function gets its own policy only if that saves this share of its time


def best_by_function(trials: Mapping[str, Sequence[Trial]]) -> dict[str, str]:
    """Compiled function -> the simplest policy under which its calls took least; without enough gain, the baseline."""
    best = {}
    for function, totals in _function_totals(trials).items():
        limit = (1 + TOLERANCE) * min(totals.values())
        policy = next(name for name in by_simplicity(list(totals)) if totals[name] <= limit)
        is_worthwhile = totals[policy] < (1 - MIN_GAIN) * totals[BASELINE]
        best[function] = policy if is_worthwhile else BASELINE
    return best


def mixed_choice(trials: Mapping[str, Sequence[Trial]]) -> dict[str, str]:
    """path:line of a torch.compile call -> the forced policy that is best for all its functions.

    Empty if one policy for the entire program is as good.
    """
    choice = {}
    for site, best in _best_by_site(trials).items():
        names = set(best.values())
        if len(names) == 1 and names <= FORCED.keys():
            choice[site] = names.pop()
    return choice


def divided_sites(trials: Mapping[str, Sequence[Trial]]) -> dict[str, list[str]]:
    """path:line of a torch.compile call -> its functions, if they do best under different policies."""
    return {site: list(best) for site, best in _best_by_site(trials).items() if len(set(best.values())) > 1}


def _best_by_site(trials: Mapping[str, Sequence[Trial]]) -> dict[str, dict[str, str]]:
    """path:line of a torch.compile call -> its functions -> the best policy of each.

    Empty if one policy for the entire program is as good.
    """
    best, totals, sites = best_by_function(trials), _function_totals(trials), trials[BASELINE][0].sites
    common = set.intersection(*(set(by_policy) for by_policy in totals.values())) if totals else set()
    if not common:
        return {}
    separate = sum(totals[function][name] for function, name in best.items())
    together = min(sum(by_policy[name] for by_policy in totals.values()) for name in common)
    if separate > (1 - TOLERANCE) * together:
        return {}
    by_site: dict[str, dict[str, str]] = {}
    for function, name in best.items():
        by_site.setdefault(sites[function], {})[function] = name
    return by_site


def _function_totals(trials: Mapping[str, Sequence[Trial]]) -> dict[str, dict[str, float]]:
    """Compiled function -> policy -> seconds of the calls that all its runs made.

    Covers the policies that a single torch.compile call can have: `dynamic=` and the baseline.
    """
    totals = {}
    for function in trials[BASELINE][0].functions:
        lanes = {}
        for name, runs in trials.items():
            if name == BASELINE or name in FORCED:
                lanes[name] = [trial.functions[function] for trial in runs if function in trial.functions]
        num_units = min(lane.num_units for some in lanes.values() for lane in some)
        totals[function] = {
            name: statistics.median(lane.total(num_units) for lane in some) for name, some in lanes.items() if some
        }
    return totals
