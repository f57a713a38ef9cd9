"""The memory of the learning rules: what they keep of a training between observations."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

STATE_VERSION = 1
MAD_TO_SIGMA = 1.4826
_PARTS = ("windows", "streaks", "numbers", "weights", "tensors")


@dataclass(frozen=True, slots=True)
class Streak:
    """A run of consecutive observations beyond a limit; active once it is long enough, until it is cleared."""

    count: int = 0
    is_active: bool = False

    def after(self, *, beyond: bool, patience: int, cleared: bool | None = None) -> "Streak":
        """The streak after one more observation. It ends when `cleared`; if that is None, when not `beyond`."""
        count = self.count + 1 if beyond else 0
        is_over = not beyond if cleared is None else cleared
        return Streak(count, count >= patience or (self.is_active and not is_over))


NO_STREAK = Streak()


class Memory:
    """Windows of the latest values, streaks and single numbers, each by name; and per tensor. All of it is bounded."""

    def __init__(self) -> None:
        self.windows: dict[str, deque[float]] = {}
        self.streaks: dict[str, Streak] = {}
        self.numbers: dict[str, float] = {}
        self.weights: dict[str, float] = {}                     # the last norm of each tensor
        self.tensors: dict[str, tuple[Streak, ...]] = {}        # of the tensors that are not healthy

    def streak(self, key: str, beyond: bool, patience: int, cleared: bool | None = None) -> Streak:
        """The streak of this name after one more observation."""
        streak = self.streaks.get(key, NO_STREAK).after(beyond=beyond, patience=patience, cleared=cleared)
        self.streaks[key] = streak
        return streak

    def window(self, key: str, size: int | None) -> deque[float]:
        if key not in self.windows:
            self.windows[key] = deque(maxlen=size)
        return self.windows[key]

    def share(self, key: str, holds: bool, size: int) -> tuple[float, int]:
        """The share of the last observations in which a condition held, and the number of these observations."""
        window = self.window(key, size)
        window.append(float(holds))
        return sum(window) / len(window), len(window)

    def count(self, key: str) -> int:
        """The number of calls with this key, including this one."""
        self.numbers[key] = self.numbers.get(key, 0) + 1
        return int(self.numbers[key])

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and dicts: torch.save with weights_only, JSON and pickle all accept it."""
        return {
            "version": STATE_VERSION,
            "windows": {key: [window.maxlen, list(window)] for key, window in self.windows.items()},
            "streaks": {key: _plain(streak) for key, streak in self.streaks.items()},
            "numbers": dict(self.numbers),
            "weights": dict(self.weights),
            "tensors": {name: [_plain(streak) for streak in streaks] for name, streaks in self.tensors.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where the state was taken; nothing changes if it cannot be read."""
        if state.get("version") != STATE_VERSION or any(part not in state for part in _PARTS):
            raise ValueError(
                f"a state of version {STATE_VERSION} with {', '.join(_PARTS)} was expected, found version "
                f"{state.get('version')!r} with {', '.join(sorted(map(str, state)))}; take it from state_dict() of "
                "this version, or start without it"
            )
        windows = {key: deque(values, maxlen=size) for key, (size, values) in state["windows"].items()}
        streaks = {key: _streak(value) for key, value in state["streaks"].items()}
        tensors = {name: tuple(map(_streak, values)) for name, values in state["tensors"].items()}
        self.windows, self.streaks, self.tensors = windows, streaks, tensors
        self.numbers, self.weights = dict(state["numbers"]), dict(state["weights"])


def _plain(streak: Streak) -> list[int]:
    return [streak.count, int(streak.is_active)]


def _streak(value: Iterable[int]) -> Streak:
    count, is_active = value
    return Streak(count, bool(is_active))


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def spread(values: Sequence[float]) -> tuple[float, float]:
    """The median, and the standard deviation of normal data with the same median absolute deviation."""
    middle = median(values)
    return middle, MAD_TO_SIGMA * median([abs(value - middle) for value in values])
