"""Checkpoints of a training: written atomically, with the previous one kept, refused for a different config."""

import contextlib
import dataclasses
import io
from pathlib import Path
from typing import Any

import torch

from torchtriage.errors import CommandError
from torchtriage.files import open_regular, replace_file
from torchtriage.rl.config import CHECKPOINTS, TrainConfig, differences

VERSION = 2


def check_free(folder: Path) -> None:
    """Refuse a folder that already has checkpoints: a later resume could load those of the other training."""
    if any(folder.glob(CHECKPOINTS)):
        raise CommandError(
            f"{folder} has checkpoints of an earlier training; "
            f"continue that training with --resume {folder}, or name another folder"
        )


def save(folder: Path, update: int, config: TrainConfig, state: dict[str, Any], before: Path | None = None) -> Path:
    """Write a checkpoint, then delete all but it and the one `before` it.

    Raises OSError if it cannot be written; the existing checkpoints are then unchanged.
    """
    buffer = io.BytesIO()  # torch's own writer would report a full disk as a RuntimeError
    torch.save({"version": VERSION, "config": dataclasses.asdict(config), "update": update, "state": state}, buffer)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"update-{update:08d}.pt"
    buffer.seek(0)
    replace_file(path, buffer, durable=True)
    for old in set(folder.glob(CHECKPOINTS)) - {path, before}:
        with contextlib.suppress(OSError):
            old.unlink()
    return path


def load(folder: Path, config: TrainConfig) -> tuple[dict[str, Any], Path, list[str]]:
    """(state, file, messages) of the newest checkpoint that can be read; refused if its config differs."""
    paths = sorted(folder.glob(CHECKPOINTS), reverse=True)
    if not paths:
        raise CommandError(f"no checkpoint in {folder}; make one with: torchtriage train --checkpoint {folder}")
    notes: list[str] = []
    for path in paths:
        try:
            with open_regular(path, follow=True) as file:
                saved = torch.load(file, map_location="cpu", weights_only=True)
            problem = _problem(saved)
        except Exception as error:  # torch raises many types for a damaged file; the previous one may be intact
            problem = f"{type(error).__name__}: {error}"
        if not problem:
            return _checked(saved, path, config, notes)
        notes.append(f"{path} cannot be read ({problem})")
    raise CommandError(f"no checkpoint in {folder} can be read: {'; '.join(notes)}")


def _problem(saved: Any) -> str:
    """Why this is not the content of a checkpoint; empty if it is."""
    if not isinstance(saved, dict) or "version" not in saved:
        return "it is not a checkpoint of torchtriage"
    if saved["version"] != VERSION:
        return (f"it is of version {saved['version']}, this torchtriage reads version {VERSION}; resume it with the"
                " torchtriage that wrote it, or start again without --resume")
    for part in ("config", "state"):
        if not isinstance(saved.get(part), dict):
            return f"it has no {part}"
    odd = [name for name, value in saved["config"].items() if type(value) not in (str, bool, int, float, tuple, list)]
    return f"{', '.join(map(str, odd))} of its config is not a setting" if odd else ""


def _checked(
    saved: dict[str, Any], path: Path, config: TrainConfig, notes: list[str],
) -> tuple[dict[str, Any], Path, list[str]]:
    fixed, free = differences(saved["config"], config)
    if fixed:
        raise CommandError(
            f"{path} belongs to another config; differences (saved -> now): {', '.join(fixed)}; "
            "give the saved values, or start again without --resume"
        )
    paths = ("resume:", "checkpoint:")  # they do not affect the training
    changes = [text for text in free if not text.startswith(paths)]
    if changes:
        notes = [*notes, f"different from the checkpoint: {', '.join(changes)}"]
    return saved["state"], path, notes
