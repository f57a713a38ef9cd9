"""Build hook for the native libraries, which any C compiler can build.

Without a compiler the wheel still works; torchtriage then reports what is missing, or computes it more slowly.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path("src/torchtriage/native")
# With -fno-math-errno a square root is one instruction. No C++ library is linked.
FAST = [
    "-std=c++17", "-O3", "-fno-math-errno", "-ffp-contract=fast", "-fno-exceptions", "-fno-rtti", "-fvisibility=hidden",
]
LIBRARIES = {
    "_guard_meter": ("guard_meter.c", ["-std=c11", "-O2"]),
    "_process_end": ("process_end.c", ["-std=c11", "-O2"]),
    "_tensor_stats": ("tensor_stats.cpp", FAST),
    "_lstm": ("lstm.cpp", FAST),
}
COMPILERS = ("cc", "gcc", "clang", "c++")


class NativeBuildHook(BuildHookInterface[Any]):
    """Builds shared libraries without Python or torch headers, so that one build works with every version of both."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        targets = [self._build(root, name) for name in LIBRARIES]
        libraries = [str(path.relative_to(root)) for path in targets if path is not None]
        if libraries:
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"
            build_data["artifacts"] += libraries

    def _build(self, root: Path, name: str) -> Path | None:
        """The path of the built library, or None, with a warning, if it could not be built."""
        compiler = os.environ.get("CC") or next(filter(None, map(shutil.which, COMPILERS)), None)
        source, flags = LIBRARIES[name]
        target = root / NATIVE / f"{name}{'.dll' if sys.platform == 'win32' else '.so'}"
        if compiler is None:
            self.app.display_warning(
                f"no C compiler: {name} is left out; torchtriage works without it, but shows less or is slower")
            return None
        command = [*compiler.split(), *flags, "-shared", "-fPIC", str(root / NATIVE / source), "-o", str(target), "-lm"]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            self.app.display_warning(f"{name} is left out: {compiler} cannot be run: {error}")
            return None
        if done.returncode:
            self.app.display_warning(f"{name} is left out: the build failed: {done.stderr.strip()[:500]}")
            return None
        return target
