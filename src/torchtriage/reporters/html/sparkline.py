"""A line of a few numbers, as inline SVG that needs no script."""

import math
from collections.abc import Sequence

WIDTH, HEIGHT, MARGIN = 96, 20, 2
MIN_POINTS = 3


def sparkline(values: Sequence[str]) -> str:
    """The values as a line; empty if they are not all numbers, or too few to draw."""
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        return ""
    if len(numbers) < MIN_POINTS:
        return ""
    low, high = min(numbers), max(numbers)
    span = (high - low) or 1.0
    if not math.isfinite(span) or not all(map(math.isfinite, numbers)):
        return ""
    across, down = (WIDTH - 2 * MARGIN) / (len(numbers) - 1), HEIGHT - 2 * MARGIN
    points = " ".join(f"{MARGIN + i * across:.1f},{MARGIN + down * (1 - (n - low) / span):.1f}" for i, n in enumerate(numbers))
    label = f"{len(numbers)} values, from {low:g} to {high:g}"
    return f'<svg class="spark" role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {HEIGHT}"><polyline points="{points}"/></svg>'
