"""Remembers beside inductor's own cache how long a compile took, so that the next run can tell whether compiling pays."""

import getpass
import hashlib
import json
import os
import tempfile
from pathlib import Path

import torch

from torchtriage.rl.schedules import WARM_COMPILE_SECONDS


def known_seconds(key: str) -> float | None:
    """How long a compile will take now; None if nothing like it was compiled with this cache."""
    try:
        seconds = json.loads(_path(key).read_text(encoding="utf-8"))["warm_seconds"]
        return WARM_COMPILE_SECONDS if seconds is None else float(seconds)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember(key: str, seconds: float) -> None:
    """The first compile was cold, and only says that the next will be warm; a cache that cannot be written is no trouble of a training."""
    warm = None if known_seconds(key) is None else seconds
    try:
        path = _path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(f".{os.getpid()}")
        half.write_text(json.dumps({"warm_seconds": warm}), encoding="utf-8")
        os.replace(half, path)
    except OSError:
        pass


def key_of(*parts: object) -> str:
    """Of all that shapes the code: another shape or another torch compiles anew."""
    return hashlib.sha256(repr((torch.__version__, *parts)).encode()).hexdigest()[:24]


def _path(key: str) -> Path:
    return _cache_folder() / "torchtriage" / f"{key}.json"


def _cache_folder() -> Path:
    """Where inductor keeps its cache by its documentation."""
    named = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return Path(named) if named else Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}"
