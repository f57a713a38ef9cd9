"""The example on a rule's page shows that rule: its Before gives the finding, its After does not."""

import contextlib
import io
import re
import sys
import types
from pathlib import Path

import pytest

from tests.programs import observe, torch_version, write
from torchtriage.findings import catalogue

pytestmark = pytest.mark.thorough

BLOCK = re.compile(r"(Before|After):\s*\n+```python([^\n]*)\n(.*?)```", re.S)
LEARNING = ("TT4", "TT5", "TT6")    # numbers of a training, not torch.compile: test_learning_pages.py
SOURCE_ONLY = "TT7"                 # rules of lint alone: tests/unit/lint/test_training_pages.py
NEEDS_A_WHOLE_RUN = {"TT303", "TT311"}     # "was never compiled" is only known once the program has ended
REPORTED_AS = {"TT222": "TT104"}    # a value from .item() is reported with the break that caused it
if torch_version() < (2, 13):
    # This torch skips a frame silently: the only sign is that nothing was compiled.
    REPORTED_AS["TT302"] = "TT303"


def examples(of_learning: bool = False) -> list[tuple[str, str, str]]:
    found = []
    for code in (code for code in catalogue.codes() if code.startswith(LEARNING) is of_learning):
        if code.startswith(SOURCE_ONLY):
            continue
        example = catalogue.rule(code).page.split("## Example")[1].split("\n## ")[0]
        found += [(code, which, source) for which, flags, source in BLOCK.findall(example) if "no-run" not in flags]
    return found


def codes_seen_in(path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    torch = pytest.importorskip("torch")
    import torchtriage

    torch._dynamo.reset()
    torch.manual_seed(0)
    monkeypatch.chdir(path.parent)      # only files below the working folder are the user's
    # Dynamo imports the module of a function that it inlines, and keeps it by name.
    module = types.ModuleType(path.stem)
    monkeypatch.setitem(sys.modules, path.stem, module)
    with torch._dynamo.config.patch({}), contextlib.redirect_stdout(io.StringIO()), torchtriage.watch() as seen:
        saved = torch._dynamo.config.save_config()
        try:
            exec(compile(path.read_text(), str(path), "exec"), vars(module))    # 2.9 wraps what has no file
        finally:
            torch._dynamo.config.load_config(saved)
    return {finding.code for finding in seen.findings}


@pytest.mark.parametrize(("code", "which", "source"), examples(), ids=lambda value: value if len(value) < 8 else "")
def test_the_example_on_the_page_shows_the_rule(
    code: str, which: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported = REPORTED_AS.get(code, code)
    if reported in NEEDS_A_WHOLE_RUN:
        seen = set(observe(tmp_path, source).codes)
    else:
        seen = codes_seen_in(write(tmp_path, source, f"example_{code}_{which}.py"), monkeypatch)
    if which == "Before":
        assert reported in seen
    else:
        assert not {code, reported} & seen


def test_every_rule_about_torch_has_an_example_that_runs() -> None:
    shown = {code for code, _, _ in examples()}
    cannot_be_shown = {"TT199", "TT298", "TT299", "TT306", "TT307"}
    about_torch = {code for code in catalogue.codes() if not code.startswith(("TT9", SOURCE_ONLY, *LEARNING))}
    assert about_torch - cannot_be_shown == shown
