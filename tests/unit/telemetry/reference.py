"""Reference statistics in float64 and wider, and the kinds of data on which they are compared."""

from collections.abc import Callable

import numpy as np
import torch

from torchtriage.telemetry.statistics.columns import LARGE, NUM_STATS, SMALL, Stat

# Extended precision where the platform has it; scaled by a power of two, so that no square leaves its range.
WIDE = np.longdouble
SIZES = (
    0,
    1,
    2,
    3,
    7,
    8,
    9,
    15,
    16,
    17,
    31,
    32,
    33,
    63,
    64,
    65,
    127,
    129,
    1000,
    4095,
    4096,
    4097,
    8191,
    8192,
    8193,
    20_011,
)


def true_row(tensor: torch.Tensor, small: float = SMALL, large: float = LARGE) -> np.ndarray:
    x = tensor.detach().double().numpy().ravel()
    row = np.zeros(NUM_STATS)
    size = np.abs(np.where(np.isnan(x), np.nan, x))
    with np.errstate(invalid="ignore"):
        row[Stat.NUM_NAN :] = [
            np.isnan(x).sum(),
            np.isinf(x).sum(),
            (x == 0).sum(),
            (size < small).sum(),
            (size > large).sum(),
            x.size,
        ]
    finite = x[np.isfinite(x)]
    if finite.size:
        row[Stat.MIN], row[Stat.MAX], row[Stat.MAX_ABS] = finite.min(), finite.max(), np.abs(finite).max()
    if row[Stat.MAX_ABS]:
        exponent = np.frexp(row[Stat.MAX_ABS])[1]
        scaled = np.ldexp(finite.astype(WIDE), -exponent)
        mean = scaled.mean()
        moments = (np.sqrt((scaled**2).sum()), mean, np.sqrt(((scaled - mean) ** 2).mean()))
        row[: Stat.MIN] = [float(np.ldexp(moment, exponent)) for moment in moments]
    return row


def errors(row: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Of norm and std relative; of the mean relative to max(|mean|, std).

    What a double cannot tell apart is no error.
    """
    scales = {
        Stat.NORM: truth[Stat.NORM],
        Stat.MEAN: max(abs(truth[Stat.MEAN]), truth[Stat.STD]),
        Stat.STD: truth[Stat.STD],
    }
    found = {}
    for stat, scale in scales.items():
        error = 0.0 if row[stat] == truth[stat] else abs(row[stat] - truth[stat])
        lost = 1e-322 + (4e-16 * abs(truth[Stat.MEAN]) if stat is Stat.STD else 0.0)
        found[stat.name] = 0.0 if error <= lost else error / scale if scale else np.inf
    return found


def assert_exact(row: np.ndarray, truth: np.ndarray, limit: float = 1e-6) -> None:
    """Extremes and counts equal; norm, mean and std within the limit."""
    names = [s.name for s in Stat if s >= Stat.MIN and row[s] != truth[s]]
    assert not names, f"{names}: {row} is not {truth}"
    assert all(error <= limit for error in errors(row, truth).values()), (errors(row, truth), row, truth)


def _sprinkled(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[::97], x[1::89], x[2::83] = float("nan"), float("inf"), float("-inf")
    return x


KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "normal": lambda x: x.float(),
    "float64": lambda x: x,
    "bf16": lambda x: x.bfloat16(),
    "fp16": lambda x: x.half(),
    "1e25": lambda x: (x * 1e25).float(),
    "1e-30": lambda x: (x * 1e-30).float(),
    "mean 1e4": lambda x: (x + 1e4).float(),
    "mean 1e7": lambda x: (x + 1e7).float(),
    "mean -1e4 bf16": lambda x: (x * 100 - 1e4).bfloat16(),
    "all equal": lambda x: torch.full_like(x, 3.14159).float(),
    "all equal negative bf16": lambda x: torch.full_like(x, -3.14159).bfloat16(),
    "all equal, 1e-300": lambda x: torch.full_like(x, 1e-300),
    "zeros": lambda x: (x * 0).float(),
    "mostly zeros": lambda x: (x * (x.abs() > 2)).float(),
    "positive": lambda x: x.abs().float(),
    "fp16 x 1000": lambda x: (x * 1000).half(),
    "fp16 subnormal": lambda x: (x * 1e-6).half(),
    "bf16 huge": lambda x: (x * 1e37).bfloat16(),
    "NaN and Inf": lambda x: _sprinkled(x).float(),
    "NaN and Inf bf16": lambda x: _sprinkled(x).bfloat16(),
    "NaN and Inf fp16": lambda x: _sprinkled(x).half(),
    "NaN and Inf float64": _sprinkled,
    "all NaN": lambda x: (x * float("nan")).float(),
    "subnormal": lambda x: (x * 1e-42).float(),
    "some subnormal": lambda x: (x.sign() * 10.0 ** (10 * x - 36)).float(),
    "bf16 subnormal": lambda x: (x * 1e-39).bfloat16(),
    "float64 subnormal": lambda x: x * 1e-320,
    "float64 zeros, then subnormal": lambda x: torch.where(torch.arange(len(x)) < 4096, 0.0, x.sign() * 1e-320),
    "float64 1e300": lambda x: x * 1e300,
    "float64 mean 1e12": lambda x: x + 1e12,
    "one outlier": lambda x: torch.where(torch.arange(len(x)) == len(x) // 2, 1e8, x).float(),
    "heavy tails": lambda x: torch.exp(8 * x).float(),
    "largest float": lambda x: (x.sign() * 3.4e38).float(),
    "two regimes": lambda x: torch.where(torch.arange(len(x)) < len(x) // 2, x + 1e4, x * 1e-3).float(),
    "at the limits": lambda x: (
        torch.tensor([SMALL, -SMALL, LARGE, -LARGE, 0.0, -0.0]).repeat(len(x) // 6 + 1)[: len(x)].float()
    ),
}


def sample(kind: str, size: int) -> torch.Tensor:
    return KINDS[kind](torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(size)))
