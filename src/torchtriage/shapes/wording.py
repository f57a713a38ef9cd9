"""How a study words times, ratios and counts."""

import math


def seconds_text(seconds: float) -> str:
    """Three digits: 0.42 ms, 81.3 ms, 12.4 s, 134 s."""
    value, unit = (seconds, "s") if seconds >= 1 else (1e3 * seconds, "ms") if seconds >= 1e-3 else (1e6 * seconds, "us")
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}" if value >= 10 else f"{value:.2f} {unit}"


def minutes_text(seconds: float) -> str:
    """As a budget is given: 90s, 12m."""
    return f"{math.ceil(seconds)}s" if seconds < 120 else f"{math.ceil(seconds / 60)}m"


def units_text(number: int, unit: str) -> str:
    return f"{number:,} {unit}{'s' * (number != 1)}"


def times_text(ratio: float) -> str:
    """1.4x, 31x."""
    return f"{ratio:.2f}x" if ratio < 2 else f"{ratio:.1f}x" if ratio < 10 else f"{ratio:.0f}x"


def listed(names: list[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""
