"""A callback comes right after the import of a module, which is not affected by it."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from torchtriage.launch.imports import ImportWatcher


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with modules on sys.path; sys.modules and sys.meta_path as before at the end."""
    (tmp_path / "tt_one.py").write_text(
        "STATE = 'whole'\nLOADER = type(__loader__).__name__\nSPEC = type(__spec__.loader).__name__\n"
    )
    (tmp_path / "tt_bad.py").write_text("raise ValueError('the module is broken')\n")
    (tmp_path / "tt_pkg").mkdir()
    (tmp_path / "tt_pkg" / "__init__.py").write_text("from tt_pkg import sub\n")
    (tmp_path / "tt_pkg" / "sub.py").write_text("VALUE = 7\n")
    (tmp_path / "tt_space").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("tt_")]:
        del sys.modules[name]


def test_the_callback_comes_after_the_module_has_run() -> None:
    seen: list[str] = []
    ImportWatcher().when_imported("tt_one", lambda module: seen.append(module.STATE))
    assert seen == []
    importlib.import_module("tt_one")
    importlib.import_module("tt_one")
    assert seen == ["whole"]


def test_the_module_never_sees_our_loader() -> None:
    ImportWatcher().when_imported("tt_one", lambda module: None)
    module = importlib.import_module("tt_one")
    assert (module.LOADER, module.SPEC) == ("SourceFileLoader", "SourceFileLoader")
    assert type(module.__loader__).__name__ == type(module.__spec__.loader).__name__ == "SourceFileLoader"
    assert importlib.reload(module) is module


def test_a_callback_that_raises_does_not_break_the_import(stderr: pytest.CaptureFixture[str]) -> None:
    def callback(module: ModuleType) -> None:
        raise RuntimeError("ours")

    ImportWatcher().when_imported("tt_one", callback)
    assert importlib.import_module("tt_one").STATE == "whole"
    assert stderr.readouterr().err == "torchtriage: could not observe tt_one: RuntimeError: ours\n"


def test_a_module_that_is_already_loaded_calls_back_at_once() -> None:
    module = importlib.import_module("tt_one")
    seen: list[ModuleType] = []
    ImportWatcher().when_imported("tt_one", seen.append)
    assert seen == [module]


def test_a_module_that_is_being_imported_is_not_loaded_yet(modules: Path) -> None:
    (modules / "tt_late.py").write_text("import tt_probe\ntt_probe.ask()\nSTATE = 'whole'\n")
    seen: list[bool] = []
    probe = ModuleType("tt_probe")
    probe.ask = lambda: ImportWatcher().when_imported(
        "tt_late", lambda m: seen.append(hasattr(m, "STATE")),
    )  # type: ignore[attr-defined]
    sys.modules["tt_probe"] = probe
    importlib.import_module("tt_late")
    assert False not in seen


def test_a_submodule_that_its_package_imports_calls_back() -> None:
    seen: list[int] = []
    watcher = ImportWatcher()
    watcher.when_imported("tt_pkg.sub", lambda module: seen.append(module.VALUE))
    importlib.import_module("tt_pkg")
    assert seen == [7]


def test_several_watchers_may_wait_for_several_modules() -> None:
    seen: list[str] = []
    watcher = ImportWatcher()
    watcher.when_imported("tt_one", lambda module: seen.append("first"))
    watcher.when_imported("tt_pkg", lambda module: seen.append("pkg"))
    ImportWatcher().when_imported("tt_one", lambda module: seen.append("second"))
    importlib.import_module("tt_pkg")
    module = importlib.import_module("tt_one")
    assert sorted(seen) == ["first", "pkg", "second"]
    assert type(module.__loader__).__name__ == "SourceFileLoader"


def test_an_error_in_a_module_does_not_show_our_frames() -> None:
    called: list[ModuleType] = []
    ImportWatcher().when_imported("tt_bad", called.append)
    with pytest.raises(ValueError, match="the module is broken"):
        importlib.import_module("tt_bad")
    assert called == []
    assert "tt_bad" not in sys.modules


def test_a_module_whose_first_import_failed_is_still_awaited(modules: Path) -> None:
    called: list[ModuleType] = []
    ImportWatcher().when_imported("tt_bad", called.append)
    with pytest.raises(ValueError):
        importlib.import_module("tt_bad")
    (modules / "tt_bad.py").write_text("CURED = True  # and of another size\n")
    importlib.invalidate_caches()
    importlib.import_module("tt_bad")
    assert len(called) == 1


def test_a_watcher_that_has_nothing_to_wait_for_is_removed() -> None:
    before = list(sys.meta_path)
    ImportWatcher().when_imported("tt_one", lambda module: None)
    importlib.import_module("tt_one")
    assert sys.meta_path == before


def test_a_module_that_does_not_exist_is_still_missing() -> None:
    ImportWatcher().when_imported("tt_nowhere", lambda module: None)
    with pytest.raises(ModuleNotFoundError, match="tt_nowhere"):
        importlib.import_module("tt_nowhere")


def test_finding_the_spec_of_a_module_does_not_call_back() -> None:
    seen: list[ModuleType] = []
    ImportWatcher().when_imported("tt_one", seen.append)
    assert importlib.util.find_spec("tt_one") is not None
    assert seen == []
    importlib.import_module("tt_one")
    assert len(seen) == 1


def test_a_namespace_package_is_imported_as_usual() -> None:
    ImportWatcher().when_imported("tt_space", lambda module: None)
    assert importlib.import_module("tt_space").__path__


def test_a_finder_without_find_spec_is_skipped() -> None:
    seen: list[ModuleType] = []
    ImportWatcher().when_imported("tt_one", seen.append)
    sys.meta_path.insert(1, object())  # type: ignore[arg-type]
    importlib.import_module("tt_one")
    assert len(seen) == 1


def test_a_watcher_that_waits_again_is_installed_once() -> None:
    watcher = ImportWatcher()
    watcher.when_imported("tt_one", lambda module: None)
    importlib.import_module("tt_one")
    watcher.when_imported("tt_pkg", lambda module: None)
    assert sys.meta_path.count(watcher) == 1  # type: ignore[arg-type]
