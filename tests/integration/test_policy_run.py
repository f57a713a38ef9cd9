"""A program under a shape policy: what is forced, what is noted, and that nothing else changes."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_same_run import TAIL
from tests.programs import Outcome, environment, observe, plain, torch_version, write
from torchtriage.recording.events import Tap
from torchtriage.recording.reader import read_recording
from torchtriage.recording.recording import Process
from torchtriage.shapes.runs.environment import takes_dimensions

SITES = """
import torch
import torch._dynamo.config
from torch.nn.attention.flex_attention import flex_attention
from torch._dynamo.utils import counters

torch._dynamo.config.recompile_limit = 2        # the policy raises it again
def times_two(x): return x * 2
def plus_one(x): return x + 1
class Layer(torch.nn.Module):
    def forward(self, x): return x - 1
def custom(graph, inputs): return graph.forward

written_none = torch.compile(times_two, backend=custom)
written_true = torch.compile(plus_one, backend="eager", dynamic=True)
@torch.compile(backend="aot_eager", dynamic=False)
def decorated(x): return x / 2
module = torch.compile(Layer(), backend="eager", dynamic=None)
class Other(Layer):
    def forward(self, x): return x - 2
in_place = Other()
in_place.compile(backend="eager", dynamic=False)
attend = torch.compile(flex_attention)
disabled = torch.compile(times_two, disable=True, dynamic=False)

def graphs(call):
    counters.clear()
    for size in (4, 5, 6, 7):
        call(size)
    return counters["stats"]["unique_graphs"]

calls = {name: (lambda size, f=globals()[name]: f(torch.ones(size))) for name in (
    "written_none", "written_true", "decorated", "module", "in_place", "disabled")}
query = lambda size: torch.ones(1, 1, size, 8)
calls["attend"] = lambda size: attend(query(size), query(size), query(size))
calls["eager_attend"] = lambda size: flex_attention(query(size), query(size), query(size))
import json
print(json.dumps({name: graphs(call) for name, call in calls.items()}))
"""


def under(folder: Path, source: str, policy: dict[str, Any], **env: str) -> Outcome:
    """The program as `torchtriage shapes` runs it."""
    out = folder / "out.triage"
    ours = {"TORCHTRIAGE": str(out), "TORCHTRIAGE_POLICY": json.dumps(policy), "TORCHTRIAGE_TELEMETRY": "0"}
    done = plain(folder, write(folder, source), env={**ours, **env})
    return Outcome(done.returncode, done.stdout, done.stderr, out)


def process(seen: Outcome) -> Process:
    assert seen.status == 0, seen.stderr
    (found,) = read_recording(seen.folder).processes
    return found


def line_of(source: str, text: str) -> int:
    return textwrap.dedent(source).lstrip("\n").split("\n").index(text) + 1


def overrides(found: Process) -> dict[int, tuple[str, str]]:
    return {row["line"]: (row["written"], row["forced"]) for row in found.facts["overrides"]}


def test_dynamic_and_backend_are_forced_on_every_way_to_compile(tmp_path: Path) -> None:
    seen = under(tmp_path, SITES, {"dynamic": "true", "backend": "eager"})
    found = process(seen)
    graphs = json.loads(seen.stdout.splitlines()[-1])
    assert graphs.pop("disabled") == 0
    assert set(graphs.values()) == {1}
    at = {name: line_of(SITES, text) for name, text in {
        "written_none": "written_none = torch.compile(times_two, backend=custom)",
        "decorated": '@torch.compile(backend="aot_eager", dynamic=False)',
        "module": 'module = torch.compile(Layer(), backend="eager", dynamic=None)',
        "in_place": 'in_place.compile(backend="eager", dynamic=False)',
        "attend": "attend = torch.compile(flex_attention)",
        "eager_attend": 'calls["eager_attend"] = lambda size: flex_attention(query(size), query(size), query(size))',
    }.items()}
    forced = overrides(found)
    was_none, was_false = ("none", "true"), ("false", "true")
    assert forced == {
        at["written_none"]: was_none, at["module"]: was_none, at["attend"]: was_none, at["eager_attend"]: was_none,
        at["decorated"]: was_false, at["in_place"]: was_false,
    }


@pytest.mark.thorough
def test_each_call_can_have_its_own_value_and_the_program_cannot_lower_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    at = {f"{path}:{line_of(SITES, text)}": wanted for text, wanted in {
        "written_none = torch.compile(times_two, backend=custom)": "false",
        'written_true = torch.compile(plus_one, backend="eager", dynamic=True)': "none",
        'module = torch.compile(Layer(), backend="eager", dynamic=None)': "none",
    }.items()}
    seen = under(tmp_path, SITES, {"at": at, "backend": "eager", "recompile_limit": 64})
    found = process(seen)
    graphs = json.loads(seen.stdout.splitlines()[-1])
    assert (graphs["written_none"], graphs["written_true"], graphs["module"], graphs["decorated"]) == (4, 2, 2, 4)
    assert sorted(overrides(found).values()) == [("none", "false"), ("true", "none")]


SAME = """
import torch, traceback
import torch._dynamo
torch.manual_seed(0)
kept = []
@torch.compile(backend="eager")
def inner(x): return x * 2
@torch.compile(backend="eager", fullgraph=True)
def outer(x): return inner(x) + 1
@torch.compile(backend="eager")
def breaks(x):
    y = inner(x)
    print("between")
    return inner(y) + x.shape[0]
