"""Shape policies: whether `torchtriage shapes` finds the best one, consistently, and how long it takes.

    python benchmarks/shapes.py [--programs flex_decode,ragged_text] [--part truth | --with-truth] [--rounds 3]
    [--repeats 3] [--jobs 2]

Advice: independent runs of the command. Truth: every policy in every round, by the tool's own trials, for --rounds
rounds. Only a policy at 1.5 times the best is not repeated, and a run that takes three times as long as the unmodified
program is stopped. The totals shown are for the program's own number of units, and for a hundred times as many
(estimated from the second half of each run). Without a truth, which takes as long again, each advice is judged by the
measurements of the other runs of the command, never by its own. An advice is right if the truth of its policy is within
5 % of the best, and worse than the unmodified program if the entire interval of their ratio is above 1. A refusal means
to keep the program unmodified, and is judged as such. With --jobs 2, two programs are measured at a time, on one core
each. --add adds the measurements to the existing results: three times --repeats 1 --add equals --repeats 3.
"""

import argparse
import itertools
import json
import math
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import PROGRAMS, RESULTS, Spread, clean_environment, machine, note, peers_python, run, save, table

from torchtriage.findings.shape_study import BASELINE, Interval
from torchtriage.proof.runs.process import Program
from torchtriage.proof.statistics import levels, paired_ratio
from torchtriage.shapes.budget import Budget
from torchtriage.shapes.experiment import Experiment
from torchtriage.shapes.verdict.race import Race

PREFIX = "shapes_"
TRANSFORMERS = ("generate_dynamic_cache", "generate_static_cache")
PEERS = (("transformers==5.22.2",),)
FLEX = "flex_decode"
BUDGETS = {
    FLEX: "7m",
    "two_towers": "10m",
    **dict.fromkeys(TRANSFORMERS, "8m"),
}  # two rounds of all their policies take longer
WITHIN = 1.05  # an advice within this share of the best total is right
LONGER = 100  # times the program's own units
PATIENCE_SECONDS = 7200.0  # for one program
TOO_LONG = 3.0  # times a run as written, and a run for the truth is stopped
HOPELESS = 1.5  # times the best total, and a policy is not repeated for the truth: runs in turns differ by 1 or 2 %
MANY_ROUNDS = 1000  # more than a run has
REFUSED = "refused"


class Patient(Budget):
    """A budget with time for every run that is not far behind."""

    def in_turns(self, race: Race, names: Sequence[str], num_to_come: int) -> float:
        del names, num_to_come
        return TOO_LONG * race.trials[BASELINE][0].seconds


