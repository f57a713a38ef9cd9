"""Calls back as soon as a module has been imported, whoever imports it."""

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from torchtriage.errors import hide_frame

Callback = Callable[[ModuleType], None]


class _CallingLoader:
    """A loader that steps aside before the module runs, so that the module never sees it."""

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
    """A finder that finds nothing itself and only wraps the loader of the modules it waits for."""

    def __init__(self) -> None:
        self._waiting: dict[str, Callback] = {}

    def when_imported(self, name: str, callback: Callback) -> None:
        """Call back now if the module is loaded, else right after it has been."""
        module = sys.modules.get(name)
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            _safely(callback, module)
            return
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        self._waiting[name] = callback

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        callback = self._waiting.pop(name, None)
        if callback is None:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        if not self._waiting:
            sys.meta_path.remove(self)
        for finder in others:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _CallingLoader(spec.loader, callback)  # type: ignore[assignment]
                return spec
        return None


def _safely(callback: Callback, module: ModuleType) -> None:
    """Our failure must not become an ImportError of the user's."""
    try:
        callback(module)
    except Exception as error:
        print(f"torchtriage: could not observe {module.__name__}: {type(error).__name__}: {error}", file=sys.stderr)
