"""Resumes environments in the middle of their episodes: from their state as data, or by replaying the episodes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from torchtriage.errors import TriageError
from torchtriage.rl.envs.serial import SerialVectorEnv, Tape
from torchtriage.rl.envs.state_data import NotDataError, from_data, to_data

STATE, PLAYED, RESTARTED = "state", "played", "restarted"


def save_vector(vector: VectorEnv[Any, Any, Any], name: str) -> dict[str, Any]:
    """The state of the environments as data; warns if it cannot be restored."""
    saved = {"stepping": type(vector).__name__}
    try:
        if isinstance(vector, SerialVectorEnv) and vector.tapes is not None:
            tapes = [[tape.start, np.array(tape.actions)] for tape in vector.tapes]
            return {**saved, "how": PLAYED, "data": to_data([tapes, vector.observations], "episodes")}
        return {**saved, "how": STATE, "data": [to_data(env, "env") for env in _stateful(vector)]}
    except NotDataError as error:
        warnings.warn(
            f"a run resumed from here starts new episodes, so it differs from an uninterrupted one: {name} cannot be"
            f" saved as data ({error})",
            stacklevel=3,
        )
        return {**saved, "how": RESTARTED, "data": None}


def load_vector(
    vector: VectorEnv[Any, Any, Any],
    saved: dict[str, Any],
    name: str,
    seed: tuple[int, int],
) -> dict[int, Any]:
    """Give the environments their saved state; returns the first observations of those that were restarted instead.

    The observations are by index; an environment is restarted if its state cannot be restored.
    """
    how = saved["how"]
    if saved["stepping"] != type(vector).__name__:
        raise TriageError(
            f"expected the state of {name} stepped as {type(vector).__name__}, found one stepped as"
            f" {saved['stepping']}; resume with the stepping it was saved with"
        )
    new_seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
    problem = "it could not be saved"
    vector.reset(seed=new_seed)     # an environment may make the objects with its state only now
    try:
        if how == PLAYED and isinstance(vector, SerialVectorEnv):
            tapes, observations = from_data(saved["data"], None, "episodes")
            return _play(vector, [Tape(start, list(actions)) for start, actions in tapes], observations, name)
        if how == STATE:
            for data, env in zip(saved["data"], _stateful(vector), strict=True):
                if from_data(data, env, "env") is not env:
                    raise NotDataError("its state is damaged")
            return {}
    except Exception as error:  # a state from a file may have any form
        problem = str(error) if isinstance(error, NotDataError) else f"{type(error).__name__}: {error}"
    warnings.warn(f"the run continues with new episodes of {name}: {problem}", stacklevel=3)
    return dict(enumerate(vector.reset(seed=new_seed)[0]))


def _stateful(vector: VectorEnv[Any, Any, Any]) -> list[Any]:
    """The objects with the state; a serial vector has none of its own."""
    return vector.envs if isinstance(vector, SerialVectorEnv) else [vector]


def _play(vector: SerialVectorEnv, tapes: list[Tape], observations: Any, name: str) -> dict[int, Any]:
    """Replay every episode; an environment that does not reach the same observation is restarted."""
    if len(tapes) != vector.num_envs or np.shape(observations) != vector.observations.shape:
        raise NotDataError("the state of its episodes is damaged")
    vector.tapes, vector.observations, restarted = tapes, observations, {}
    for index, (tape, env) in enumerate(zip(tapes, vector.envs, strict=True)):
        if not np.array_equal(tape.play(env), observations[index]):
            restarted[index] = observations[index] = vector.next_episode(index)
    if restarted:
        warnings.warn(
            f"environments {sorted(restarted)} continue with new episodes, so the run differs from an uninterrupted"
            f" one: {name} cannot be saved as data, and replaying the same actions gave different observations",
            stacklevel=4,
        )
    return restarted
