"""PPO: returns over seeds against published figures, and speed beside Stable-Baselines3, sb3-contrib, SBX and others.

The peers are in a separate venv that shares torch with this one. Everything runs with one thread. All variants are
measured by the same clock, that of the operating system for complete processes: the difference between a long and a
short training, which start and compile alike. Processes take turns; a ratio is between runs that are adjacent in time.
"""

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import (
    PROGRAMS,
    Ended,
    Spread,
    clean_environment,
    interleaved,
    machine,
    note,
    peers_python,
    ratios,
    run,
    save,
    table,
)

CARTPOLE: dict[str, Any] = {"env": "CartPole-v1", "eval_episodes": 0}
NO_VELOCITY: dict[str, Any] = {  # as many epochs as the peer, none of them ended early
    "env": "CartPoleNoVel-v1",
    "eval_episodes": 0,
    "epochs": 20,
    "gamma": 0.98,
    "gae_lambda": 0.8,
    "target_kl": 0.0,
}
COMPILED, EAGER = {"compile": "yes"}, {"compile": "no"}
SHORT = 2_048  # steps of the process that is subtracted: imports, compiles and the first updates


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What is run and what it does: a program of the peers, or settings of ours; `words` are flags of the program."""

    does: str
    peer: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    total: int = 81_920


SB3, RECURRENT = "Stable-Baselines3 PPO", "sb3-contrib RecurrentPPO"
OURS = "torchtriage, compiled"
EAGER_PEER = "torch, eager; gymnasium's environments one by one; a log per update"
COMPILED_OURS = "torch, two graphs; gymnasium's environments one by one, without its checks; recording and telemetry"
MLP = {
    SB3: Variant(peer=("ppo_peers.py", "sb3"), does=EAGER_PEER),
    "SBX PPO": Variant(
        peer=("ppo_peers.py", "sbx"),
        does="JAX, a graph per minibatch; gymnasium's environments one by one; a log per update",
    ),
    "plain loop": Variant(
        peer=("ppo_peers.py", "loop"),
        does="torch, eager; gymnasium's environments one by one; two statistics per minibatch",
    ),
    "PPO in one JAX graph": Variant(
        peer=("ppo_jax.py",),
        does="JAX, environments and update in one graph; metrics at the end of the training",
        total=327_680,
    ),
    OURS: Variant(settings=CARTPOLE | COMPILED, does=COMPILED_OURS),
    "torchtriage, eager": Variant(settings=CARTPOLE | EAGER, does="the same, eager"),
    "torchtriage, compiled, gymnasium's stepping": Variant(
        settings=CARTPOLE | COMPILED,
        words=("--sync",),
        does="torch, two graphs; gymnasium's SyncVectorEnv; recording and telemetry",
    ),
}
LSTM = {
    RECURRENT: Variant(peer=("ppo_peers.py", "recurrent"), total=4_096, does=EAGER_PEER),
    OURS: Variant(settings=NO_VELOCITY | COMPILED, total=40_960, does=COMPILED_OURS),
    "torchtriage, eager": Variant(settings=NO_VELOCITY | EAGER, total=20_480, does="the same, eager"),
}
PEERS = (("stable-baselines3==2.9.2", "sb3-contrib==2.9.2"), ("sbx-rl==0.28.0",))
# OMP_NUM_THREADS=1, which every process gets, does not reach XLA.
ONE_THREAD = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "NPROC": "1"}
TARGETS = {SB3: 3.0, RECURRENT: 12.0}
MAX_TELEMETRY = 1.01
EVALUATED: dict[str, Any] = {"eval_episodes": 100, "compile": "auto"}
# name: settings, seeds, the published or required figure
RETURNS: dict[str, tuple[dict[str, Any], int, str]] = {
    "CartPole-v1": ({"env": "CartPole-v1"}, 10, "RL Zoo 500 +- 0; 475 on 9 of 10 seeds"),
    "CartPoleNoVel-v1, LSTM": ({"env": "CartPoleNoVel-v1"}, 10, "RL Zoo 500 +- 0; 475 on 8 of 10 seeds"),
    "CartPoleNoVel-v1, no memory": (
        {"env": "CartPoleNoVel-v1", "lstm": False, "hidden": [64, 64]},
        10,
        "clearly worse",
    ),
    "Acrobot-v1": ({"env": "Acrobot-v1"}, 5, "RL Zoo -73.5 +- 18.2"),
    "LunarLander-v3": ({"env": "LunarLander-v3"}, 3, "RL Zoo (v2) 242.1 +- 31.8"),
    "MountainCar-v0": ({"env": "MountainCar-v0"}, 3, "CleanRL -200: the negative control"),
}
SOLVED = 475.0
MAX_SECONDS = 4 * 3600  # of one training: a million steps on a busy machine take more than half an hour


def trained(settings: dict[str, Any], words: tuple[str, ...], cache: Path, observed: bool = True) -> Ended:
    """Ours, observed as `torchtriage train` is."""
    with tempfile.TemporaryDirectory() as folder:
        env = clean_environment(TORCHINDUCTOR_CACHE_DIR=str(cache))
        if observed:
            env["TORCHTRIAGE"] = f"{folder}/out.triage"
        command = [sys.executable, str(PROGRAMS / "ppo_ours.py"), json.dumps(settings), *words]
        return run(command, env, cwd=Path(folder), timeout=MAX_SECONDS)


def train(settings: dict[str, Any], cache: Path) -> dict[str, Any]:
    ended = trained(settings, (), cache)
    return json.loads(ended.stdout) | {"process_seconds": ended.seconds, "cpu_seconds": ended.cpu_seconds}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """A long and a short training of one variant, as complete processes: what the steps between them took."""

    num_steps: int
    cpu_seconds: float
    seconds: float
    long_cpu_seconds: float
    long_seconds: float

    @classmethod
    def of(cls, short: Ended, long: Ended) -> "Pace":
        return cls(
            num_steps=_num_steps(long) - _num_steps(short),
            cpu_seconds=long.cpu_seconds - short.cpu_seconds,
            seconds=long.seconds - short.seconds,
            long_cpu_seconds=long.cpu_seconds,
            long_seconds=long.seconds,
        )

    @property
    def steps_per_cpu_second(self) -> float:
        return self.num_steps / self.cpu_seconds

    @property
    def steps_per_second(self) -> float:
        return self.num_steps / self.seconds


def _num_steps(ended: Ended) -> int:
    return int(json.loads(ended.stdout.splitlines()[-1])["num_steps"])


def process(variant: Variant, total: int, python: str, cache: Path) -> Ended:
    if variant.peer:
        program, *words = variant.peer
        return run([python, str(PROGRAMS / program), *words, "--total", str(total)], clean_environment(**ONE_THREAD))
    return trained(variant.settings | {"total_steps": total}, variant.words, cache)


def pace_of(variant: Variant, python: str, cache: Path) -> Pace:
    short = process(variant, min(SHORT, variant.total // 4), python, cache)
    return Pace.of(short, process(variant, variant.total, python, cache))


def speed(options: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, Any] = {}
    peers = options.peers_python or peers_python("ppo-peers", PEERS)
    for title, variants, base in (
        ("MLP, CartPole-v1", MLP, SB3),
        ("LSTM, CartPole without velocities", LSTM, RECURRENT),
    ):
        if not title.startswith(options.policy):
            continue
        note(f"speed: {title}")
        with tempfile.TemporaryDirectory() as cache:
            for variant in variants.values():  # fills the cache, so that no measured process compiles a kernel
                if variant.settings.get("compile") == "yes":
                    process(variant, 512, peers, Path(cache))
            measured = interleaved(
                tuple(variants), lambda name, v=variants, c=cache: pace_of(v[name], peers, Path(c)), options.rounds
            )
        rates = {name: [pace.steps_per_cpu_second for pace in paces] for name, paces in measured.items()}
        by_base = ratios(rates, base)
        print(
            f"\n{title}: environment steps of a training (8 environments x 32 steps, batch 256, 20 epochs), complete"
            f" processes without their start\n"
        )
        head = ["way", "steps per processor second", f"/ {base}", "steps/s, wall", "target", "what it does"]
        rows = []
        for name, paces in measured.items():
            rate, wall = Spread.of(rates[name]), Spread.of([pace.steps_per_second for pace in paces])
            ratio = by_base[name].show(2) if name in by_base else ""
            target = f">= {TARGETS[base]}" if name == OURS else ""
            rows.append([name, rate.show(0), ratio, wall.show(0), target, variants[name].does])
        print(table(head, rows))
        results[title] = {"paces": measured, "steps_per_cpu_second": rates, "ratios": by_base}
    return results


def telemetry(options: argparse.Namespace) -> dict[str, Any]:
    """The cost of observing a training: complete processes of the same length, kernels from a warm cache."""
    settings = CARTPOLE | COMPILED | {"total_steps": options.telemetry_steps}
    off = settings | {"telemetry_level": "OFF"}
    plain = "not observed, telemetry off"
    variants = {
        plain: lambda cache: trained(off, (), cache, observed=False),
        "observed, telemetry off": lambda cache: trained(off, (), cache),
        "observed, telemetry on": lambda cache: trained(settings, (), cache),
    }
    with tempfile.TemporaryDirectory() as folder:
        for variant in variants.values():
            variant(Path(folder))
        measured = interleaved(tuple(variants), lambda name: variants[name](Path(folder)), options.telemetry_rounds)
    cpu = {name: [one.cpu_seconds for one in ended] for name, ended in measured.items()}
    wall = {name: [one.seconds for one in ended] for name, ended in measured.items()}
    by_cpu, by_wall = ratios(cpu, plain), ratios(wall, plain)
    rows = []
    for name in variants:
        shown = [by[name].show() if name in by else "" for by in (by_cpu, by_wall)]
        rows.append([name, f"{Spread.of(cpu[name]).median:.2f} s", *shown])
    print(f"\n{options.telemetry_steps:,} steps of CartPole-v1, complete processes, / {plain}\n")
    print(table(["training", "processor time", "ratio, processor", "ratio, wall"], rows))
    on, without = cpu["observed, telemetry on"], cpu["observed, telemetry off"]
    of_telemetry = Spread.of([a / b for a, b in zip(on, without, strict=True)])
    print(f"\ntelemetry on / off: {of_telemetry.show()} of the processor time, target {MAX_TELEMETRY}")
    return {"cpu_seconds": cpu, "seconds": wall, "ratios_cpu": by_cpu, "ratios_wall": by_wall, "on_off": of_telemetry}


def wall(options: argparse.Namespace) -> dict[str, Any]:
    """100,000 steps from a cold start: the complete process, including imports."""
    rows, results = [], {}
    for title, settings in (("MLP", CARTPOLE), ("LSTM", NO_VELOCITY)):
        for name, how in (("eager", EAGER), ("compiled, cold cache", COMPILED), ("compiled, warm cache", COMPILED)):
            if name.endswith("cold cache"):
                cache = Path(tempfile.mkdtemp())
            note(f"wall: {title} {name}")
            one = train(
                settings | how | {"total_steps": options.wall_steps},
                cache if how is COMPILED else Path(tempfile.mkdtemp()),
            )
            compiling = one["seconds_by"].get("compile", 0.0)
            times = [f"{seconds:.1f} s" for seconds in (one["process_seconds"], one["cpu_seconds"], compiling)]
            rows.append([title, name, *times])
            results[f"{title}, {name}"] = {
                key: one[key] for key in ("process_seconds", "cpu_seconds", "seconds", "seconds_by")
            }
    print(f"\n{options.wall_steps:,} steps, the whole process\n")
    print(table(["policy", "way", "wall", "processor", "first calls that compile, wall"], rows))
    return results


def returns(options: argparse.Namespace) -> dict[str, Any]:
    rows, results = [], {}
    chosen = [name for name in RETURNS if not options.env or any(name.startswith(env) for env in options.env)]
    with tempfile.TemporaryDirectory() as cache:
        for name in chosen:
            settings, seeds, published = RETURNS[name]
            note(f"returns: {name}")
            scores, seconds = [], []
            for seed in range(min(seeds, options.seeds)):
                one = train(EVALUATED | settings | {"seed": seed}, Path(cache))
                scores.append(one["score"])
                seconds.append(one["seconds"])
                note(f"  seed {seed}: {one['score']:.1f} in {one['seconds']:.0f} s")
            solved = f"{sum(s >= SOLVED for s in scores)} of {len(scores)}" if name.startswith("CartPole") else ""
            spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
            rows.append(
                [
                    name,
                    f"{one['num_steps']:,}",
                    f"{statistics.fmean(scores):.1f} +- {spread:.1f}",
                    f"{min(scores):.1f}",
                    solved,
                    f"{statistics.median(seconds):.0f} s",
                    published,
                ]
            )
            results[name] = {"scores": scores, "seconds": seconds}
    print("\nreturn of 100 episodes with the most likely action after training, over seeds\n")
    head = [
        "environment",
        "steps",
        "mean +- std over seeds",
        "least",
        "at 475 or more",
        "a seed takes",
        "published, or required",
    ]
    print(table(head, rows))
    return results


PARTS = {"speed": speed, "telemetry": telemetry, "wall": wall, "returns": returns}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part; may be given again")
    parser.add_argument(
        "--peers-python", help="an interpreter with stable-baselines3, sb3-contrib and sbx-rl; by default one is made"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--policy", choices=("MLP", "LSTM"), default="", help="speed of this one only")
    parser.add_argument("--telemetry-rounds", type=int, default=9)
    parser.add_argument("--telemetry-steps", type=int, default=100_096)
    parser.add_argument("--wall-steps", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=10, help="at most this many for each environment")
    parser.add_argument("--env", action="append", help="returns of these environments only")
    options = parser.parse_args()
    before = machine()
    save("ppo", before, {part: PARTS[part](options) for part in options.part or PARTS})


if __name__ == "__main__":
    main()
