"""Torch's name of a guarded value, turned into what the user writes: `L['self']._modules['0'].idx` -> `self[0].idx`."""

import functools
import re

_LOCAL = re.compile(r"\b[LG]\[\s*(['\"])(.*?)\1\s*\]")
_IMPORT = re.compile(r"\b__import_(\w+)")
_REGISTERED = re.compile(r"\.(?:_modules|_parameters|_buffers|__dict__)\[(['\"])(\w+)\1\]")
_KEYWORD = re.compile(r"(?<![\w.])kwargs\[(['\"])(\w+)\1\]")
_WRAPPER = re.compile(r"(?:___from_numpy|___as_tensor|math\.trunc)\((.*)\)", re.DOTALL)
_DICT_VALUE = re.compile(r"dict\.__getitem__\((.+), list\(dict\.keys\(\1\)\)\[(\d+)\]\)")
_DICT_ITEM = re.compile(r"dict\.__getitem__\((.+?), (.+?)\)")
_KEY = re.compile(r"list\(dict\.keys\((.+)\)\)\[(\d+)\]")
_FUNCTION_PART = re.compile(r"\.(?:__code__|__closure__\[\d+\]\.cell_contents)")


@functools.lru_cache(maxsize=4096)
def readable(path: str) -> str:
    """The shortest form that the user knows; a path that is not known is returned as it is."""
    name = _LOCAL.sub(r"\2", path.strip())
    name = _KEYWORD.sub(r"\2", name)
    name = _IMPORT.sub(lambda found: found[1].replace("_dot_", "."), name)
    while wrapped := _WRAPPER.fullmatch(name.removesuffix(".item()")):
        name = wrapped[1]
    name = _DICT_VALUE.sub(r"list(\1.values())[\2]", name)
    name = _DICT_ITEM.sub(r"\1[\2]", name)
    name = _KEY.sub(r"list(\1)[\2]", name)
    name = _REGISTERED.sub(lambda found: f"[{found[2]}]" if found[2].isdigit() else f".{found[2]}", name)
    return _FUNCTION_PART.sub("", name)