@torch.compile(backend="eager", dynamic=True)
def marks(x):
    torch._dynamo.mark_static(x, 0)
    return x + 1
@torch.compile(backend="eager")
def forbidden(x):
    y = x + 1
    torch._dynamo.mark_dynamic(y, 0)
    return y
@torch.compile(backend="eager")
def fails(x):
    y = x + 1
    raise ValueError("mine")
def backend_fails(graph, inputs):
    def run(*args): raise KeyError("at run time")
    return run
at_run_time = torch.compile(lambda x: x + 1, backend=backend_fails)
model = torch.nn.Linear(4, 4)
compiled = torch.compile(model, backend="eager")
again = torch.compile(compiled, backend="eager")
names = [inner.__name__, inner._torchdynamo_orig_callable.__name__, inner.__wrapped__.__name__]
print(type(compiled).__name__, *names, sorted(vars(inner)))
def shown(error):
    text = "".join(traceback.format_exception(error))
    print("\\n".join(line for line in text.splitlines() if " 0x" not in line))
for size in (2, 3, 5):
    x = torch.rand(size, 4)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    kept += [outer(x), breaks(x), marks(x), compiled(x), again(x)]
    for bad in (forbidden, fails, at_run_time):
        try:
            bad(x)
        except BaseException as error:
            shown(error)
"""


@pytest.mark.thorough
def test_a_policy_that_forces_nothing_changes_nothing(tmp_path: Path) -> None:
    source = SAME + TAIL
    alone = plain(tmp_path, write(tmp_path, source))
    seen = under(tmp_path, source, {"sizes": True})
    assert alone.returncode == 0, alone.stderr
    found = process(seen)
    assert seen.stdout == alone.stdout
    assert json.loads(alone.stdout.splitlines()[-1])["frames"]["total"] > 0

    calls = {row["target"]: row["num_calls"] for row in found.facts["functions"]}
    assert calls["outer"] == calls["breaks"] == calls["fails"] == 3     # each call that raises is one too
    assert "inner" not in calls
    assert [row["target"] for row in found.facts["functions"]][:2] == ["outer", "breaks"]
    assert found.series["call_compiles/0"].values[0] == 1.0
    assert all(value > 0 for value in found.series["call_seconds/0"].values)
    assert found.facts["first_call_seconds"] > 0
    assert found.facts["start"] < found.facts["first_call_time"] < found.facts["end"]
    assert found.facts["peak_memory_bytes"] > 10_000_000
    assert found.facts["overrides"] == []
    (mark,) = [row for row in found.facts["marks"] if row["call"] == "maybe_mark_dynamic"]
    assert (mark["dim"], mark["num"], mark["line"]) == (
        0,
        3,
        line_of(source, "    torch._dynamo.maybe_mark_dynamic(x, 0)"),
    )
    taps = {tap.name: tap.state for tap in found.of(Tap)}
    assert [taps[name] for name in ("policy", "call times", "call sizes", "shape marks")] == ["armed"] * 4


NAMED = """
import torch
from torch._dynamo.utils import counters
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.inner.register_buffer("table", torch.ones(3))
    def forward(self, x, *, items, n, **kwargs):
        y = self.inner(x) * n + items[1].sum() + kwargs["extra"].sum()
        print(end="")
        return y + self.inner.table.sum() + x.shape[0]
net = Net()
call = torch.compile(net, dynamic=False)
for size in (2, 3, 5, 7):
    net.inner.table = torch.ones(size + 3)
    call(torch.ones(size, 4), items=[torch.ones(2), torch.ones(size + 1)], n=size + 2, extra=torch.ones(size + 4))
