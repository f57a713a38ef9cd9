"""The first release of torch that has each of its names, from the table that benchmarks/torch_versions.py writes."""

from collections.abc import Mapping
from functools import lru_cache
from importlib import resources

OLDEST = "1.6"      # of the releases that were read; a name in it may be older


def since(dotted: str) -> str:
    """The first release with a name of torch, "1.9" or "1.6 or earlier"; empty for a name that is not in the table."""
    version = _table().get(dotted, "")
    return f"{version} or earlier" if version == OLDEST else version


def is_module(dotted: str) -> bool:
    """Whether the table has names below this one."""
    return dotted in _modules()


@lru_cache(maxsize=1)
def _table() -> Mapping[str, str]:
    text = resources.files("torchtriage.review").joinpath("torch_versions.txt").read_text()
    table = {"torch": OLDEST}
    for line in text.splitlines():
        version, module, *names = line.split()
        for name in names:
            table[name if module == "-" else f"{module}.{name}"] = version
    return table


@lru_cache(maxsize=1)
def _modules() -> frozenset[str]:
    return frozenset(name.rpartition(".")[0] for name in _table())
