"""The tools of `torchtriage mcp`, called by the client of the SDK over stdin and stdout."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests.programs import environment, plain, write

pytestmark = pytest.mark.thorough

SICK = """
    import torch

    def act(x):
        print("here")
        return x + 1

    compiled = torch.compile(act, backend="eager")
    for _ in range(3):
        print("result", compiled(torch.ones(4)).sum().item())
"""
SLOW = """
    import time
    import torch

    compiled = torch.compile(lambda x: x + 1, backend="eager")
    compiled(torch.ones(4))
    print("compiled", flush=True)
    open("child.pid", "w").write(str(__import__("os").getpid()))
    time.sleep(600)
"""


def talk(folder: Path, body: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    """Start the server in a folder as a client does, and talk to it."""
    words = ["-m", "torchtriage", "mcp"]
    server = StdioServerParameters(command=sys.executable, args=words, cwd=folder, env=environment())

    async def session() -> None:
        async with Client(server) as client:
            await body(client)

    # The browser tests leave an event loop running on the main thread of their worker.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, session()).result()


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return str(result.content[0].text)  # type: ignore[union-attr]


def test_every_tool_answers_with_structured_facts(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    write(tmp_path, SICK)
    write(tmp_path, SICK.replace('        print("here")\n', ""), "cured.py")

    async def body(client: Client) -> None:
        listed = (await client.list_tools()).tools
        assert [tool.name for tool in listed] == ["run", "report", "explain", "lint", "verify"]
        assert all(tool.description and tool.output_schema for tool in listed)

        facts = await call(client, "lint", paths=["train.py"])
        assert [finding["code"] for finding in facts["findings"]] == ["TT101"]

        facts = await call(client, "run", script="train.py", recording="a.triage")
        assert (facts["exit_status"], facts["is_timed_out"], facts["recording"]) == (0, False, "a.triage")
        assert [finding["code"] for finding in facts["findings"]] == ["TT101"]
        assert facts["totals"]["graph_breaks"] == 1
        assert facts["last_output"].count("result 8.0") == 3
        assert "schema" not in facts["last_output"]

        facts = await call(client, "report", source="a.triage", select="TT2")
        assert (facts["num_findings"], facts["findings"]) == (0, [])

        facts = await call(client, "explain", rule="TT101")
        assert facts["title"] == "print-in-graph"
        assert facts["sections"]["What it is"]
        assert (await call(client, "explain", rule="GB0059"))["hints"]

        await call(client, "run", script="cured.py", recording="b.triage")
        facts = await call(client, "verify", before="a.triage", after="b.triage", fixes="TT101")
        assert facts["verdict"] in ("verified", "undecided"), facts["text"]     # two recordings hold few step times
        assert "TT101" in json.dumps(facts["facts"]["findings"])

    talk(tmp_path, body)


def test_an_error_says_what_was_asked_what_was_found_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")

    async def body(client: Client) -> None:
        for tool, arguments, asked, found in (
            ("run", {"script": "nowhere.py"}, "torchtriage run nowhere.py", "there is no file nowhere.py"),
            ("report", {"source": "nowhere.triage"}, "torchtriage report nowhere.triage", "nowhere.triage"),
            ("explain", {"rule": "TT9999"}, "torchtriage explain TT9999", "no rule 'TT9999'"),
            ("lint", {"paths": ["nowhere"]}, "torchtriage lint nowhere", "nothing at nowhere"),
            ("lint", {"paths": ["--update-baseline"]}, "torchtriage lint", "begins with a dash"),
            ("lint", {"timeout_seconds": 10**6}, "torchtriage lint", "timeout_seconds is 1e+06"),
            ("verify", {"before": "a.py", "after": "b.py"}, "torchtriage verify a.py b.py", "a.py"),
        ):
            lines = (await refused(client, tool, **arguments)).splitlines()[1:]
            assert [line.partition(":")[0] for line in lines] == ["asked", "found", "do"], lines
            assert asked in lines[0]
            assert found in lines[1]
            assert lines[2].removeprefix("do: ")
        assert "script" in await refused(client, "run")      # an argument that is missing

    talk(tmp_path, body)


def test_a_program_that_does_not_end_is_ended_and_what_it_did_is_returned(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    write(tmp_path, SLOW)

    async def body(client: Client) -> None:
        for seconds in (25, 100, 400):      # importing torch may take longer than the first on a busy machine
            facts = await call(client, "run", script="train.py", timeout_seconds=seconds)
            if (tmp_path / "child.pid").exists():
                break
        assert (facts["is_timed_out"], facts["exit_status"]) == (True, None)
        assert facts["totals"]["compiles"] == 1
        assert "compiled" in facts["last_output"]
        assert (await call(client, "explain", rule="TT101"))["code"] == "TT101"       # the server still answers

    talk(tmp_path, body)
    pid = int((tmp_path / "child.pid").read_text())
    until = time.monotonic() + 60
    while is_there(pid) and time.monotonic() < until:
        time.sleep(0.1)
    assert not is_there(pid)


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_findings_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    body_of = "".join(f"    print({n}, x)\n" for n in range(30))
    write(tmp_path, f"import torch\n\n\n@torch.compile\ndef f(x):\n{body_of}    return x\n\n\nf(torch.ones(3))\n")

    async def body(client: Client) -> None:
        facts = await call(client, "lint", paths=["train.py"], max_findings=3)
        assert (len(facts["findings"]), facts["num_left_out"]) == (3, facts["num_findings"] - 3)
        assert facts["num_findings"] >= 30

    talk(tmp_path, body)


def test_without_the_extra_the_message_names_it(tmp_path: Path) -> None:
    program = (
        "import importlib.util\nfind = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'mcp' else find(name, *rest)\n"
        "from torchtriage.commands.main import main\nraise SystemExit(main(['mcp']))\n"
    )
    done = plain(tmp_path, write(tmp_path, program))
    assert (done.returncode, done.stdout) == (2, "")
    assert "torchtriage mcp needs the package mcp" in done.stderr
    assert "pip install 'torchtriage[mcp]'" in done.stderr
