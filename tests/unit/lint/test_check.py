"""The result of lint: files that do not parse, comments, per-file ignores, the cache, the evidence of a run."""

import gc
import json
import os
import time
from pathlib import Path

import pytest

from tests.unit.lint.linted import FOLDER, findings, tree_of
from torchtriage.errors import CommandError
from torchtriage.findings.model import Cost, CostKind, Location
from torchtriage.findings.report import Report
from torchtriage.lint.cache import LintCache
from torchtriage.lint.check import lint, read_contents, report_of
from torchtriage.lint.run_evidence import with_run

SICK = "import torch\n@torch.compile\ndef f(x):\n    print(x)\n    return x\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SICK)
    (tmp_path / "broken.py").write_text("def f(:\n")
    return tmp_path


def report(folder: Path, **options: object) -> Report:
    result = lint([folder], [str(folder)])
    return report_of(result, result.findings, working_folder=str(folder), **options)


def test_a_file_that_does_not_parse_is_named_and_skipped(folder: Path) -> None:
    made = report(folder)
    assert [f.code for f in made.findings] == ["TT101"]
    [missing] = made.not_seen
    assert missing.name.endswith("broken.py")
    assert missing.detail.startswith("does not parse: line 1: ")


def test_source_that_is_nested_too_deeply_is_named(folder: Path) -> None:
    deep = "import torch\n@torch.compile\ndef f(x):\n    return " + "(" * 150 + "x" + " + 1)" * 150 + "\n"
    chain = "import torch\n@torch.compile\ndef f(x):\n    return x" + " + x" * 5000 + "\n"
    (folder / "train.py").write_text(deep)
    assert [missing.name for missing in report(folder).not_seen] == [str(folder / "broken.py")]
    (folder / "train.py").write_text(chain)
    assert str(folder / "train.py") in [missing.name for missing in report(folder).not_seen]


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="nothing at"):
        lint([tmp_path / "nowhere.py"], [])


def test_a_comment_suppresses_and_text_that_looks_like_one_does_not(folder: Path) -> None:
    comment = "# torchtriage: ignore[TT101] a demo"
    (folder / "train.py").write_text(SICK.replace("print(x)", f"print(x)  {comment}"))
    made = report(folder)
    assert ([*made.findings], made.num_suppressed) == ([], 1)
    (folder / "train.py").write_text(SICK.replace("print(x)", f"print('{comment}')"))
    assert [f.code for f in report(folder).findings] == ["TT101"]


def test_codes_are_ignored_in_files_that_match_a_pattern(folder: Path) -> None:
    made = report(folder, per_file_ignores={"tr*.py": ("TT1",)})
    assert ([*made.findings], made.num_hidden) == ([], 1)
    assert len(report(folder, per_file_ignores={"other/*": ("TT1",)}).findings) == 1


def test_an_unchanged_source_is_read_from_the_cache_and_a_changed_one_is_not(folder: Path) -> None:
    cache = LintCache(folder)
    first = lint([folder], [str(folder)], cache)
    assert lint([folder], [str(folder)], cache) == first
    entries = json.loads(cache.path.read_text())
    [entry] = entries.values()
    entry["findings"][0]["title"] = "from the cache"
    cache.path.write_text(json.dumps(entries))
    assert lint([folder], [str(folder)], cache).findings[0].title == "from the cache"
    (folder / "train.py").write_text(SICK + "\n")
    assert lint([folder], [str(folder)], cache).findings[0].title != "from the cache"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1}'])
def test_a_damaged_cache_is_not_used(folder: Path, text: str) -> None:
    cache = LintCache(folder)
    cache.path.parent.mkdir()
    cache.path.write_text(text)
    assert [f.code for f in lint([folder], [str(folder)], cache).findings] == ["TT101"]


def test_a_fingerprint_survives_lines_above_and_another_folder() -> None:
    [first] = findings(SICK)
    [moved] = findings("# a comment\n\n" + SICK)
    assert first.fingerprint == moved.fingerprint


def test_a_finding_that_the_run_saw_has_its_cost() -> None:
    [finding] = findings(SICK)
    cost = Cost(seconds=2.0, kind=CostKind.OBSERVED)
    observed = finding.with_(title="seen", cost=cost, fingerprint="other")
    [joined] = with_run([finding], [observed], set())
    assert (joined.title, joined.cost) == ("seen", cost)
    assert "seen in this run" in joined.cause


def test_a_finding_that_the_run_did_not_see_says_so() -> None:
    [finding] = findings(SICK)
    elsewhere = finding.with_(fingerprint="other", location=Location(path=f"{FOLDER}/other.py", line=4, function="f"))
    [joined] = with_run([finding], [elsewhere], set())
    assert joined.cause.endswith("not seen in this run")
    [joined] = with_run([finding], [], {(f"{FOLDER}/train.py", "f")})
    assert joined.cause.endswith("although the function was compiled")


def test_imports_are_resolved_through_packages_and_reexports() -> None:
    tree = tree_of(**{
        "kit/__init__": "from kit.timing import timed\n", "kit/timing": "def timed(f):\n    return f\n",
        "train": "from kit import timed as clock\n",
    })
    [train] = [file for file in tree.files if file.path.endswith("train.py")]
    definition = tree.definition(train.imports["clock"], train)
    assert definition is not None
    assert definition.file.path.endswith("kit/timing.py")


@pytest.mark.parametrize("was_enabled", [True, False])
def test_the_garbage_collector_is_as_before(was_enabled: bool, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    known = gc.isenabled()
    try:
        (gc.enable if was_enabled else gc.disable)()
        lint([tmp_path], [str(tmp_path)])
        assert gc.isenabled() is was_enabled
    finally:
        (gc.enable if known else gc.disable)()


def test_a_pipe_a_device_or_a_broken_link_among_the_source_is_left_out(tmp_path: Path) -> None:
    """An editor leaves links to nothing; opening a pipe would wait for ever."""
    (tmp_path / "train.py").write_text("import torch\n")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / ".#train.py").symlink_to("someone@machine.1234")
    (tmp_path / "device.py").symlink_to("/dev/zero")
    assert list(read_contents([tmp_path])) == [str(tmp_path / "train.py")]
    with pytest.raises(CommandError, match="it is not a regular file"):
        read_contents([tmp_path / "pipe.py"])


def test_hostile_source_is_read_in_time(tmp_path: Path) -> None:
    """Each would take time that doubles with its lines, or is quadratic in them."""
    doubling = "".join(f"a{n} = (a{n - 1}, a{n - 1})\nd{n} = {{'x': d{n - 1}, 'y': [d{n - 1}]}}\n"
                       for n in range(1, 60))
    (tmp_path / "nested.py").write_text(
        f"import torch\na0 = d0 = (1, 2)\n{doubling}@torch.compile\ndef f(x, y):\n    return x\nf(a59, d59)\n")
    branches = "".join(f"    elif x.sum() == {n}:\n        return x\n" for n in range(400))
    (tmp_path / "branches.py").write_text(
        f"import torch\n@torch.compile\ndef f(x):\n    if x is None:\n        pass\n{branches}")
    began = time.process_time()
    lint([tmp_path], [])
    assert time.process_time() - began < 60.0       # about a second
