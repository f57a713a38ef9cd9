"""Calls back as soon as a module has been imported, by whichever import."""

from __future__ import annotations

import sys

from torchtriage.errors import hide_frame, pass_on_signals, tell

TYPE_CHECKING = False   # importing typing would be most of the cost of an observed process that never imports torch
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType
    from typing import Any

    Callback = Callable[[ModuleType], None]


class _CallingLoader:
    """A loader that restores the original one before the module runs, so that the module never sees it."""

    def __init__(self, loader: Any, callback: Callback) -> None:
        self._loader = loader
        self._callback = callback

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        try:
            return self._loader.create_module(spec)
        except BaseException as error:
            hide_frame(error)
            raise

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        try:
            self._loader.exec_module(module)
        except BaseException as error:
            hide_frame(error)
            raise
        _safely(self._callback, module)


class ImportWatcher:
    """A finder that finds no modules itself, but wraps the loader of those that it waits for."""

    def __init__(self) -> None:
        self._waiting: dict[str, Callback] = {}

    def when_imported(self, name: str, callback: Callback) -> None:
        """Call back now if the module is loaded, else right after its import."""
        module = sys.modules.get(name)
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            _safely(callback, module)
            return
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        self._waiting[name] = callback

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        if name not in self._waiting:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1:]:    # those before this one found nothing
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    loader = _CallingLoader(spec.loader, lambda module: self._on_import(name, module))
                    spec.loader = loader  # type: ignore[assignment]
                return spec
        return None

    def _on_import(self, name: str, module: ModuleType) -> None:
        """Stop waiting only now: a search for the spec, as by importlib.util.find_spec, need not import the module."""
        callback = self._waiting.pop(name, None)
        if not self._waiting and self in sys.meta_path:
            sys.meta_path.remove(self)
        if callback is not None:
            callback(module)


def _safely(callback: Callback, module: ModuleType) -> None:
    """Call back; our failure must not become an ImportError of the program."""
    try:
        callback(module)
    except Exception as error:
        pass_on_signals(error)
        tell(f"could not observe {module.__name__}: {type(error).__name__}: {error}")
