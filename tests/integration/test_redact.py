"""--redact on a real recording: none of the program's names, values, texts or places is in any format."""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.programs import command, write
from torchtriage.config import FORMATS

PROGRAM = """
    import torch

    class SecretModel(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.secret_layer = torch.nn.Linear(7, 7)

        def forward(self, secret_input, secret_table):
            print("secret text")
            return self.secret_layer(secret_input) * secret_table["secret_scale"]

    def secret_function(secret_input, secret_mode):
        if secret_mode == "secret mode two":
            return secret_input + 1
        return secret_input * 7919

    if __name__ == "__main__":
        model = torch.compile(SecretModel(), backend="eager", dynamic=False)
        for secret_rows in (7919, 7907, 7901):
            model(torch.ones(secret_rows, 7), {"secret_scale": 2.0})
        model(torch.ones(3, 7), {"secret_scale": 2.0, "secret_key": 6133})
        compiled = torch.compile(secret_function, backend="eager")
        for secret_mode in ("secret mode one", "secret mode two"):
            compiled(torch.ones(3), secret_mode)
"""
# Every name and text of the program contains this word in some case; the numbers are sizes in guards.
WORD = "secret"
SIZES = ("7919", "7907", "7901", "6133")
ENVIRONMENT = {"TORCH_COMPILE_JOB_ID": "mysecretvalue"}


@dataclass(frozen=True)
class Recorded:
    """The folder in which the program ran under `run --redact`, what that printed, and words that name the machine."""

    folder: Path
    printed: str
    machine: tuple[str, ...]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("home") / "secretfolder"
    folder.mkdir()
    script = write(folder, PROGRAM, "secretscript.py")
    done = command(
        folder, "run", "-q", "-o", "out.triage", "--redact", script.name, "--flag", "mysecretargument", env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(shown(folder, "json"))["run"]
    machine = (facts["host"], facts["cwd"], facts["executable"], str(folder.parent), str(Path.home()), sys.prefix)
    return Recorded(folder, done.stdout, machine)


def shown(folder: Path, format_: str, *flags: str) -> str:
    done = command(folder, "report", "out.triage", "--format", format_, "--events", "-v", *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout


def occurrence(word: str, text: str) -> str | None:
    """Where the text has a secret, in any case; a number only as a full number, since a time may contain its digits."""
    pattern = rf"(?<![\d.]){word}(?!\d)" if word.isdigit() else re.escape(word)
    match = re.search(pattern, text, re.IGNORECASE)
    return match and f"{word} in {text[max(0, match.start() - 80):match.end() + 120]}"


def test_without_redact_the_secrets_are_shown(recorded: Recorded) -> None:
    """So that looking for it means something."""
    text = shown(recorded.folder, "json")
    for expected in (
        "secretfolder", "secretscript", "secret_function", "SecretModel", "secret text", "secret mode two",
        "secret_scale", "mysecretvalue", "mysecretargument", "7919", "7907",
    ):
        assert occurrence(expected, text), expected


@pytest.mark.parametrize("format_", FORMATS)
def test_nothing_of_the_program_or_the_machine_is_in_any_format(recorded: Recorded, format_: str) -> None:
    if format_ != "text":
        pytest.importorskip(f"torchtriage.reporters.{format_}")
    text = shown(recorded.folder, format_, "--redact")
    for word in (WORD, *ENVIRONMENT, *SIZES, *recorded.machine):
        assert (secret := occurrence(word, text)) is None, secret


def test_findings_and_costs_are_not_redacted(recorded: Recorded) -> None:
    full, redacted = (json.loads(shown(recorded.folder, "json", *flags)) for flags in ((), ("--redact",)))
    assert full["findings"]
    for name in ("code", "severity", "num_events", "upstream", "line"):
        assert [f[name] for f in redacted["findings"]] == [f[name] for f in full["findings"]]
    assert [f["cost"]["seconds"] for f in redacted["findings"]] == [f["cost"]["seconds"] for f in full["findings"]]
    assert redacted["totals"] == full["totals"]
    assert redacted["watched"] == full["watched"]
    assert len(redacted["not_seen"]) == len(full["not_seen"])
    assert [len(redacted["events"][kind]) for kind in ("graph_breaks", "recompiles")] == [
        len(full["events"][kind]) for kind in ("graph_breaks", "recompiles")
    ]


def test_the_findings_that_run_prints_are_redacted_too(recorded: Recorded) -> None:
    printed = recorded.printed.replace("secret text\n", "")     # what the program itself prints
    assert "TT1" in printed
    for word in (WORD, "out.triage", *SIZES, *recorded.machine):
        assert (secret := occurrence(word, printed)) is None, secret
