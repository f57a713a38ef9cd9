"""PPO: returns over seeds against published figures, and speed beside Stable-Baselines3, sb3-contrib and a plain loop.

The peers are the real packages, in a separate venv that shares torch with this one. Everything runs with one torch
thread. Processes take turns; a ratio is between runs that are adjacent in time.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What is run: a peer, or settings of ours; `words` are flags of the program."""

    peer: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    total: int = 20_000


SB3, RECURRENT = "Stable-Baselines3 PPO", "sb3-contrib RecurrentPPO"
MLP = {
    SB3: Variant(peer="sb3"),
    "plain loop": Variant(peer="loop"),
    "torchtriage, compiled": Variant(settings=CARTPOLE | COMPILED),
    "torchtriage, eager": Variant(settings=CARTPOLE | EAGER),
    "torchtriage, compiled, gymnasium's stepping": Variant(settings=CARTPOLE | COMPILED, words=("--sync",)),
    "torchtriage, compiled, telemetry off": Variant(settings=CARTPOLE | COMPILED | {"telemetry_level": "OFF"}),
}
LSTM = {
    RECURRENT: Variant(peer="recurrent", total=5_120),
    "torchtriage, compiled": Variant(settings=NO_VELOCITY | COMPILED),
    "torchtriage, eager": Variant(settings=NO_VELOCITY | EAGER),
}
PEERS = (("stable-baselines3==2.9.2", "sb3-contrib==2.9.2"),)
TARGETS = {SB3: 3.0, RECURRENT: 12.0}
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


def train(settings: dict[str, Any], words: tuple[str, ...], cache: Path) -> dict[str, Any]:
    """Ours, observed as `torchtriage train` is."""
    with tempfile.TemporaryDirectory() as folder:
        env = clean_environment(TORCHTRIAGE=f"{folder}/out.triage", TORCHINDUCTOR_CACHE_DIR=str(cache))
        command = [sys.executable, str(PROGRAMS / "ppo_ours.py"), json.dumps(settings), *words]
        ended = run(command, env, cwd=Path(folder), timeout=MAX_SECONDS)
    return json.loads(ended.stdout) | {"process_seconds": ended.seconds}


def speed_of(variant: Variant, python: str, cache: Path) -> float:
    """Environment steps per second once warm."""
    if variant.peer:
        words = [python, str(PROGRAMS / "ppo_peers.py"), variant.peer, "--total", str(variant.total)]
        return json.loads(run(words, clean_environment()).stdout.splitlines()[-1])["steps_per_second"]
    return train(variant.settings | {"total_steps": variant.total}, variant.words, cache)["steady"]


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
            for variant in variants.values():  # fills the cache, so that no measured process compiles
                if variant.settings.get("compile") == "yes":
                    train(variant.settings | {"total_steps": 512}, variant.words, Path(cache))
            measured = interleaved(
                tuple(variants), lambda name, v=variants, c=cache: speed_of(v[name], peers, Path(c)), options.rounds
            )
        by_base = ratios(measured, base)
        rows = [
            [
                name,
                f"{Spread.of(values).median:,.0f}",
                by_base[name].show(2) if name in by_base else "",
                f">= {TARGETS[base]}" if name == "torchtriage, compiled" else "",
            ]
            for name, values in measured.items()
        ]
        print(
            f"\n{title}: environment steps a second (8 environments x 32 steps, batch 256, 20 epochs), and in those of"
            f" {base}\n"
        )
        print(table(["way", "steps/s", "ratio", "target"], rows))
        results[title] = {"steps_per_second": measured, "ratios": by_base}
        on, off = (measured.get(name) for name in ("torchtriage, compiled", "torchtriage, compiled, telemetry off"))
        if on and off:
            cost = Spread.of([b / a for a, b in zip(on, off, strict=True)])
            print(f"\ntelemetry on / off: {cost.show()} of the time, target 1.01")
            results["telemetry"] = cost
    return results


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
                (),
                cache if how is COMPILED else Path(tempfile.mkdtemp()),
            )
            compiling = one["seconds_by"].get("compile", 0.0)
            rows.append([title, name, f"{one['process_seconds']:.1f} s", f"{compiling:.1f} s", f"{one['steady']:,.0f}"])
            results[f"{title}, {name}"] = {
                key: one[key] for key in ("process_seconds", "seconds", "seconds_by", "steady")
            }
    print(f"\n{options.wall_steps:,} steps, the whole process\n")
    print(table(["policy", "way", "seconds", "of which first calls that compile", "steps/s then"], rows))
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
                one = train(EVALUATED | settings | {"seed": seed}, (), Path(cache))
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


PARTS = {"speed": speed, "wall": wall, "returns": returns}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part; may be given again")
    parser.add_argument(
        "--peers-python", help="a python with stable-baselines3 and sb3-contrib; by default one is made in .cache"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--policy", choices=("MLP", "LSTM"), default="", help="speed of this one only")
    parser.add_argument("--wall-steps", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=10, help="at most this many for each environment")
    parser.add_argument("--env", action="append", help="returns of these environments only")
    options = parser.parse_args()
    before = machine()
    save("ppo", before, {part: PARTS[part](options) for part in options.part or PARTS})


if __name__ == "__main__":
    main()
