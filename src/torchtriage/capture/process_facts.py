"""The facts of a process: its program, its machine, the folders of its code."""

import glob
import json
import os
import platform
import sys
import sysconfig
from typing import Any

from torchtriage.launch.environment import RUN_ID
from torchtriage.launch.privacy import allowed_environment, redacted

# Bytes of a RECORD file, about 200 lines: enough to name the packages of a distribution, and fast for hundreds.
RECORD_HEAD = 16_384


def process_facts(started: float) -> dict[str, Any]:
    """The facts of this process, as recording/facts.ProgramFacts reads them; nothing is imported for them."""
    from torchtriage import __version__

    torch = sys.modules.get("torch")
    rank = os.environ.get("RANK")
    return {
        "run_id": os.environ.get(RUN_ID), "start": started, "pid": os.getpid(), "ppid": os.getppid(),
        "argv": redacted(getattr(sys, "argv", [])), "executable": sys.executable, "cwd": _working_folder(),
        "host": platform.node() or "host",
        "rank": int(rank) if rank and rank.isdecimal() else None, "world_size": os.environ.get("WORLD_SIZE"),
        "python": platform.python_version(), "platform": _platform(), "cpu_count": os.cpu_count(),
        "torch": str(getattr(torch, "__version__", "")) or None, "torchtriage": __version__,
        "environment": allowed_environment(os.environ), "your_roots": your_roots(),
        "torch_dir": os.path.dirname(getattr(torch, "__file__", "") or ""), "libraries": installed_libraries(),
    }


def _working_folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:     # deleted
        return None


def _platform() -> str:
    """As platform.platform(), which starts a process (`uname -p`): the program might wait for it as for its own."""
    libc = "".join(platform.libc_ver())
    return "-".join(filter(None, (platform.system(), platform.release(), platform.machine(), libc and f"with-{libc}")))


def your_roots() -> list[str]:
    """The folders that hold the user's code: that of the script, the working folder, and editable installs."""
    cwd = _working_folder()
    roots = [] if cwd is None else [cwd]
    main = sys.modules.get("__main__")
    script = getattr(main, "__file__", None) or (sys.argv[0] if getattr(sys, "argv", None) else "")
    if script and (cwd or os.path.isabs(script)):
        roots.insert(0, os.path.dirname(os.path.abspath(script)))
    roots.extend(_editable_roots())
    return list(dict.fromkeys(roots))


def _site_folders() -> list[str]:
    return list(dict.fromkeys(sysconfig.get_paths()[name] for name in ("purelib", "platlib")))


def _editable_roots() -> list[str]:
    roots = []
    for folder in _site_folders():
        for path in glob.glob(os.path.join(folder, "*.dist-info", "direct_url.json")):
            try:
                with open(path, encoding="utf-8") as file:
                    url = json.load(file)
            except (OSError, ValueError):
                continue
            if url.get("dir_info", {}).get("editable") and url.get("url", "").startswith("file://"):
                roots.append(url["url"].removeprefix("file://"))
    return roots


def installed_libraries() -> dict[str, tuple[str, str]]:
    """Top-level package -> (distribution, version) of everything installed, from folder names and RECORD files."""
    libraries: dict[str, tuple[str, str]] = {}
    for folder in _site_folders():
        for info in glob.glob(os.path.join(folder, "*.dist-info")):
            name, _, version = os.path.basename(info).removesuffix(".dist-info").rpartition("-")
            for top in _top_levels(info) or [name]:
                libraries.setdefault(top, (name.replace("_", "-"), version))
    return libraries


def _top_levels(info: str) -> list[str]:
    try:
        with open(os.path.join(info, "top_level.txt"), encoding="utf-8") as file:
            return file.read().split()
    except OSError:
        pass
    try:
        with open(os.path.join(info, "RECORD"), "rb") as file:
            head = file.read(RECORD_HEAD).decode("utf-8", "replace")
    except OSError:
        return []
    folders = {line.partition("/")[0] for line in head.splitlines() if "/" in line}
    return [name for name in folders if not name.endswith("-info") and name not in ("..", "__pycache__")]
