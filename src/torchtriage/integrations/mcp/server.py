"""The MCP server of `torchtriage mcp`, with its tools."""

import tempfile
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from pydantic import Field

from torchtriage import __version__
from torchtriage.integrations.mcp.processes import (
    MAX_JSON_BYTES,
    MAX_SECONDS,
    MAX_TEXT_BYTES,
    check_paths,
    check_seconds,
    ended,
    failure,
    json_of,
)
from torchtriage.integrations.mcp.results import FindingList, ProgramRun, ProofAnswer, RuleText, found, split_report

INSTRUCTIONS = (
    "Triage for PyTorch training: graph breaks, recompiles, sick gradients. Begin with lint (reads the source, runs "
    "nothing) or run (runs a program under observation). A finding names the place, the cause, the cost and a fix; "
    "explain has the page of its code. After an edit, verify proves that the change cures the finding and keeps the "
    "numbers. Paths are relative to the folder in which the server was started."
)
READ_SECONDS = 120.0
RUN_SECONDS = 600.0
MAX_FINDINGS = 20

Timeout = Annotated[float, Field(description=f"the longest time in seconds, at most {MAX_SECONDS}")]
Most = Annotated[int, Field(description="how many findings to return, the worst first; the others are counted", ge=1)]
Select = Annotated[str, Field(description="only these codes or prefixes, e.g. TT1,TT301; empty for all")]


def build_server() -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer(
        "torchtriage", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING",
    )
    for tool in (run, report, explain, lint, verify):
        server.add_tool(tool)
    return server


async def run(
    script: Annotated[str, Field(description="the Python script to run, as `python SCRIPT` would")],
    arguments: Annotated[list[str], Field(description="the arguments of the script")] = [],  # noqa: B006 - not changed
    recording: Annotated[str, Field(description="where to keep the recording, NAME.triage; empty for nowhere")] = "",
    max_findings: Most = MAX_FINDINGS,
    timeout_seconds: Timeout = RUN_SECONDS,
) -> ProgramRun:
    """Run a Python script under observation and return what torch.compile did to it, and how its learning went.

    The script runs with the rights of the server. At the time limit it is ended, and what was recorded until then is
    returned.
    """
    asked = f"torchtriage run {script}"
    check_seconds(timeout_seconds, asked)
    check_paths([script, recording], asked)
    if not Path(script).is_file():
        raise failure(asked, f"there is no file {script} in {Path.cwd()}", "give the path of a Python script")
    if recording and Path(recording).exists():
        raise failure(asked, f"{recording} exists", "give another name, or read it with the tool report")
    with tempfile.TemporaryDirectory(prefix="torchtriage-mcp-") as folder:
        target = recording or str(Path(folder) / "run.triage")
        words = ["run", "-q", "--format", "json", "-o", target, script, *arguments]
        done = await ended(words, timeout_seconds, max_stdout=MAX_JSON_BYTES)
        printed, facts = split_report(done.stdout)
        if facts is None:       # it was ended before it could print one
            if not Path(target).exists():
                last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.exit_code}"]
                raise failure(asked, f"no recording: {last[0]}", "run the script by itself first")
            facts, _ = await json_of(["report", target, "--format", "json"], READ_SECONDS)
    return ProgramRun(
        **found(facts, max_findings), recording=recording,
        exit_status=None if done.is_timed_out else done.exit_code, is_timed_out=done.is_timed_out,
        last_output=printed[-MAX_TEXT_BYTES:], last_errors=done.stderr,
    )


async def report(
    source: Annotated[str, Field(description="a .triage recording, a TORCH_TRACE file or folder, or a log")],
    select: Select = "",
    max_findings: Most = MAX_FINDINGS,
    timeout_seconds: Timeout = READ_SECONDS,
) -> FindingList:
    """Return the findings of a recorded run, a trace or a log."""
    if source.strip() in ("", "-"):
        raise failure("torchtriage report", "no source was given", "give the path of a recording, a trace or a log")
    check_paths([source], f"torchtriage report {source}")
    facts, _ = await json_of(["report", source, "--format", "json", *_selected(select)], timeout_seconds)
    return FindingList(**found(facts, max_findings))


async def explain(
    rule: Annotated[str, Field(description="a code such as TT203, its slug, or a graph break such as GB0059")],
) -> RuleText:
    """Explain a rule of torchtriage, with an example and the fix, or a graph break of PyTorch."""
    if not rule.strip():
        raise failure("torchtriage explain", "no rule was given", "give the code of a finding")
    check_paths([rule.strip()], f"torchtriage explain {rule}")
    facts, _ = await json_of(["explain", rule.strip(), "--format", "json"], READ_SECONDS)
    return RuleText(
        code=facts.get("code") or facts["id"], title=facts.get("slug") or facts["type"],
        summary=facts.get("summary") or facts["explanation"], severity=facts.get("severity"),
        sections=facts.get("sections", {}), hints=facts.get("hints", []),
    )


async def lint(
    paths: Annotated[list[str], Field(description="files or folders; empty for all")] = [],  # noqa: B006
    recording: Annotated[str, Field(description="a run of this source, to say what it saw; empty for none")] = "",
    select: Select = "",
    max_findings: Most = MAX_FINDINGS,
    timeout_seconds: Timeout = READ_SECONDS,
) -> FindingList:
    """Find in the source what will hurt: graph breaks, recompiles, flaws of training code. Nothing is run."""
    check_paths([*paths, recording], f"torchtriage lint {' '.join(paths)}")
    seen = ["--recording", recording] if recording else []
    words = ["lint", *paths, *seen, "--format", "json", *_selected(select)]
    facts, _ = await json_of(words, timeout_seconds)
    return FindingList(**found(facts, max_findings))


async def verify(
    before: Annotated[str, Field(description="the script, or the recording, before the change")],
    after: Annotated[str, Field(description="the same after the change")],
    arguments: Annotated[list[str], Field(description="the arguments of both scripts")] = [],  # noqa: B006 - not changed
    fixes: Annotated[str, Field(description="codes of findings that must be gone; empty for at least one")] = "",
    budget_seconds: Annotated[float, Field(description="how long the runs may take together", ge=1)] = 300.0,
    timeout_seconds: Timeout = 2 * RUN_SECONDS,
) -> ProofAnswer:
    """Prove, or refute, that a change cures a finding, keeps the numbers and is not slower; both scripts are run."""
    check_paths([before, after], f"torchtriage verify {before} {after}")
    words = ["verify", before, after, "--format", "json", "-q", "--budget", f"{budget_seconds:g}s"]
    words += ["--fixes", fixes] if fixes else []
    facts, _ = await json_of([*words, *(["--", *arguments] if arguments else [])], timeout_seconds, ok=(0, 1, 2))
    reasons = [str(reason["text"]) for reason in facts["reasons"]]
    return ProofAnswer(verdict=facts["verdict"], reasons=reasons, text=str(facts["text"]), facts=facts)


def _selected(select: str) -> list[str]:
    return ["--select", select] if select else []
