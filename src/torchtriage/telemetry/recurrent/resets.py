"""Whether a recurrent state starts again with each episode, and only then.   T steps, E environments, B rows."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from torchtriage.recording.facts import BrokenContract, to_dict
from torchtriage.telemetry.recurrent.state_calls import StateCall

MIN_ENDS = 6            # ends of episodes, all of which the state survived
MIN_INSIDE = 32         # steps inside of episodes, in all of which the state was zero
SAME = 1e-5             # relative: the norm of a state that was passed on unchanged
MAX_QUEUE = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rollout:
    steps: Sequence[tuple[Any, ...]]
    calls: Sequence[StateCall]
    names: dict[int, str]
    step: int


@dataclass(slots=True)
class _Counts:
    ends: int = 0
    survived: int = 0
    inside: int = 0
    zero: int = 0


class Resets:
    """TT505 and TT506. A state may start again one step after the end: some vectors of environments reset then."""

    def __init__(self) -> None:
        self._rollouts: deque[_Rollout] = deque(maxlen=MAX_QUEUE)
        self._counts: dict[int, _Counts] = {}
        self._broken: dict[str, BrokenContract] = {}

    def facts(self) -> list[dict[str, Any]]:
        return [to_dict(one) for one in list(self._broken.values())]

    def add(
        self, steps: Sequence[tuple[Any, ...]], calls: Sequence[StateCall], name: Callable[[int], str], step: int,
    ) -> None:
        names = {call.module: name(call.module) for call in calls}
        self._rollouts.append(_Rollout(steps=steps, calls=calls, names=names, step=step))

    def judge(self) -> None:
        """On the background thread."""
        while self._rollouts:
            rollout = self._rollouts.popleft()
            ends = _ends(rollout.steps)
            if ends is None:
                continue
            done_TE, num_keys = ends
            for key, name in rollout.names.items():
                own = [call for call in rollout.calls if call.module == key]
                counts = self._counts.setdefault(key, _Counts())
                _count(own, done_TE, num_keys, counts)
                self._judge(counts, name, rollout.step)

    def _judge(self, counts: _Counts, name: str, step: int) -> None:
        if counts.ends >= MIN_ENDS and counts.survived == counts.ends:
            self._broken.setdefault("TT505", BrokenContract(
                code="TT505", step=step, count=counts.survived, total=counts.ends, names=(name,)))
        if counts.inside >= MIN_INSIDE and counts.zero == counts.inside:
            self._broken.setdefault("TT506", BrokenContract(
                code="TT506", step=step, count=counts.zero, total=counts.inside, names=(name,)))


def _ends(steps: Sequence[tuple[Any, ...]]) -> tuple[Any, int] | None:
    """Whether an episode ended, per step and environment, and how many objects step; None if not in turn."""
    keys = list(dict.fromkeys(key for key, *_ in steps))
    rounds, rest = divmod(len(steps), len(keys))
    if rest or any(steps[number][0] != keys[number % len(keys)] for number in range(len(steps))):
        return None
    ended = [np.atleast_1d(np.asarray(terminated, bool) | np.asarray(truncated, bool))
             for _, _, terminated, truncated in steps]
    if len({one.shape for one in ended}) != 1:
        return None
    return np.stack(ended).reshape(rounds, -1), len(keys)


def _count(calls: Sequence[StateCall], done_TE: Any, num_keys: int, counts: _Counts) -> None:
    num_steps, num_environments = done_TE.shape
    by_step: dict[int, list[StateCall]] = {}
    for call in calls:
        by_step.setdefault(call.position // num_keys, []).append(call)
    usable = {
        t: group[0] for t, group in by_step.items()
        if t < num_steps and len(group) == 1 and group[0].is_one_step and group[0].hidden_B.numel() == num_environments
    }
    kept_TE, zero_TE = {}, {}
    for t, call in usable.items():
        before = usable.get(t - 1)
        if before is None:
            continue
        old_E = before.hidden_B.cpu().numpy()
        new_E = np.zeros_like(old_E) if call.given_B is None else call.given_B.cpu().numpy()
        kept_TE[t] = (old_E > 0) & (np.abs(new_E - old_E) <= SAME * old_E)
        zero_TE[t] = (old_E > 0) & (new_E == 0.0)
    for t in kept_TE:
        if t + 1 in kept_TE:
            ended_E = done_TE[t - 1]
            counts.ends += int(ended_E.sum())
            counts.survived += int((ended_E & kept_TE[t] & kept_TE[t + 1]).sum())
        if t >= 2:
            inside_E = ~done_TE[t - 1] & ~done_TE[t - 2]
            counts.inside += int(inside_E.sum())
            counts.zero += int((inside_E & zero_TE[t]).sum())
