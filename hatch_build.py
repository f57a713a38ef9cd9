"""Builds the native parts with whatever C compiler there is; without one the wheel is still whole, and says what it lacks."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path("src/torchtriage/native")
# -fno-math-errno: a square root is one instruction. No C++ library is linked.
FAST = ["-std=c++17", "-O3", "-fno-math-errno", "-ffp-contract=fast", "-fno-exceptions", "-fno-rtti", "-fvisibility=hidden"]
LIBRARIES = {
    "_guard_meter": ("guard_meter.c", ["-std=c11", "-O2"]), "_tensor_stats": ("tensor_stats.cpp", FAST), "_lstm": ("lstm.cpp", FAST),
}


class NativeBuildHook(BuildHookInterface[Any]):
    """A plain shared library without Python or torch headers: one build serves every version of both."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        built = [path for name in LIBRARIES if (path := self._build(root, name))]
        if built:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
            build_data["artifacts"] += [str(path.relative_to(root)) for path in built]

    def _build(self, root: Path, name: str) -> Path | None:
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang") or shutil.which("c++")
        source, flags = LIBRARIES[name]
        target = root / NATIVE / f"{name}{'.dll' if sys.platform == 'win32' else '.so'}"
        if compiler is None:
            self.app.display_warning(f"no C compiler: {name} is left out, torchtriage will say what it lacks or do it more slowly")
            return None
        command = [*compiler.split(), *flags, "-shared", "-fPIC", str(root / NATIVE / source), "-o", str(target), "-lm"]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            self.app.display_warning(f"{name} is left out, for {compiler} cannot be run: {error}")
            return None
        if done.returncode:
            self.app.display_warning(f"{name} could not be built and is left out: {done.stderr.strip()[:500]}")
            return None
        return target