class Exhaustive(Experiment):
    """Runs every policy in every round unless it is far behind; no verdict ends the race earlier."""

    def _run_rounds(self) -> None:
        race = self.measurement.race
        for number in range(1, self.max_rounds + 1):
            found = levels(race.ranking(self.measurement.num_planned).totals)
            hopeless = {name for name, seconds in found.items() if seconds > HOPELESS * min(found.values())} - {
                BASELINE
            }
            names = [name for name in race.policies if name not in race.failures and name not in hopeless]
            first = (number - 1) % len(names)
            self._run_round(number, [*names[first:], *names[:first]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The totals of every policy by round, or by run of the command, in seconds."""

    unit: str = ""
    num_units: int = 0
    own: Mapping[str, Mapping[int, float]]
    longer: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, race: Race) -> "Truth":
        span = race.span()
        own, longer = (race.ranking(times * span.num_units).totals for times in (1, LONGER))
        return cls(unit=span.unit, num_units=span.num_units, own=own, longer=longer, failures=race.failures)

    @classmethod
    def of_runs(cls, advised: Sequence["Advised"]) -> "Truth":
        """By what these runs measured, every round of theirs."""
        own: dict[str, dict[int, float]] = {}
        for number, one in enumerate(advised):
            for name, by_round in one.totals.items():
                own.setdefault(name, {}).update({number * MANY_ROUNDS + n: seconds for n, seconds in by_round.items()})
        return cls(own=own)

    def ratio(self, of: str, to: str) -> Interval:
        found = paired_ratio(self.own[of], self.own[to])
        assert found is not None  # as written takes part in all
        return found

    def is_right(self, policy: str) -> bool:
        return policy in self.own and self.over(policy) <= WITHIN

    def over(self, policy: str) -> float:
        """Its total relative to that of the best."""
        found = levels(self.own)
        return found[policy] / min(found.values())

    def is_worse(self, policy: str) -> bool:
        """Whether it is certainly worse than the unmodified program."""
        low = self.ratio(policy, BASELINE).low if policy in self.own else None
        return low is not None and low > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Advised:
    """The advice of one run of the command, and how long it took."""

    policy: str  # empty: it refused
    text: str
    seconds: float
    num_rounds: int
    totals: Mapping[str, Mapping[int, float]]  # by policy and round

    @property
    def followed(self) -> str:
        """The policy that a user has who follows it."""
        return self.policy or BASELINE


def earlier() -> dict[str, dict[str, Any]]:
    """The existing results, by program."""
    path = RESULTS / "shapes.json"
    programs = json.loads(path.read_text())["programs"] if path.exists() else {}

    def by_round(totals: Mapping[str, Mapping[str, float]]) -> dict[str, dict[int, float]]:
        return {policy: {int(number): seconds for number, seconds in found.items()} for policy, found in totals.items()}

    found: dict[str, dict[str, Any]] = {name: {} for name in programs}
    for name, parts in programs.items():
        if "advice" in parts:
            found[name]["advice"] = [
                Advised(**{**data, "totals": by_round(data["totals"])}) for data in parts["advice"]
            ]
        if "truth" in parts:
            data = parts["truth"]
            found[name]["truth"] = Truth(**{**data, "own": by_round(data["own"]), "longer": by_round(data["longer"])})
    return found


def added(before: Mapping[str, dict[str, Any]], found: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The results with a new measurement: an advice is added, a truth is replaced."""
    merged = {name: {**before.get(name, {}), **found.get(name, {})} for name in sorted({*before, *found})}
    for name, parts in merged.items():
        if advised := [*before.get(name, {}).get("advice", ()), *found.get(name, {}).get("advice", ())]:
            parts["advice"] = advised
    return merged


def best(totals: Mapping[str, Mapping[int, float]]) -> str:
    found = levels(totals)
    return min(found, key=lambda name: found[name])


def command_of(name: str) -> list[str]:
    """A program on one thread; those that need transformers run where it is."""
    python = peers_python("shapes-peers", PEERS) if name in TRANSFORMERS else sys.executable
    return [python, str(PROGRAMS / f"{PREFIX}{name}.py")]


def truth_of(name: str, rounds: int, backend: str | None) -> Truth:
    with tempfile.TemporaryDirectory() as folder:
        experiment = Exhaustive(
            Program(command=command_of(name), folder=Path(folder), forced={"backend": backend} if backend else {}),
            Patient(seconds=PATIENCE_SECONDS),
            max_rounds=rounds,
            num_planned=None,
            users_sources="",
            say=lambda text: note(f"  {name}: {text}"),
        )
        return Truth.of(experiment.measure().race)


def advice_of(name: str, budget: str, backend: str | None) -> Advised:
    python, script = command_of(name)
    with tempfile.TemporaryDirectory() as folder:
        flags = ["-q", "--format", "json", "--fail-on", "never", "--budget", budget, "-o", "out.triage"]
        flags += ["--backend", backend] if backend else []
        ended = run([python, "-m", "torchtriage", "shapes", *flags, script], cwd=Path(folder), timeout=PATIENCE_SECONDS)
    study = json.loads(ended.stdout)["shapes"]
    advised = Advised(
        policy=study["advice"]["policy"],
        text=study["advice"]["text"],
        seconds=ended.seconds,
        num_rounds=max(policy["num_runs"] for policy in study["policies"]),
        totals={
            p["name"]: {one["round"]: one["seconds"] for one in p["totals"]} for p in study["policies"] if p["totals"]
        },
    )
    usual = ", ".join(f"{policy} {seconds:.2f}" for policy, seconds in levels(advised.totals).items())
    note(
        f"  {name}: {advised.policy or REFUSED} in {advised.seconds:.0f} s, {advised.num_rounds} rounds: {advised.text}"
        f" ({usual})"
    )
    return advised


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one program; a failure is reported and does not end the others."""
    found: dict[str, Any] = {}
    try:
        if options.part == "truth" or options.with_truth:
            found["truth"] = truth_of(name, options.rounds, options.backend)
        if options.part == "advice":
            found["advice"] = [
                advice_of(name, BUDGETS.get(name, options.budget), options.backend) for _ in range(options.repeats)
            ]
    except (Exception, SystemExit) as error:
        found["error"] = str(error)
        note(f"  {name}: {error}")
    return found


def measure_all(names: Sequence[str], options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Measure one program per job at a time; the processes of a job inherit the core of its thread."""
    cores = itertools.cycle(sorted(os.sched_getaffinity(0)))

    def pin() -> None:
        os.sched_setaffinity(0, {next(cores)})

    with ThreadPoolExecutor(options.jobs, initializer=pin) as pool:
        return dict(zip(names, pool.map(lambda name: measure(name, options), names), strict=True))


def show_truth(found: Mapping[str, dict[str, Any]]) -> None:
    rows = []
    for name, parts in found.items():
        truth = parts.get("truth")
        if truth is None:
            rows += [[name, parts["error"][:60]]] if "error" in parts else []
            continue
        totals = sorted((seconds, policy) for policy, seconds in levels(truth.own).items())
        failed = [f"{policy} failed" for policy in truth.failures]
        policies = ", ".join([f"{policy} {seconds:.1f}" for seconds, policy in totals] + failed)
        rows.append([name, f"{truth.num_units:,} {truth.unit}s", best(truth.own), best(truth.longer), policies])
    print(
        "\ntruth: the best policy for the program's own units and for a hundred times as many, and the seconds of all\n"
    )
    print(
        table(
            ["program", "units", "best", f"best, x{LONGER}", "seconds in a usual round"],
            [[*row, "", "", ""][:5] for row in rows],
        )
    )


def judges(truth: Truth | None, advised: Sequence[Advised]) -> list[Truth]:
    """The truth by which each advice is judged."""
    if truth is not None:
        return [truth] * len(advised)
    return (
        [Truth.of_runs([other for other in advised if other is not one]) for one in advised] if len(advised) > 1 else []
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """On one advice."""

    is_right: bool
    is_worse: bool  # than as written, beyond doubt
    over: float  # its total in those of the best
    gain: float  # the total as written in those of it

    @classmethod
    def of(cls, truth: Truth, policy: str) -> "Verdict":
        if policy not in truth.own:  # the other runs had nothing to choose it from
            return cls(is_right=False, is_worse=False, over=math.nan, gain=math.nan)
        return cls(
            is_right=truth.is_right(policy),
            is_worse=truth.is_worse(policy),
            gain=truth.ratio(BASELINE, policy).middle,
            over=truth.over(policy),
        )


def show_advice(found: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The table, and the summary that it ends with."""
    rows, num_advised, num_right, num_same, num_refused, num_worse = [], 0, 0, 0, 0, 0
    for name, parts in found.items():
        advised, truth = parts.get("advice"), parts.get("truth")
        if not advised:
            rows.append([name, parts.get("error", "")[:60], "", "", "", "", ""])
            continue
        said = list(dict.fromkeys(a.policy or REFUSED for a in advised))
        num_advised += 1
        is_same = len({a.followed for a in advised}) == 1  # a refusal says to keep it as it is
        num_same += is_same
        num_refused += REFUSED in said
        verdicts = [Verdict.of(judge, a.followed) for judge, a in zip(judges(truth, advised), advised, strict=False)]
        num_right += bool(verdicts) and all(v.is_right for v in verdicts)
        num_worse += any(v.is_worse for v in verdicts)
        cells = (
            ["", "", ""]
            if not verdicts
            else [
                f"{sum(v.is_right for v in verdicts)} of {len(advised)}",
                f"{max(v.over for v in verdicts):.2f}",
                f"{min(v.gain for v in verdicts):.2f}{' WORSE' * any(v.is_worse for v in verdicts)}",
            ]
        )
        rows.append(
            [
                name,
                " / ".join(said),
                "yes" if is_same else "no",
                *cells,
                Spread.of([a.seconds for a in advised]).show(0),
            ]
        )
    print("\nadvice of independent runs\n")
    print(table(["program", "advice", "same", "right", "total / best", "as written / total", "the tool took, s"], rows))
    summary = {
        "programs": num_advised,
        "right": num_right,
        "same": num_same,
        "refused": num_refused,
        "worse": num_worse,
    }
    print(
        f"\nright: {num_right} of {num_advised}; worse than as written: {num_worse}; the same advice each time:"
        f" {num_same}; refused at least once: {num_refused}"
    )
    return summary


def show_flex(parts: Mapping[str, Any]) -> float | None:
    """Worst / recommended; None without an advice."""
    advised = parts.get("advice")
    if not advised:
        return None
    truth = parts.get("truth") or Truth.of_runs(advised)
    if advised[0].policy not in truth.own:
        return None
    found = levels(truth.own)
    worst = max(found, key=lambda name: found[name])
    ratio = found[worst] / found[advised[0].policy]
    print(f"{FLEX}: {worst} takes {ratio:.1f} times as long as {advised[0].policy}, which is recommended")
    return ratio


def main() -> None:
    known = sorted(path.stem.removeprefix(PREFIX) for path in PROGRAMS.glob(f"{PREFIX}*.py"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=lambda text: text.split(","), default=known, help=f"of {', '.join(known)}")
    parser.add_argument("--part", choices=("truth", "advice"), default="advice")
    parser.add_argument("--with-truth", action="store_true", help="judge the advice by the truth, measured for itself")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each policy for the truth")
    parser.add_argument("--repeats", type=int, default=3, help="runs of the command")
    parser.add_argument("--budget", default="5m", help="of each run of the command; some have more")
    parser.add_argument(
        "--backend", help="instead of the programs' own, to try this benchmark out: the figures mean nothing then"
    )
    parser.add_argument("--add", action="store_true", help="add to the runs in the existing results")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time, on a core each")
    options = parser.parse_args()
    unknown = set(options.programs) - set(known)
    if unknown:
        parser.error(f"no program {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    os.environ.update(clean_environment())
    if set(options.programs) & set(TRANSFORMERS):
        command_of(TRANSFORMERS[0])  # makes the venv before two threads ask for it
    before = machine()
    found = measure_all(options.programs, options)
    found = added(earlier() if options.add else {}, found)
    results: dict[str, Any] = {"programs": found}
    if any("truth" in parts for parts in found.values()):
        show_truth(found)
    if any("advice" in parts for parts in found.values()):
        results["summary"] = show_advice(found)
        results["flex_worst_over_recommended"] = show_flex(found.get(FLEX, {}))
    save("shapes", before, results)


if __name__ == "__main__":
    main()
