"""Compile times of earlier runs, kept beside inductor's cache: the next run decides by them whether to compile."""

import getpass
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

import torchtriage
from torchtriage.files import replace_file


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileTime:
    """Something that was compiled with this cache.

    `warm_seconds` is the shortest time that compiling it again took, None if it was not compiled again so far.
    """

    warm_seconds: float | None


def load(key: str) -> CompileTime | None:
    """The entry of a key; None if it was not compiled with this cache."""
    try:
        seconds = json.loads(_path(key).read_text(encoding="utf-8"))["warm_seconds"]
        return CompileTime(warm_seconds=None if seconds is None else float(seconds))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def save(key: str, seconds: float) -> None:
    """Record a compile that took `seconds`; a cache that cannot be written does not affect the training.

    The first compile was cold: it only shows that the next one will be warm. The shortest time is kept: if a slow
    compile on a busy machine were taken as typical, `auto` would never compile again, and so never correct it.
    """
    before = load(key)
    warm = None
    if before is not None:
        warm = seconds if before.warm_seconds is None else min(seconds, before.warm_seconds)
    try:
        path = _path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps({"warm_seconds": warm}).encode())
    except OSError:
        pass


def key_of(*parts: object) -> str:
    """A key of everything that the generated code depends on: shapes, and the versions of torch and torchtriage."""
    return hashlib.sha256(repr((torch.__version__, torchtriage.__version__, *parts)).encode()).hexdigest()[:24]


def _path(key: str) -> Path:
    return _cache_folder() / "torchtriage" / f"{key}.json"


def _cache_folder() -> Path:
    """The folder of inductor's cache, as its documentation gives it."""
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return Path(folder) if folder else Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}"
