"""Settings: flags override the environment, which overrides the file; an invalid one is exit 2 with a remedy."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from torchtriage.commands.base import settings
from torchtriage.commands.main import build_parser, main
from torchtriage.config import Config, load_config
from torchtriage.errors import CommandError


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, without variables of torchtriage in the environment."""
    for field in dataclasses.fields(Config):
        monkeypatch.delenv(f"TORCHTRIAGE_{field.name.upper()}", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")    # so that none above this folder is found
    return tmp_path


def write(folder: Path, *lines: str) -> None:
    (folder / "pyproject.toml").write_text("\n".join(["[tool.torchtriage]", *lines]))


def test_without_any_setting_the_defaults_apply(project: Path) -> None:
    assert load_config(project, {}) == Config()
    assert Config().fail_on == "never"


def test_every_key_can_be_set_in_the_file(project: Path) -> None:
    write(
        project,
        'select = ["TT1", "TT301"]', 'ignore = "TT101, TT102"', 'fail-on = "p2"', 'baseline = "b.json"',
        'format = "json"', 'color = "never"', "measure = true", 'tickets = "findings"',
    )
    assert load_config(project, {}) == Config(
        select=("TT1", "TT301"),
        ignore=("TT101", "TT102"),
        fail_on="P2",
        baseline=str(project / "b.json"),
        format="json",
        color="never",
        measure=True,
        tickets=str(project / "findings"),
    )


def test_codes_can_be_ignored_per_file(project: Path) -> None:
    write(project, 'per-file-ignores = {"tests/*" = ["TT1", "TT309"]}')
    assert load_config(project, {}).per_file_ignores == (("tests/*", ("TT1", "TT309")),)


@pytest.mark.parametrize("value", ['["TT1"]', '{"tests/*" = 1}'])
def test_per_file_ignores_of_another_form_are_an_error(project: Path, value: str) -> None:
    write(project, f"per-file-ignores = {value}")
    with pytest.raises(CommandError, match="per-file-ignores"):
        load_config(project, {})


def test_every_key_can_be_set_in_the_environment(project: Path) -> None:
    environ = {
        "TORCHTRIAGE_SELECT": "TT1,TT301",
        "TORCHTRIAGE_IGNORE": "TT101",
        "TORCHTRIAGE_FAIL_ON": "P1",
        "TORCHTRIAGE_BASELINE": "b.json",
        "TORCHTRIAGE_FORMAT": "json",
        "TORCHTRIAGE_COLOR": "always",
        "TORCHTRIAGE_MEASURE": "1",
        "TORCHTRIAGE_TELEMETRY": "0",
        "TORCHTRIAGE_TICKETS": "findings",
    }
    assert len(environ) == len(dataclasses.fields(Config)) - 1      # per-file-ignores is a table, for the file alone
    assert load_config(project, environ) == Config(
        select=("TT1", "TT301"),
        ignore=("TT101",),
        fail_on="P1",
        baseline="b.json",
        format="json",
        color="always",
        measure=True,
        telemetry=False,
        tickets="findings",
    )


def test_the_environment_overrides_the_file(project: Path) -> None:
    write(project, 'fail-on = "P1"', 'color = "never"')
    assert load_config(project, {"TORCHTRIAGE_FAIL_ON": "P3"}) == Config(fail_on="P3", color="never")


def test_an_empty_variable_sets_nothing(project: Path) -> None:
    write(project, 'fail-on = "P1"')
    assert load_config(project, {"TORCHTRIAGE_FAIL_ON": ""}).fail_on == "P1"


def test_a_flag_overrides_file_and_environment(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project, 'fail-on = "P1"', 'select = ["TT1"]', 'format = "json"', 'baseline = "a.json"')
    monkeypatch.setenv("TORCHTRIAGE_FAIL_ON", "P3")
    monkeypatch.setenv("TORCHTRIAGE_COLOR", "always")
    words = [
        "report", "x", "--fail-on", "p0", "--select", "TT2, TT3", "--format", "text", "--color", "never",
        "--baseline", "b.json",
    ]
    config = settings(build_parser().parse_args(words))
    assert config == Config(fail_on="P0", select=("TT2", "TT3"), format="text", color="never", baseline="b.json")


def test_without_flags_file_and_environment_apply(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project, 'fail-on = "P1"', "measure = true")
    monkeypatch.setenv("TORCHTRIAGE_SELECT", "TT1")
    assert settings(build_parser().parse_args(["run", "x.py"])) == Config(fail_on="P1", select=("TT1",), measure=True)


@pytest.mark.parametrize(("where", "value"), [("file", 'select = ["tt1"]'), ("env", "tt1"), ("flag", "tt1")])
def test_a_code_may_be_lower_case(project: Path, monkeypatch: pytest.MonkeyPatch, where: str, value: str) -> None:
    """A code that matches nothing would make a gate pass."""
    words = ["report", "x"]
    if where == "file":
        write(project, value)
    elif where == "env":
        monkeypatch.setenv("TORCHTRIAGE_SELECT", value)
    else:
        words += ["--select", value]
    assert settings(build_parser().parse_args(words)).select == ("TT1",)


def test_the_file_of_a_parent_folder_counts(project: Path) -> None:
    write(project, 'fail-on = "P1"')
    below = project / "src" / "deep"
    below.mkdir(parents=True)
    assert load_config(below, {}).fail_on == "P1"


def test_a_file_without_the_torchtriage_table_changes_nothing(project: Path) -> None:
    (project / "pyproject.toml").write_text('[project]\nname = "x"\n[tool.ruff]\nline-length = 3\n')
    assert load_config(project, {}) == Config()


@pytest.mark.parametrize(("key", "hint"), [
    ("fail_on", "did you mean 'fail-on'?"), ("selct", "did you mean 'select'?"), ("colour", "did you mean 'color'?"),
    ("zzz", "valid keys: select, ignore, fail-on, baseline, format, color, measure, telemetry, "
     "per-file-ignores, tickets"),
])
def test_an_unknown_key_names_the_nearest(project: Path, key: str, hint: str) -> None:
    write(project, f'{key} = "x"')
    with pytest.raises(CommandError) as caught:
        load_config(project, {})
    assert str(caught.value) == f"unknown key {key!r} in [tool.torchtriage] of {project / 'pyproject.toml'}; {hint}"
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "line",
    [
        'fail-on = "P5"', "fail-on = 3", "fail-on = true", "select = 3", "select = [3]", "ignore = {}",
        'color = "pink"', "color = true", 'format = "xml"', 'measure = "maybe"', "measure = 2", "baseline = 3",
        "tickets = 3",
    ],
)
def test_a_bad_value_names_the_key_and_what_it_takes(project: Path, line: str) -> None:
    write(project, line)
    with pytest.raises(CommandError, match=rf"^{line.split(' ')[0]} in .*pyproject\.toml must be .*, got "):
        load_config(project, {})


