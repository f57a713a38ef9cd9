"""Inductor tries the processor's vector instructions out with the compiler, once a cache folder: done once for all runs of a study.

Else every run with its empty cache would spend seconds on it, which a user pays once a machine, and no policy has a part in.
"""

import os
import subprocess
from pathlib import Path

from torchtriage.capture.torch_private_shapes import CHECK_PROCESSOR
from torchtriage.launch import environment

_TIMEOUT_SECONDS = 300


def checked_cache(folder: Path, python: str) -> Path | None:
    """A cache of inductor's that holds this check and nothing else; None if this torch has no such check, and each run makes its own."""
    cache = folder / "checked"
    env = {name: value for name, value in os.environ.items() if name not in (environment.FOLDER, environment.POLICY)}
    env["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
    try:
        done = subprocess.run([python, "-c", CHECK_PROCESSOR], env=env, capture_output=True, timeout=_TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return cache if done.returncode == 0 and cache.is_dir() else None
