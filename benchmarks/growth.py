"""The growth environment: time per step, compile time, and the returns of agents on the same tasks over ten seeds.

    python benchmarks/growth.py [--seeds 10] [--episodes 4] [--trained] [--only speed|agents]

Speed: 16 hosts x 4 slots x 16 subsets of the slots, one thread, eager and compiled in turn. Agents: always waiting,
random, the best fixed schedule (searched on separate tasks), and with --trained PPO, trained for each seed. Every agent
of a seed gets the same tasks: 16 environments x --episodes.
"""

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from typing import Any

import common

NUM_ENVS = 16
BLOCK = 20  # steps of a variant in a row
SEARCH_SEED = 77_000  # far from the seeds of the agents' tasks
FIRST_STEP = """
import time
import torch
from torchtriage.rl.growth.environment import GrowthEnvironments
torch.set_num_threads(1)
began = time.perf_counter()
GrowthEnvironments({num_envs}).reset(0)
print(time.perf_counter() - began)
"""


def speed(rounds: int) -> dict[str, Any]:
    import torch

    from torchtriage.rl.growth.environment import GrowthEnvironments

    torch.set_num_threads(1)
    variants = {"eager": GrowthEnvironments(NUM_ENVS, compile=False), "compiled": GrowthEnvironments(NUM_ENVS)}
    generators = {}
    for name, environments in variants.items():
        environments.reset(0)
        generators[name] = torch.Generator().manual_seed(0)
    wall: dict[str, list[float]] = {name: [] for name in variants}
    cpu: dict[str, list[float]] = {name: [] for name in variants}
    for _, (name, environments) in itertools.product(range(rounds), variants.items()):
        for _ in range(BLOCK):
            actions = torch.randint(environments.spaces.num_actions, (NUM_ENVS,), generator=generators[name])
            began, cpu_began = time.perf_counter(), time.thread_time()
            ended = environments.step(actions).episodes
            if not ended:  # the step that ends an episode also draws the next one and warms it up
                wall[name].append(1e3 * (time.perf_counter() - began))
                cpu[name].append(1e3 * (time.thread_time() - cpu_began))
    return {name: {"ms": common.Spread.of(wall[name]), "cpu_ms": common.Spread.of(cpu[name])} for name in variants}


def first_steps() -> dict[str, float]:
    """Seconds until the first observation in a fresh process:
    with an empty inductor cache, then with what that left.
    """
    program = FIRST_STEP.format(num_envs=NUM_ENVS)
    with tempfile.TemporaryDirectory() as cache:
        environment = common.clean_environment(TORCHINDUCTOR_CACHE_DIR=cache)
        cold, warm = (common.run([sys.executable, "-c", program], env=environment) for _ in range(2))
    return {
        "cold_s": float(cold.stdout),
        "cold_cpu_s": cold.cpu_seconds,
        "warm_s": float(warm.stdout),
        "warm_cpu_s": warm.cpu_seconds,
    }


def agents(num_seeds: int, episodes: int, trained: bool) -> dict[str, Any]:
    import torch
    from growth_schedules import AlwaysWait, RandomAgent, ScheduledAgent, all_schedules, best_schedule, mean_return

    from torchtriage.rl.growth.environment import GrowthEnvironments
    from torchtriage.rl.trainer import EVAL_SEED

    torch.set_num_threads(1)
    environments = GrowthEnvironments(NUM_ENVS)
    num_slots, num_steps = environments.settings.host.num_slots, environments.settings.episode_steps
    schedules = all_schedules(num_slots, num_steps)
    common.note(f"searching {len(schedules)} schedules")
    schedule, searched = best_schedule(environments, schedules, seed=SEARCH_SEED, episodes=episodes)
    returns: dict[str, list[float]] = {"always wait": [], "random": [], "best schedule": []} | (
        {"trained": []} if trained else {}
    )
    for seed in range(num_seeds):
        choices = {
            "always wait": AlwaysWait(),
            "random": RandomAgent(environments.spaces.num_actions or 0, seed),
            "best schedule": ScheduledAgent(schedule, num_slots, num_steps),
        }
        for name, agent in choices.items():
            returns[name].append(mean_return(environments, agent, seed=seed + EVAL_SEED, episodes=episodes))
        if trained:
            returns["trained"].append(train(seed, episodes))
        common.note(f"seed {seed}: " + ", ".join(f"{name} {values[-1]:.3f}" for name, values in returns.items()))
    return {"schedule": schedule, "schedule_on_search_tasks": searched, "returns": returns}


def train(seed: int, episodes: int) -> float:
    """The mean return of PPO with the settings of `torchtriage train --env growth`,
    on the tasks of the other agents.
    """
    from torchtriage.rl.config import resolved
    from torchtriage.rl.trainer import Trainer

    with tempfile.TemporaryDirectory() as folder:
        config = resolved(
            {"env": "growth", "envs": NUM_ENVS, "seed": seed, "compile": "yes", "eval_episodes": episodes * NUM_ENVS}
        )
        return Trainer(config, beside=f"{folder}/growth").train().eval_return


def show_agents(found: dict[str, Any]) -> None:
    waiting = found["returns"]["always wait"]
    rows = []
    for name, values in found["returns"].items():
        gains = [value - base for value, base in zip(values, waiting, strict=True)]
        spread = statistics.stdev(values) if len(values) > 1 else float("nan")
        rows.append(
            [
                name,
                f"{statistics.fmean(values):.3f}",
                f"{spread:.3f}",
                common.Spread.of(gains).show(),
                f"{sum(gain > 0 for gain in gains)} of {len(gains)}",
            ]
        )
    print(f"\nbest fixed schedule: {found['schedule']}")
    print(common.table(["agent", "mean return", "std over seeds", "above always wait", "seeds above it"], rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--episodes", type=int, default=4, help="of each environment, agent and seed")
    parser.add_argument("--rounds", type=int, default=15, help=f"of {BLOCK} steps, eager and compiled")
    parser.add_argument("--trained", action="store_true", help="train PPO for each seed too")
    parser.add_argument("--only", choices=("speed", "agents"))
    args = parser.parse_args()
    before, results = common.machine(), {}
    if args.only != "agents":
        results["first_step"], results["speed"] = first_steps(), speed(args.rounds)
        print(
            common.table(
                ["variant", "ms a step", "processor ms a step"],
                [[name, found["ms"].show(2), found["cpu_ms"].show(2)] for name, found in results["speed"].items()],
            )
        )
        print(", ".join(f"{name} {value:.1f}" for name, value in results["first_step"].items()))
    if args.only != "speed":
        results["agents"] = agents(args.seeds, args.episodes, args.trained)
        show_agents(results["agents"])
    common.save("growth", before, results)


if __name__ == "__main__":
    main()
