"""The kernel gives the same statistics with every compiler and instruction set."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from hatch_build import LIBRARIES, NATIVE
from tests.unit.telemetry.reference import KINDS, SIZES, assert_exact, sample, true_row
from torchtriage.telemetry.statistics import native as kernel
from torchtriage.telemetry.statistics.plan import statistics

ROOT = Path(__file__).parents[3]


@pytest.mark.thorough
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_kernel_of_any_compiler_gives_the_statistics_of_float64(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    source, flags = LIBRARIES["_tensor_stats"]
    library = tmp_path / "kernel.so"
    strict = ["-Wall", "-Wextra", "-Werror"]
    subprocess.run(
        [compiler, *flags, *strict, "-shared", "-fPIC", str(ROOT / NATIVE / source), "-o", str(library), "-lm"],
        check=True,
    )
    built = kernel.Kernel(ctypes.CDLL(str(library)))
    monkeypatch.setattr(kernel, "load", lambda: built)
    for kind in KINDS:
        tensors = [sample(kind, size) for size in SIZES]
        truths = [true_row(tensor) for tensor in tensors]
        for isa in built.isas:
            for row, truth in zip(statistics(tensors, path=isa), truths, strict=True):
                assert_exact(row, truth)
