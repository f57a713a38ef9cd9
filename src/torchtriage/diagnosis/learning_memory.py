"""What the learning rules remember from one observation to the next, and its form in a checkpoint."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from torchtriage.diagnosis.learning_checks import Streak
from torchtriage.diagnosis.tensor_checks import TensorMemory

STATE_VERSION = 1
_PARTS = ("windows", "streaks", "numbers", "weights", "tensors")


class Memory:
    """Windows of the last values, streaks, single numbers, and what is known of tensors; all by name, all bounded."""

    def __init__(self) -> None:
        self.windows: dict[str, deque[float]] = {}
        self.streaks: dict[str, Streak] = {}
        self.numbers: dict[str, float] = {}
        self.weights: dict[str, float] = {}             # the last norm of each tensor
        self.tensors: dict[str, TensorMemory] = {}      # those that are not well

    def streak(self, key: str, beyond: bool, patience: int, cleared: bool | None = None) -> Streak:
        """The streak of this name with one more observation in it."""
        now = self.streaks[key] = self.streaks.get(key, Streak()).after(beyond=beyond, patience=patience, cleared=cleared)
        return now

    def window(self, key: str, size: int | None) -> deque[float]:
        if key not in self.windows:
            self.windows[key] = deque(maxlen=size)
        return self.windows[key]

    def share(self, key: str, holds: bool, size: int) -> tuple[float, int]:
        """How often it held in the last observations, and how many those are."""
        window = self.window(key, size)
        window.append(float(holds))
        return sum(window) / len(window), len(window)

    def count(self, key: str) -> int:
        """How often this was asked, this time included."""
        self.numbers[key] = self.numbers.get(key, 0) + 1
        return int(self.numbers[key])

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and dicts: torch.save with weights_only, JSON and pickle all take it."""
        return {
            "version": STATE_VERSION,
            "windows": {key: [window.maxlen, list(window)] for key, window in self.windows.items()},
            "streaks": {key: _plain(streak) for key, streak in self.streaks.items()},
            "numbers": dict(self.numbers),
            "weights": dict(self.weights),
            "tensors": {
                name: [*map(_plain, (m.zero, m.unchanged, m.mostly_zero, m.large, m.small))] for name, m in self.tensors.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where the state was taken; nothing changes if it cannot be read."""
        if state.get("version") != STATE_VERSION or any(part not in state for part in _PARTS):
            raise ValueError(
                f"a state of version {STATE_VERSION} with {', '.join(_PARTS)} was expected, found version {state.get('version')!r} with "
                f"{', '.join(sorted(map(str, state)))}; take it from state_dict() of this version, or begin without it"
            )
        windows = {key: deque(values, maxlen=size) for key, (size, values) in state["windows"].items()}
        streaks = {key: _streak(value) for key, value in state["streaks"].items()}
        tensors = {name: TensorMemory(*map(_streak, streaks_of)) for name, streaks_of in state["tensors"].items()}
        self.windows, self.streaks, self.tensors = windows, streaks, tensors
        self.numbers, self.weights = dict(state["numbers"]), dict(state["weights"])


def _plain(streak: Streak) -> list[int]:
    return [streak.count, int(streak.is_active)]


def _streak(value: Iterable[int]) -> Streak:
    count, is_active = value
    return Streak(count, bool(is_active))
