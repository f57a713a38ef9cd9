"""Remembers beside inductor's own cache how long a compile took,
so that the next run knows whether compiling pays off.
"""

import getpass
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

import torchtriage


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """Of what this cache holds: `warm_seconds` is the least that compiling it again took, None if nobody did so far."""

    warm_seconds: float | None


def remembered(key: str) -> Remembered | None:
    """None if nothing of this key was compiled with this cache."""
    try:
        seconds = json.loads(_path(key).read_text(encoding="utf-8"))["warm_seconds"]
        return Remembered(warm_seconds=None if seconds is None else float(seconds))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember(key: str, seconds: float) -> None:
    """The first compile was cold, and only says that the next will be warm; a cache that cannot be written does not
    affect the training.

    The least is kept: a compile on a busy machine that was taken for the rule would keep `auto` from ever compiling,
    and so from learning.
    """
    before = remembered(key)
    warm = None if before is None else seconds if before.warm_seconds is None else min(seconds, before.warm_seconds)
    try:
        path = _path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(f".{os.getpid()}")
        half.write_text(json.dumps({"warm_seconds": warm}), encoding="utf-8")
        os.replace(half, path)
    except OSError:
        pass


def key_of(*parts: object) -> str:
    """A key of everything that the generated code depends on: shapes, the torch version and our version."""
    return hashlib.sha256(repr((torch.__version__, torchtriage.__version__, *parts)).encode()).hexdigest()[:24]


def _path(key: str) -> Path:
    return _cache_folder() / "torchtriage" / f"{key}.json"


def _cache_folder() -> Path:
    """Where inductor keeps its cache by its documentation."""
    named = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return Path(named) if named else Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}"