@pytest.mark.parametrize(
    ("variable", "value"), [("FAIL_ON", "P9"), ("COLOR", "pink"), ("FORMAT", "xml"), ("MEASURE", "maybe")]
)
def test_a_bad_variable_is_named(project: Path, variable: str, value: str) -> None:
    with pytest.raises(CommandError, match=f"^TORCHTRIAGE_{variable} must be .*, got '{value}'"):
        load_config(project, {f"TORCHTRIAGE_{variable}": value})


@pytest.mark.parametrize(
    ("text", "expected"), [("1", True), ("true", True), ("True", True), ("0", False), ("false", False)]
)
def test_a_switch_in_the_environment(project: Path, text: str, expected: bool) -> None:
    assert load_config(project, {"TORCHTRIAGE_MEASURE": text}).measure is expected


@pytest.mark.parametrize(
    "text",
    [
        "[tool.torchtriage", "\x00", "tool = 3", "[tool]\ntorchtriage = 3", "[tool]\ntorchtriage = []",
        "x = " + "[" * 90_000,
    ],
)
def test_a_file_that_cannot_be_read_is_a_clear_error(project: Path, text: str) -> None:
    (project / "pyproject.toml").write_text(text)
    with pytest.raises(CommandError, match=r"pyproject\.toml"):
        load_config(project, {})


def test_a_file_that_is_not_utf8_is_a_clear_error(project: Path) -> None:
    (project / "pyproject.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(CommandError, match="cannot read"):
        load_config(project, {})


def test_a_bad_flag_is_exit_2_with_one_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "TT101", "--fail-on", "P7"]) == 2
    captured: Any = capsys.readouterr()
    assert (captured.out, captured.err) == (
        "",
        "torchtriage: --fail-on must be P0, P1, P2, P3, P4 or never, got 'P7'\n",
    )


def test_a_bad_file_stops_every_command(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, "nonsense = 1")
    assert main(["explain", "TT101"]) == 2
    assert "unknown key 'nonsense'" in capsys.readouterr().err
