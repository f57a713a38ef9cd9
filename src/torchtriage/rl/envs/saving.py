"""Save and restore environments in the middle of their episodes, by pickling them or by replaying the episodes."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from torchtriage.errors import TriageError
from torchtriage.rl.envs.serial import SerialVectorEnv

# A state is stored as bytes in a tensor, which torch.load accepts even with weights_only=True. The bytes are a pickle,
# so a checkpoint must come from a trusted source nevertheless.
PICKLED, PLAYED, RESTARTED = "pickled", "played", "restarted"


def save_vector(vector: VectorEnv[Any, Any, Any], name: str) -> dict[str, Any]:
    """The state of the environments; warns if it cannot be restored."""
    if isinstance(vector, SerialVectorEnv) and vector.tapes is not None:
        return {"how": PLAYED, "data": _bytes([vector.tapes, vector.observations])}
    try:
        return {"how": PICKLED, "data": _bytes(vector.envs if isinstance(vector, SerialVectorEnv) else vector)}
    except Exception as error:  # an object that cannot be pickled may raise anything
        warnings.warn(
            f"a run resumed from here starts new episodes, so it differs from an uninterrupted one: {name} cannot be"
            f" pickled ({type(error).__name__}: {error})",
            stacklevel=3,
        )
        return {"how": RESTARTED, "data": None}


def load_vector(
    vector: VectorEnv[Any, Any, Any],
    saved: dict[str, Any],
    name: str,
    seed: tuple[int, int],
) -> tuple[VectorEnv[Any, Any, Any], dict[int, Any]]:
    """The vector environment as it was saved, and the first observations of environments that were restarted instead.

    The latter are by index; an environment is restarted if its state cannot be restored.
    """
    how = saved["how"]
    if how == RESTARTED:
        fresh, _ = vector.reset(seed=int(np.random.SeedSequence(seed).generate_state(1)[0]))
        warnings.warn(f"the run continues with new episodes: {name} could not be saved", stacklevel=3)
        return vector, dict(enumerate(fresh))
    content = pickle.loads(saved["data"].numpy().tobytes())
    if how == PLAYED and isinstance(vector, SerialVectorEnv):
        tapes, observations = content
        return vector, _play(vector, tapes, observations, name)
    if how == PICKLED and isinstance(vector, SerialVectorEnv) and isinstance(content, list):
        vector.close_extras()  # close() would mark the vector as closed, and the loaded ones would never be closed
        vector.envs = content
        return vector, {}
    if how == PICKLED and type(content) is type(vector):
        vector.close()
        return content, {}
    raise TriageError(
        f"expected the state of {name} stepped as {type(vector).__name__}, found another ({how}); "
        "resume with the stepping it was saved with"
    )


def _play(vector: SerialVectorEnv, tapes: list[Any], observations: Any, name: str) -> dict[int, Any]:
    """Replay every episode; an environment that does not reach the same observation is restarted."""
    vector.tapes, vector.observations, restarted = tapes, observations, {}
    for index, (tape, env) in enumerate(zip(tapes, vector.envs, strict=True)):
        if not np.array_equal(tape.play(env), observations[index]):
            restarted[index] = observations[index] = vector.next_episode(index)
    if restarted:
        warnings.warn(
            f"environments {sorted(restarted)} continue with new episodes, so the run differs from an uninterrupted"
            f" one: {name} cannot be pickled, and replaying the same actions gave different observations",
            stacklevel=4,
        )
    return restarted


def _bytes(content: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(pickle.dumps(content)), dtype=torch.uint8)
