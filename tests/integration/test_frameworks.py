"""The remedies for libraries, applied with the real packages: the finding is gone, the numbers are the same.

A package that is not installed skips its tests: `pip install torchtriage[frameworks]`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.programs import command

pytestmark = pytest.mark.thorough

MACHINE_RULES = ("TT306", "TT307")      # seconds of compiling: they say how busy the machine is
PROGRAMS = Path(__file__).parent / "frameworks"


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program with trouble and its first finding; `--cured` applies the fix."""

    name: str
    package: str
    code: str
    line: str                       # the source line that the finding points at
    says: str                       # part of the fix
    cured_by: Mapping[str, str] = field(default_factory=dict)      # the other option, in the environment
    never: str = ""                 # a name that the line of the fix does not have
    raises: bool = False            # only `--eager` has a result to compare with


PROGRAMS_WITH_TROUBLE = (
    Program(
        name="lightning_log", package="lightning", code="TT308", line='self.log("train_loss", loss)',
        says=r"in its __init__, self\.net = torch\.compile\(self\.net\)", raises=True,
    ),
    Program(
        name="trainer_lengths", package="transformers", code="TT201", line="def forward(self, input_ids",
        says=r"for text DataCollatorWithPadding\(tokenizer, padding='max_length', max_length=...\); or set "
             r"ACCELERATE_DYNAMO_USE_DYNAMIC=true", never="mark_dynamic",
        cured_by={"ACCELERATE_DYNAMO_USE_DYNAMIC": "true"},
    ),
    Program(
        name="trainer_last_batch", package="transformers", code="TT203", line="def forward(self, pixels, labels",
        says=r"TrainingArguments\(..., dataloader_drop_last=True\)", never="mark_dynamic",
    ),
    Program(
        name="accelerate_static", package="accelerate", code="TT202", line="def forward(self, ids",
        says=r"TorchDynamoPlugin\(dynamic=True\), or torch._dynamo.maybe_mark_dynamic\(tokens, 1\)",
        never=r"accelerator\.py",
    ),
    Program(
        name="sb3_minibatch", package="stable_baselines3", code="TT201", line="model.learn(128)",
        says="make n_steps times the number of environments a multiple of batch_size", never="mark_dynamic",
    ),
    Program(
        name="diffusers_timestep", package="diffusers", code="TT204", line="noise = unet(image, step).sample",
        says=r"make it a tensor, torch\.tensor\(step\)", never=r"torch\.tensor\(timestep\)",
    ),
)


def observed(
    folder: Path, program: Program, *words: str, env: Mapping[str, str] | None = None,
) -> tuple[list[dict[str, Any]], str]:
    """The findings on torch.compile of one run, and the result that it prints."""
    recording = f"{len(list(folder.iterdir()))}.triage"
    done = command(folder, "run", "-q", "-o", recording, str(PROGRAMS / f"{program.name}.py"), *words, env=env)
    report = json.loads(command(folder, "report", recording, "--format", "json").stdout)
    assert report["totals"]["compiles"] or "--eager" in words, done.stderr
    result = re.search(r"^result (\S+)", done.stdout, re.M)
    of_compiling = [f for f in report["findings"] if f["code"].startswith(("TT1", "TT2", "TT3"))]
    findings = [f for f in of_compiling if f["code"] not in MACHINE_RULES]
    return findings, result[1] if result else ""


@pytest.mark.parametrize("program", PROGRAMS_WITH_TROUBLE, ids=lambda program: program.name)
def test_the_fix_of_the_first_finding_cures_with_the_real_package(program: Program, tmp_path: Path) -> None:
    if find_spec(program.package) is None:
        pytest.skip(f"{program.package} is not installed")
    findings, result = observed(tmp_path, program)
    first, fix = findings[0], findings[0]["fix"]["text"]
    assert first["code"] == program.code
    assert re.search(program.says, fix), fix
    assert not program.never or not re.search(program.never, fix), fix
    line = (PROGRAMS / f"{program.name}.py").read_text().splitlines()[first["line"] - 1]
    assert line.strip().startswith(program.line)
    if program.raises:
        _, result = observed(tmp_path, program, "--eager")
    assert observed(tmp_path, program, "--cured") == ([], result)
    if program.cured_by:
        assert observed(tmp_path, program, env=program.cured_by) == ([], result)
