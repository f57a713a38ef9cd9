"""Shape policies: does `torchtriage shapes` find the best one, the same one each time, and what does asking cost?

    python benchmarks/shapes.py [--programs flex_decode,ragged_text] [--part truth|advice] [--rounds 5] [--repeats 3] [--jobs 2]

Truth: every policy of a program in every round, none dropped, by the tool's own trials; the totals for the program's own number of units,
and for a hundred times as many (estimated from the second half of each run). Advice: independent runs of the command. An advice is right if
the truth of its policy lies within 5 % of the best, and worse than as written if the whole interval of their ratio lies above 1. A refusal
says to keep the program as written for now, and is judged as that. With --jobs 2 two programs are measured at a time, on a core each.
"""

import argparse
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import PROGRAMS, Spread, clean_environment, machine, note, peers_python, run, save, table

from torchtriage.findings.shape_study import AS_WRITTEN, Interval
from torchtriage.shapes.budget import Budget
from torchtriage.shapes.measuring import Experiment
from torchtriage.shapes.race import Race
from torchtriage.shapes.running import Program
from torchtriage.shapes.statistics import paired_ratio

PREFIX = "shapes_"
TRANSFORMERS = ("generate_dynamic_cache", "generate_static_cache")
PEERS = (("transformers==5.22.2",),)
FLEX = "flex_decode"
BUDGETS = {FLEX: "10m"}     # a flex kernel compiles for many seconds: three rounds of its policies take longer than the others'
WITHIN = 1.05               # of the best total, and an advice is right
LONGER = 100                # times the program's own units
PATIENCE_SECONDS = 7200.0   # for the truth about one program; no run of it should end at its time limit
REFUSED = "refused"