print(counters["stats"]["unique_graphs"])
"""


@pytest.mark.thorough
def test_a_probe_shows_whether_an_entry_may_name_a_dimension() -> None:
    assert takes_dimensions("any") is (torch_version() > (2, 9))


@pytest.mark.thorough
def test_sizes_have_the_names_that_torch_accepts_as_dynamic_sources(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    found = process(
        under(first, NAMED, {"sizes": True, "backend": "eager", "dynamic": "true", "recompile_limit": 1000})
    )
    varying = {
        (row["function"], row["source"], row["dim"]): row for row in found.facts["sizes"] if row["num_values"] > 1
    }
    resumed = (
        f"torch_dynamo_resume_in_forward_at_{line_of(NAMED, '''        print(end='')'''.replace(chr(39), chr(34)))}"
    )
    assert set(varying) == {
        ("forward", "L['x']", 0),
        ("forward", "L['n']", None),
        ("forward", "L['items'][1]", 0),
        ("forward", "L['kwargs']['extra']", 0),
        (resumed, "L['y']", 0),
        (resumed, "L['self']._modules['inner']._buffers['table']", 0),
        (resumed, "L['x']", 0),
    }
    assert varying["forward", "L['x']", 0]["values"] == {"2": 1, "3": 1, "5": 1, "7": 1}
    assert varying["forward", "L['n']", None]["num_calls"] == 4
    assert ("forward", "L['x']", 1) in {(row["function"], row["source"], row["dim"]) for row in found.facts["sizes"]}

    names = ",".join(sorted({re.escape(source) + "$" for _, source, _ in varying}))
    marked = under(second, NAMED, {"backend": "eager", "dynamic": "none"}, TORCH_COMPILE_DYNAMIC_SOURCES=names)
    assert marked.stdout.splitlines()[-1] == "2"      # the frame and its resumption, once each


def test_a_malformed_policy_is_reported_in_one_line_and_not_applied(tmp_path: Path) -> None:
    source = (
        "import torch\nprint(torch.compile(lambda x: x + 1, backend='eager', dynamic=False)(torch.ones(1)).item())\n"
    )
    seen = under(tmp_path, source, {"dynamic": "yes"})
    (found,) = [p for p in read_recording(seen.folder).processes if list(p.of(Tap))]
    reason = '"dynamic" must be one of "true", "false", "none", got "yes"'
    assert seen.stdout.splitlines()[0] == "2.0"
    assert [line for line in seen.stderr.splitlines() if "POLICY" in line] == [
        f"torchtriage: TORCHTRIAGE_POLICY: {reason}; the program runs unmodified",
    ]
    (tap,) = [tap for tap in found.of(Tap) if tap.name == "policy"]
    assert (tap.state, tap.detail) == ("absent", reason)
    assert "policy" not in found.facts


def test_without_a_policy_its_modules_are_not_loaded(tmp_path: Path) -> None:
    source = """
        import sys, torch, torch._dynamo
        print(sorted(name for name in sys.modules if name.startswith("torchtriage.capture.")))
        """
    seen = observe(tmp_path, source, flags=["-q"])
    loaded = seen.stdout.splitlines()[0]
    assert "'torchtriage.capture.observer'" in loaded
    assert "torchtriage.capture.policy" not in loaded
    assert "torchtriage.capture.torch_private.shapes" not in loaded


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_a_killed_program_leaves_its_facts_so_far(tmp_path: Path) -> None:
    script = write(tmp_path, """
        import time, torch
        f = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
        for _ in range(5):
            f(torch.ones(2))
        print("called", flush=True)
        time.sleep(600)
        """)
    folder = tmp_path / "out.triage"
    env = environment(
        {"TORCHTRIAGE": str(folder), "TORCHTRIAGE_POLICY": '{"sizes": true}', "TORCHTRIAGE_TELEMETRY": "0"}
    )
    child = subprocess.Popen([sys.executable, str(script)], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "called\n"
        until = time.monotonic() + 300
        while time.monotonic() < until and not (_num_calls(folder) and _has_call_times(folder)):
            time.sleep(0.2)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    assert _num_calls(folder) == 5
    (found,) = read_recording(folder).processes
    assert len(found.series["call_seconds/0"].values) == 5
    assert found.facts["sizes"][0]["values"] == {"2": 5}


def _has_call_times(folder: Path) -> bool:
    return any("call_seconds/0" in p.series for p in read_recording(folder).processes)


def _num_calls(folder: Path) -> int:
    rows = [row for p in read_recording(folder).processes for row in p.facts.get("functions", ())]
    return sum(row["num_calls"] for row in rows)
