"""A baseline is read back unchanged; one that cannot be read gives an error with what to do."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.samples import a_finding
from torchtriage.errors import CommandError
from torchtriage.findings.model import Location
from torchtriage.findings.selection import BASELINE_SCHEMA, read_baseline, write_baseline


def test_a_written_baseline_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "baseline.json"
    assert write_baseline(path, [a_finding(fingerprint="b"), a_finding(fingerprint="a")]) == 2
    assert read_baseline(path) == {"a", "b"}


def test_an_empty_baseline_accepts_nothing(tmp_path: Path) -> None:
    assert write_baseline(tmp_path / "b.json", []) == 0
    assert read_baseline(tmp_path / "b.json") == set()


@given(st.text(st.characters()), st.text(st.characters()))
def test_any_title_can_be_stored(tmp_path_factory: pytest.TempPathFactory, title: str, function: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    finding = a_finding(title=title, location=Location(path="a.py", function=function))
    write_baseline(path, [finding])
    assert read_baseline(path) == {finding.fingerprint}


def test_a_baseline_is_readable_and_independent_of_the_order_of_findings(tmp_path: Path) -> None:
    findings = [
        a_finding("TT204", fingerprint="c"),
        a_finding("TT101", fingerprint="b"),
        a_finding("TT101", fingerprint="a"),
    ]
    write_baseline(tmp_path / "1.json", findings)
    write_baseline(tmp_path / "2.json", reversed(findings))
    text = (tmp_path / "1.json").read_text()
    assert text == (tmp_path / "2.json").read_text()
    assert [(e["code"], e["fingerprint"]) for e in json.loads(text)["findings"]] == [
        ("TT101", "a"),
        ("TT101", "b"),
        ("TT204", "c"),
    ]
    assert json.loads(text)["findings"][0]["title"] == "print() breaks forward"


def test_a_missing_baseline_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"no baseline at .*b\.json; make one with --update-baseline"):
        read_baseline(tmp_path / "b.json")


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "3", "null", '"x"', "{}", '{"schema": 1}', '{"schema": 1, "findings": null}',
        '{"schema": 1, "findings": [{}]}', '{"schema": 1, "findings": ["x"]}',
        '{"schema": 1, "findings": [{"fingerprint": []}]}', '{"findings": []}', "\x00", "\udcff",
        "[" * 90_000,
    ],
)
def test_a_damaged_baseline_is_a_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "b.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(
        CommandError, match=r"cannot read baseline .*b\.json: .*; write it again with --update-baseline"
    ) as caught:
        read_baseline(path)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("rest", [{"findings": []}, {"findings": "of another form"}, {"accepted": []}])
def test_a_baseline_of_a_newer_version_asks_for_an_upgrade(tmp_path: Path, rest: dict) -> None:
    path = tmp_path / "b.json"
    path.write_text(json.dumps({"schema": BASELINE_SCHEMA + 1, **rest}))
    with pytest.raises(CommandError, match="has schema 2, this torchtriage reads 1; upgrade torchtriage"):
        read_baseline(path)


def test_a_folder_in_place_of_the_baseline_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot read baseline"):
        read_baseline(tmp_path)


def test_a_baseline_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match="cannot write baseline"):
        write_baseline(tmp_path / "file" / "b.json", [a_finding()])
    with pytest.raises(CommandError, match="cannot write baseline"):
        write_baseline(tmp_path, [a_finding()])


def test_a_baseline_that_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "link.json").symlink_to("/dev/zero")
    for name in ("pipe.json", "link.json"):
        with pytest.raises(CommandError, match=r"cannot read baseline .*: it is not a regular file; write it again"):
            read_baseline(tmp_path / name)
