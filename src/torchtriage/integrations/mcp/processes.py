"""Commands of torchtriage as child processes, limited in time, limited in output."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.abc
from mcp.server.mcpserver.exceptions import ToolError

MAX_SECONDS = 3600
MAX_JSON_BYTES = 32 << 20       # the report of a recording of some hours has a few megabytes
MAX_TEXT_BYTES = 4000           # the end of what a program prints, where its error is
GRACE_SECONDS = 10.0            # between the request to end and the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command that ended, or was ended at its limit: its exit code, and the last bytes of its output."""

    exit_code: int
    stdout: str
    stderr: str
    num_stdout_bytes: int
    is_timed_out: bool = False


def failure(asked: str, found: str, do: str) -> ToolError:
    """An error of a tool in three parts: what was asked, what was found, what to do."""
    return ToolError(f"\nasked: {asked}\nfound: {found}\ndo: {do}")     # the SDK begins the first line


def check_seconds(seconds: float, asked: str) -> None:
    if not 0 < seconds <= MAX_SECONDS:
        raise failure(asked, f"timeout_seconds is {seconds:g}", f"give a timeout above 0 and of at most {MAX_SECONDS}")


def check_paths(paths: Sequence[str], asked: str) -> None:
    """Reject what the command line would take for a flag."""
    for path in paths:
        if path.startswith("-"):
            raise failure(asked, f"{path!r} begins with a dash", f"give a path, such as ./{path}")


async def ended(words: Sequence[str], seconds: float, *, max_stdout: int) -> Ended:
    """Run `torchtriage WORDS` without input; after `seconds` it and its children are ended."""
    command = [sys.executable, "-m", "torchtriage", *words]
    out, err = _Tail(max_stdout), _Tail(MAX_TEXT_BYTES)
    # The protocol has stdin and stdout of this process, so a child gets neither.
    process = await anyio.open_process(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )
    async with process, _group_of(process):
        with anyio.move_on_after(seconds) as scope:
            await _follow(process, out, err)
        if scope.cancelled_caught:
            await _end(process, out, err)
    return Ended(
        exit_code=process.returncode if process.returncode is not None else -signal.SIGKILL, stdout=out.text,
        stderr=err.text, num_stdout_bytes=out.num_bytes, is_timed_out=scope.cancelled_caught,
    )


async def json_of(words: Sequence[str], seconds: float, *, ok: Sequence[int] = (0, 1)) -> tuple[dict[str, Any], int]:
    """(the JSON that a command prints, its exit code); ToolError for any other end."""
    asked = f"torchtriage {' '.join(words)}"
    check_seconds(seconds, asked)
    done = await ended(words, seconds, max_stdout=MAX_JSON_BYTES)
    if done.is_timed_out:
        raise failure(asked, f"it did not end in {seconds:g} s", "raise timeout_seconds, or ask about less")
    if done.num_stdout_bytes > MAX_JSON_BYTES:
        raise failure(asked, f"{done.num_stdout_bytes:,} bytes of output", "narrow it with select, or with fewer paths")
    try:
        facts = json.loads(done.stdout) if done.exit_code in ok else None
    except ValueError:
        facts = None
    if not isinstance(facts, dict):
        raise failure(asked, *_reason(done))
    return facts, done.exit_code


def _reason(done: Ended) -> tuple[str, str]:
    """(what was found, what to do) of the last message on stderr, whose last clause says what to do."""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    message = lines[-1].removeprefix("torchtriage: ") if lines else f"exit code {done.exit_code}"
    found, separator, do = message.rpartition("; ")
    return (found, do) if separator else (message, "see `torchtriage COMMAND --help`")


class _Tail:
    """The last bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()
        self.num_bytes = 0

    def add(self, data: bytes) -> None:
        self.num_bytes += len(data)
        self._data += data
        if len(self._data) > 2 * self._limit:
            del self._data[:-self._limit]

    @property
    def text(self) -> str:
        return self._data[-self._limit:].decode("utf-8", "replace")


async def _follow(process: anyio.abc.Process, out: _Tail, err: _Tail) -> None:
    async def read(stream: anyio.abc.ByteReceiveStream | None, tail: _Tail) -> None:
        if stream is not None:
            async for data in stream:
                tail.add(data)

    async with anyio.create_task_group() as group:
        group.start_soon(read, process.stdout, out)
        group.start_soon(read, process.stderr, err)
        await process.wait()


async def _end(process: anyio.abc.Process, out: _Tail, err: _Tail) -> None:
    """Ask the group of the process to end, so that a recording is completed, before it is killed."""
    _signal(process, signal.SIGTERM)
    with anyio.move_on_after(GRACE_SECONDS):
        await _follow(process, out, err)


@contextlib.asynccontextmanager
async def _group_of(process: anyio.abc.Process) -> AsyncIterator[None]:
    """No process of the group is left behind, also if the call is cancelled."""
    try:
        yield
    finally:
        _signal(process, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.wait()


def _signal(process: anyio.abc.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
