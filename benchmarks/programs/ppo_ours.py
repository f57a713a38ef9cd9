"""One training as `torchtriage train` runs it, without its command line: prints its results as JSON.

`--sync` uses gymnasium's own stepping.
"""

import argparse
import json

import gymnasium

from torchtriage.rl import engine
from torchtriage.rl.config import resolved
from torchtriage.rl.envs.gymnasium import GymnasiumEnvironments
from torchtriage.rl.envs.protocol import Environments
from torchtriage.rl.trainer import Trainer


def plain_stepping(config: object, **_: object) -> Environments:
    """As Stable-Baselines3's DummyVecEnv does it: one environment after another, with gymnasium's wrappers."""
    vector = gymnasium.make_vec(config.env, config.envs, vectorization_mode="sync")
    return GymnasiumEnvironments(vector, config.env)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", help="as JSON, by the names of TrainConfig's fields")
    parser.add_argument("--sync", action="store_true")
    options = parser.parse_args()
    if options.sync:
        engine.new_environments = plain_stepping
    settings = {
        name: tuple(value) if isinstance(value, list) else value for name, value in json.loads(options.settings).items()
    }
    results = Trainer(resolved(settings)).train()
    print(json.dumps({**results.to_dict(), "score": results.score}))


if __name__ == "__main__":
    main()
