"""The settings, from [tool.torchtriage] in pyproject.toml and from the environment; nothing else reads either."""

import dataclasses
import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchtriage.errors import CommandError

SEVERITIES = ("P0", "P1", "P2", "P3", "P4")
FORMATS = ("text", "json", "html", "markdown", "sarif", "github", "chrome")
COLOURS = ("auto", "always", "never")
TRAIN = "train"     # [tool.torchtriage.train]: the settings of a training, which rl.config checks
_SWITCH = {"1": True, "true": True, "0": False, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Each key is a flag, with `-` instead of `_`."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fail_on: str = "never"
    baseline: str | None = None
    format: str | None = None
    color: str = "auto"
    measure: bool = False
    telemetry: bool = True          # the flag is --no-telemetry
    # For lint: pairs of a pattern for paths and the codes that are not reported there; a table without a flag.
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    tickets: str | None = None      # the folder of tickets; the flag is --folder of `torchtriage ticket`


def load_config(folder: Path, environ: Mapping[str, str]) -> Config:
    """The settings of the file, overridden by the environment; the commands override both with their flags."""
    values = _from_file(folder)
    for field in dataclasses.fields(Config):
        variable = f"TORCHTRIAGE_{field.name.upper()}"
        if environ.get(variable) and field.name != "per_file_ignores":      # a table; only the file can hold it
            values[field.name] = _parsed(field.name, environ[variable], variable)
    return Config(**values)


def project_folder(folder: Path) -> Path | None:
    """The nearest folder with a pyproject.toml: this one or one above it."""
    return next((parent for parent in (folder, *folder.parents) if (parent / "pyproject.toml").is_file()), None)


def train_table(folder: Path) -> tuple[dict[str, Any], Path | None]:
    """The unchecked content of [tool.torchtriage.train], and the file it is in."""
    project = project_folder(folder)
    path = project / "pyproject.toml" if project else None
    table = _table(path).get(TRAIN, {}) if path else {}
    if not isinstance(table, dict):
        raise CommandError(f"[tool.torchtriage.train] in {path} must be a table, got {table!r}")
    return table, path


def _from_file(folder: Path) -> dict[str, Any]:
    project = project_folder(folder)
    return _checked(project / "pyproject.toml") if project else {}


def _table(path: Path) -> dict[str, Any]:
    try:
        tools = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError, RecursionError) as error:
        raise CommandError(f"cannot read {path}: {error}") from error
    table = tools.get("torchtriage", {}) if isinstance(tools, dict) else tools
    if not isinstance(table, dict):
        raise CommandError(f"[tool.torchtriage] in {path} must be a table, got {table!r}")
    return table


def _checked(path: Path) -> dict[str, Any]:
    table = {key: value for key, value in _table(path).items() if key != TRAIN}
    names = {field.name.replace("_", "-"): field.name for field in dataclasses.fields(Config)}
    values = {}
    for key, value in table.items():
        if key not in names:
            raise unknown_key(key, names, f"[tool.torchtriage] of {path}")
        values[names[key]] = _parsed(names[key], value, f"{key} in {path}")
    for name in ("baseline", "tickets"):
        if name in values:
            values[name] = str(path.parent / values[name])
    return values


def unknown_key(key: str, valid: Iterable[str], where: str) -> CommandError:
    """The error for a key that does not exist, with the valid key nearest to it, or all of them."""
    near = difflib.get_close_matches(key, valid, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"valid keys: {', '.join(valid)}"
    return CommandError(f"unknown key {key!r} in {where}; {hint}")


def _parsed(name: str, value: Any, where: str) -> Any:
    if name in ("select", "ignore"):
        return check_codes(value, where)
    if name == "fail_on":
        return check_threshold(value, where)
    if name == "per_file_ignores":
        return _per_file_ignores(value, where)
    allowed = {"color": COLOURS, "format": FORMATS}.get(name)
    if allowed and value not in allowed:
        raise CommandError(f"{where} must be one of {', '.join(allowed)}, got {value!r}")
    if name in ("measure", "telemetry"):
        switch = _SWITCH.get(str(value).lower())
        if switch is None:
            raise CommandError(f"{where} must be true or false, got {value!r}")
        return switch
    if not isinstance(value, str):
        raise CommandError(f"{where} must be a string, got {value!r}")
    return value


def _per_file_ignores(value: Any, where: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The table `{"tests/*" = ["TT101"]}`, which only the file can hold."""
    if not isinstance(value, dict):
        raise CommandError(f"{where} must be a table of path patterns with lists of codes, got {value!r}")
    return tuple((pattern, check_codes(codes, f"{pattern!r} of {where}")) for pattern, codes in value.items())


def check_codes(value: Any, where: str) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise CommandError(f"{where} must be a list of codes, got {value!r}")
    return tuple(item.strip().upper() for item in items if item.strip())


def check_threshold(value: Any, where: str) -> str:
    if isinstance(value, str) and (value.upper() in SEVERITIES or value.lower() == "never"):
        return value.upper() if value.upper() in SEVERITIES else "never"
    raise CommandError(f"{where} must be P0, P1, P2, P3, P4 or never, got {value!r}")


def current_config() -> Config:
    return load_config(Path.cwd(), os.environ)
