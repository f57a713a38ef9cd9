"""Calls back before a program ends in a way that skips atexit: os._exit or exec."""

import ctypes
import os
import sys
from collections.abc import Callable
from importlib import import_module

from torchtriage.capture.torch_private.base import unseen

FAST, FAST_WITH_KEYWORDS = 0x80, 0x82       # METH_FASTCALL, METH_FASTCALL | METH_KEYWORDS
FLAGS = {"_exit": FAST_WITH_KEYWORDS, "execv": FAST, "execve": FAST_WITH_KEYWORDS}
_Callback = ctypes.PYFUNCTYPE(None, ctypes.c_int)
_kept: list[object] = []        # what C calls


class _Method(ctypes.Structure):
    """PyMethodDef: the C function behind a Python function."""

    _fields_ = (("name", ctypes.c_char_p), ("call", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


def watch_end(before_exit: Callable[[], None], before_exec: Callable[[], None]) -> str:
    """Call back before each such call, which may still fail; returns "" on success, else why it is not possible."""
    library = _load()
    if library is None:
        return "the native part was not built (no C compiler when torchtriage was installed)"
    methods = [_method(name) for name in FLAGS]
    if None in methods:
        return "this Python implements os._exit and exec differently"
    callback = _Callback(unseen(lambda number: before_exit() if number == 0 else before_exec()))
    _kept.append(callback)
    library.process_end_call(callback)
    for number, method in enumerate(methods):
        library.process_end_watch(number, method)
    return ""


def _method(name: str) -> int | None:
    """The address of the PyMethodDef of a function of os; None if it is not as expected."""
    function = getattr(import_module(os.name), name, None)      # os.name is also the name of the module behind os
    if sys.implementation.name != "cpython" or type(function) is not type(len):
        return None
    address = ctypes.c_void_p.from_address(id(function) + object.__basicsize__).value
    method = _Method.from_address(address) if address else None
    is_expected = method is not None and (method.name, method.flags) == (name.encode(), FLAGS[name])
    return address if is_expected else None


def _load() -> ctypes.PyDLL | None:
    suffix = ".dll" if sys.platform == "win32" else ".so"
    folder = os.path.dirname(import_module("torchtriage.native").__file__ or "")
    try:
        library = ctypes.PyDLL(os.path.join(folder, f"_process_end{suffix}"))
    except OSError:
        return None
    library.process_end_call.argtypes = [_Callback]
    library.process_end_watch.argtypes = [ctypes.c_int, ctypes.c_void_p]
    library.process_end_call.restype = library.process_end_watch.restype = None
    return library
