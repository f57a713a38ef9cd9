"""Make a vector environment from its name, with the fastest stepping for the number of environments."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from torchtriage.errors import TriageError
from torchtriage.rl.config import STEPPINGS
from torchtriage.rl.envs import cartpole
from torchtriage.rl.envs.serial import SerialVectorEnv

# CartPole, microseconds per step of all environments, serial and vector: 84 and 67 with 8 environments, 153 and 71
# with 16, 532 and 72 with 64. A vector entry point resets in a separate step, so an episode costs a dead transition
# (1 in 22 while the policy is random). This pays off where it halves the time of a step.
VECTOR_FROM = 16
SHORT_NAMES = {cartpole.NO_VELOCITIES.removeprefix("torchtriage/"): cartpole.NO_VELOCITIES}


def make_vector(name: str, num_envs: int, stepping: str = "auto") -> VectorEnv[Any, Any, Any]:
    """`num_envs` of the environment `name`; an error says what was requested, what was found and what to do."""
    if num_envs < 1:
        raise TriageError(f"expected at least 1 environment, got {num_envs}; give --envs 1 or more")
    if stepping not in STEPPINGS:
        raise TriageError(f"expected a stepping of {', '.join(STEPPINGS)}, got {stepping!r}")
    spec = _spec(name)
    has_vector = spec.vector_entry_point is not None
    if stepping == "vector" and not has_vector:
        raise TriageError(f"{name} has no vector entry point in gymnasium's registry; step it as serial")
    try:
        if stepping == "vector" or (stepping == "auto" and has_vector and num_envs >= VECTOR_FROM):
            return gymnasium.make_vec(spec, num_envs, vectorization_mode="vector_entry_point")
        # gymnasium's checker inspects every step of every environment; GymnasiumEnvironments checks the numbers of all
        # of them at once.
        return SerialVectorEnv(lambda: gymnasium.make(spec, disable_env_checker=True), num_envs)
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise TriageError(f"{name} needs a package that is missing: {error}") from error


def _spec(name: str) -> gymnasium.envs.registration.EnvSpec:
    """gymnasium's entry of NAME, or of MODULE:NAME after importing the module, which registers it."""
    cartpole.register()
    module, _, env_id = name.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        return gymnasium.spec(SHORT_NAMES.get(env_id, env_id))
    except ImportError as error:
        raise TriageError(f"{name} names a module that cannot be imported: {error}") from error
    except gymnasium.error.Error as error:
        names = {other.lower(): other for other in (*gymnasium.registry, *SHORT_NAMES)}
        nearest = [names[match] for match in difflib.get_close_matches(env_id.lower(), names)]
        advice = "give an environment of another package as MODULE:NAME"
        if nearest:
            advice = f"did you mean {' or '.join(nearest)}?"
        raise TriageError(f"gymnasium has no environment {env_id!r}; {advice}") from error
