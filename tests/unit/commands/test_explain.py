"""`explain` shows the pages of rules, and PyTorch's text from the installed torch."""

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from torchtriage.commands.main import main
from torchtriage.findings import catalogue


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)


def explained(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["explain", *words]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["explain", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


@pytest.mark.parametrize("name", ["TT101", "tt101", "print-in-graph", "Print-In-Graph"])
def test_a_rule_is_explained_by_its_code_or_slug(capsys: pytest.CaptureFixture[str], name: str) -> None:
    page = catalogue.rule("TT101").page
    assert explained(capsys, name).replace("\nAlso found by lint, before a run.\n", "\n").startswith(page)


def test_the_options_that_were_tried_are_listed_with_their_versions(capsys: pytest.CaptureFixture[str]) -> None:
    tried = catalogue.tried_options("TT309")
    assert tried
    text = " ".join(explained(capsys, "TT309").partition("## Tried")[2].split())
    for option in tried:
        assert f"- {option.option} (tried on torch {', '.join(option.torch)}; {option.program})" in text


def test_a_rule_of_which_nothing_was_tried_says_nothing_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert not catalogue.tried_options("TT401")
    assert explained(capsys, "TT401") == catalogue.rule("TT401").page


def test_the_page_says_whether_lint_finds_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Also found by lint" in explained(capsys, "TT101")
    assert "Also found by lint" not in explained(capsys, "TT212")


def test_without_a_name_every_rule_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    lines = explained(capsys).splitlines()
    assert [line.split()[0] for line in lines] == catalogue.codes()
    assert "TT101  P3  print-in-graph" in lines


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("TT1001", "TT101"), ("print-in-grph", "print-in-graph"), ("xyzzy", "list them with: torchtriage explain"),
        ("../TT101", "TT101"), ("GB12", "list them with"), ("", "list them with"),
    ],
)
def test_a_rule_that_does_not_exist_names_the_nearest(capsys: pytest.CaptureFixture[str], name: str, hint: str) -> None:
    error = refused(capsys, name)
    assert error.startswith(f"torchtriage: no rule {name!r}; ")
    assert hint in error


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A torch that is installed, as far as its registry of graph breaks goes."""
    folder = tmp_path / "torch"
    (folder / "_dynamo").mkdir(parents=True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(origin=str(folder / "__init__.py")))
    return folder / "_dynamo" / "graph_break_registry.json"


ENTRY = {
    "Gb_type": "Failed to trace builtin operator", "Context": "x", "Explanation": "Dynamo does not know it.",
    "Hints": ["Avoid it.", "Report."],
}


@pytest.mark.parametrize("entry", [ENTRY, [ENTRY]])
def test_a_graph_break_is_explained_with_pytorchs_text(
    torch: Path, capsys: pytest.CaptureFixture[str], entry: object
) -> None:
    torch.write_text(json.dumps({"GB0059": entry}))
    assert explained(capsys, "gb0059") == (
        "GB0059: Failed to trace builtin operator\n\nDynamo does not know it.\n  - Avoid it.\n  - Report.\n\n"
        "(from PyTorch's registry, graph_break_registry.json)\n"
    )


def test_a_graph_break_with_empty_fields_is_explained(torch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.write_text(json.dumps({"GB0059": {"Gb_type": "x", "Explanation": None, "Hints": None}}))
    assert explained(capsys, "GB0059").startswith("GB0059: x\n")


def test_a_graph_break_of_another_version_says_so(torch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.write_text(json.dumps({"GB0059": ENTRY}))
    assert "no GB9999 in the registry of the installed torch (1 ids)" in refused(capsys, "GB9999")


@pytest.mark.parametrize("content", [None, "{", "\x00"])
def test_a_torch_without_a_registry_says_so(
    torch: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    if content is not None:
        torch.write_text(content)
    assert "this torch has no readable graph-break registry" in refused(capsys, "GB0059")


def test_without_torch_a_graph_break_cannot_be_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "torch is not installed here; pip install torch" in refused(capsys, "GB0059")


def test_json_has_the_page_by_its_headings(capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(explained(capsys, "TT101", "--format", "json"))
    rule = catalogue.rule("TT101")
    assert (facts["schema"], facts["code"], facts["slug"], facts["severity"]) == (1, "TT101", "print-in-graph", "P3")
    assert facts["found_by_lint"] is True
    assert "## " not in "".join(facts["sections"].values())
    assert facts["sections"]["What it is"] == rule.section("What it is") != ""
    assert [row["option"] for row in facts["tried"]] == [row.option for row in catalogue.tried_options("TT101")]


def test_json_lists_every_rule_and_explains_a_graph_break(capsys: pytest.CaptureFixture[str]) -> None:
    rules = json.loads(explained(capsys, "--format", "json"))["rules"]
    assert [rule["code"] for rule in rules] == catalogue.codes()
    facts = json.loads(explained(capsys, "GB0059", "--format", "json"))
    assert facts["id"] == "GB0059"
    assert facts["explanation"]
    assert isinstance(facts["hints"], list)