class Exhaustive(Experiment):
    """Every policy in every round, whatever the others did."""

    def _run_rounds(self) -> None:
        race = self.found.race
        for number in range(1, self.max_rounds + 1):
            names = [name for name in race.policies if name not in race.failures]
            first = (number - 1) % len(names)
            self._run_round(number, [*names[first:], *names[:first]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The totals of every policy by round, in seconds."""

    unit: str
    num_units: int
    own: Mapping[str, Mapping[int, float]]
    longer: Mapping[str, Mapping[int, float]]
    failures: Mapping[str, str]

    @classmethod
    def of(cls, race: Race) -> "Truth":
        span = race.span()
        own, longer = (race.ranking(times * span.num_units).totals for times in (1, LONGER))
        return cls(unit=span.unit, num_units=span.num_units, own=own, longer=longer, failures=race.failures)

    def ratio(self, of: str, to: str) -> Interval:
        found = paired_ratio(self.own[of], self.own[to])
        assert found is not None    # every policy took part in every round
        return found

    def is_right(self, policy: str) -> bool:
        return policy in self.own and middle(self.own[policy]) <= WITHIN * middle(self.own[best(self.own)])

    def is_worse(self, policy: str) -> bool:
        """Than as written, beyond doubt."""
        low = self.ratio(policy, AS_WRITTEN).low if policy in self.own else None
        return low is not None and low > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Advised:
    """What one run of the command said, and how long it took."""

    policy: str         # empty: it refused
    text: str
    seconds: float
    num_rounds: int

    @property
    def followed(self) -> str:
        """What a user does who goes by it."""
        return self.policy or AS_WRITTEN


def middle(by_round: Mapping[int, float]) -> float:
    return Spread.of(list(by_round.values())).median


def best(totals: Mapping[str, Mapping[int, float]]) -> str:
    return min(totals, key=lambda name: middle(totals[name]))


def command_of(name: str) -> list[str]:
    """A program on one thread; those that need transformers run where it is."""
    python = peers_python("shapes-peers", PEERS) if name in TRANSFORMERS else sys.executable
    return [python, str(PROGRAMS / f"{PREFIX}{name}.py")]


def truth_of(name: str, rounds: int, backend: str | None) -> Truth:
    with tempfile.TemporaryDirectory() as folder:
        experiment = Exhaustive(
            Program(command=command_of(name), folder=Path(folder), forced={"backend": backend} if backend else {}),
            Budget(seconds=PATIENCE_SECONDS), max_rounds=rounds, num_planned=None, users_sources="",
            tell=lambda text: note(f"  {name}: {text}"),
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
        policy=study["advice"]["policy"], text=study["advice"]["text"], seconds=ended.seconds,
        num_rounds=max(policy["num_runs"] for policy in study["policies"]),
    )
    note(f"  {name}: {advised.policy or REFUSED} in {advised.seconds:.0f} s: {advised.text}")
    return advised


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Both parts of one program, or the one that was asked for; what cannot be measured says why and does not end the others."""
    found: dict[str, Any] = {}
    try:
        if options.part in (None, "truth"):
            found["truth"] = truth_of(name, options.rounds, options.backend)
        if options.part in (None, "advice"):
            found["advice"] = [advice_of(name, BUDGETS.get(name, options.budget), options.backend) for _ in range(options.repeats)]
    except (Exception, SystemExit) as error:
        found["error"] = str(error)
        note(f"  {name}: {error}")
    return found


def measure_all(names: Sequence[str], options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """As many programs at a time as there are jobs; the processes of a job inherit the core of its thread."""
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
            rows.append([name, parts.get("error", "")[:60]])
            continue
        totals = sorted((middle(runs), policy) for policy, runs in truth.own.items())
        failed = [f"{policy} failed" for policy in truth.failures]
        policies = ", ".join([f"{policy} {seconds:.1f}" for seconds, policy in totals] + failed)
        rows.append([name, f"{truth.num_units:,} {truth.unit}s", best(truth.own), best(truth.longer), policies])
    print("\ntruth: the best policy for the program's own units and for a hundred times as many, and the seconds of all\n")
    print(table(["program", "units", "best", f"best, x{LONGER}", "seconds, median"], [[*row, "", "", ""][:5] for row in rows]))


def verdict(truth: Truth | None, advised: Sequence[Advised]) -> list[str]:
    """Cells of the advice's row: right, against the best, against as written."""
    if truth is None:
        return ["", "", ""]
    named = [a.followed for a in advised if a.followed in truth.own]
    right = sum(truth.is_right(policy) for policy in named)
    over = [middle(truth.own[policy]) / middle(truth.own[best(truth.own)]) for policy in named]
    gain = [truth.ratio(AS_WRITTEN, policy).middle for policy in named]
    worse = " WORSE" if any(truth.is_worse(policy) for policy in named) else ""
    return [f"{right} of {len(advised)}", f"{max(over):.2f}" if over else "", f"{min(gain):.2f}{worse}" if gain else ""]


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
        num_same += len(said) == 1
        num_refused += REFUSED in said
        num_right += truth is not None and all(truth.is_right(a.followed) for a in advised)
        num_worse += truth is not None and any(truth.is_worse(a.followed) for a in advised)
        seconds = Spread.of([a.seconds for a in advised])
        rows.append([name, " / ".join(said), "yes" if len(said) == 1 else "no", *verdict(truth, advised), seconds.show(0)])
    print("\nadvice of independent runs\n")
    print(table(["program", "advice", "same", "right", "total / best", "as written / total", "the tool took, s"], rows))
    summary = {"programs": num_advised, "right": num_right, "same": num_same, "refused": num_refused, "worse": num_worse}
    has_truth = any("truth" in parts for parts in found.values())
    judged = f"right: {num_right} of {num_advised}; worse than as written: {num_worse}; " if has_truth else ""
    print(f"\n{judged}the same advice each time: {num_same}; refused at least once: {num_refused}")
    return summary


def show_flex(parts: Mapping[str, Any]) -> float | None:
    """Worst / recommended; None unless both parts were measured and the advice has a truth."""
    truth, advised = parts.get("truth"), parts.get("advice")
    if truth is None or not advised or advised[0].policy not in truth.own:
        return None
    worst = max(truth.own, key=lambda name: middle(truth.own[name]))
    ratio = middle(truth.own[worst]) / middle(truth.own[advised[0].policy])
    print(f"{FLEX}: {worst} takes {ratio:.1f} times as long as {advised[0].policy}, which is recommended")
    return ratio


def main() -> None:
    known = sorted(path.stem.removeprefix(PREFIX) for path in PROGRAMS.glob(f"{PREFIX}*.py"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=lambda text: text.split(","), default=known, help=f"of {', '.join(known)}")
    parser.add_argument("--part", choices=("truth", "advice"), help="only this part")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each policy for the truth")
    parser.add_argument("--repeats", type=int, default=3, help="runs of the command")
    parser.add_argument("--budget", default="3m", help=f"of each run of the command; {FLEX} has {BUDGETS[FLEX]}")
    parser.add_argument("--backend", help="instead of the programs' own, to try this benchmark out: the figures mean nothing then")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time, on a core each")
    options = parser.parse_args()
    unknown = set(options.programs) - set(known)
    if unknown:
        parser.error(f"no program {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    os.environ.update(clean_environment())
    if set(options.programs) & set(TRANSFORMERS):
        command_of(TRANSFORMERS[0])     # makes the venv before two threads ask for it
    before = machine()
    found = measure_all(options.programs, options)
    results: dict[str, Any] = {"programs": found}
    if options.part in (None, "truth"):
        show_truth(found)
    if options.part in (None, "advice"):
        results["summary"] = show_advice(found)
        results["flex_worst_over_recommended"] = show_flex(found.get(FLEX, {}))
    save("shapes", before, results)


if __name__ == "__main__":
    main()
