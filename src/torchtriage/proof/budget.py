"""The time that repeated runs may take."""

import re
import time
from dataclasses import dataclass, field

from torchtriage.errors import CommandError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h)?")


def parse_duration(text: str) -> float:
    """90, 90s, 10m or 1.5h, in seconds."""
    match = _DURATION.fullmatch(text.strip())
    seconds = 0.0
    if match is not None:
        seconds = float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2] or "s"]
    if seconds <= 0:
        raise CommandError(f"--budget {text} is not a duration; give seconds, minutes or hours, such as 90s, 10m or 1h")
    return seconds


@dataclass(slots=True, kw_only=True)
class TimeLimit:
    """The time that is left of a number of seconds."""

    seconds: float
    began: float = field(default_factory=time.monotonic)

    @property
    def spent(self) -> float:
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        return max(0.0, self.seconds - self.spent)
