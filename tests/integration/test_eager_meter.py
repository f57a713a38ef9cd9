"""The silent-eager meter is exact, inactive in a healthy run, and never harms the process."""

import shutil
from pathlib import Path

import pytest

from tests.programs import observe
from torchtriage.recording.reader import read_recording

pytestmark = pytest.mark.thorough

HEAD = """
import os, signal, threading, time
import torch
torch._dynamo.config.recompile_limit = 4

@torch.compile(backend="eager", dynamic=False)
def sick(x):
    return x + 1

@torch.compile(backend="eager", dynamic=False)
def healthy(x):
    return x + 2

def hit_the_limit():
    for size in range(2, 7):
        sick(torch.ones(size))

def run_eager(count):
    for i in range(count):
        sick(torch.ones(100 + i))
"""


def test_the_counts_are_exact(tmp_path: Path) -> None:
    source = HEAD + """
healthy(torch.ones(2))
hit_the_limit()
run_eager(100)
for i in range(80):
    sick(torch.ones(2 + i % 4))
for size in (3, 4):
    healthy(torch.ones(size))
threads = [threading.Thread(target=run_eager, args=(50,)) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
child = os.fork()
if child == 0:
    torch.compile(lambda x: x + 3, backend="eager")(torch.ones(2))
    run_eager(10)
    os._exit(0)
os.waitpid(child, 0)
"""
    seen = observe(tmp_path, source)
    assert seen.status == 0, seen.stderr
    parent, child = read_recording(seen.folder).processes
    assert parent.facts["eager_calls"] == {"hits": 80, "misses": 302, "recompiles": 2, "eager": 300}
    assert child.facts["eager_calls"] == {"hits": 0, "misses": 10, "recompiles": 0, "eager": 10}
    assert seen.report["totals"]["eager_calls"] == 310
    assert seen.report["totals"]["frames_at_limit"] == 1
    assert "300 calls ran eager" in seen.finding("TT301")["title"]
    assert "silent-eager meter" in seen.report["watched"]


def test_a_healthy_run_does_not_arm_the_meter(tmp_path: Path) -> None:
    source = HEAD + """
for i in range(50):
    healthy(torch.ones(2 + i % 3))
print(torch._C._dynamo.eval_frame.set_guard_complete_hook(None))
"""
    seen = observe(tmp_path, source)
    assert seen.stdout.startswith("None\n")
    (process,) = read_recording(seen.folder).processes
    assert process.facts["eager_calls"] is None
    assert seen.report["totals"]["eager_calls"] == 0
    assert "silent-eager meter" not in seen.report["watched"]


def test_two_thousand_exceptions_per_second_do_not_abort_the_process(tmp_path: Path) -> None:
    source = HEAD + """
class Interrupted(Exception):
    pass

armed = False

def interrupt(number, frame):
    global armed
    if armed:           # never while the program counts the last one
        armed = False
        raise Interrupted

hit_the_limit()
inputs = [torch.ones(size) for size in (2, 3, 200, 201)]
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
num_calls = num_interrupts = 0
began = time.monotonic()

def continues():
    seconds, is_enough = time.monotonic() - began, num_calls > 1000 and num_interrupts > 100
    return seconds < 3 or (not is_enough and seconds < 120)     # a busy machine takes longer

while continues():
    try:
        while continues():
            armed = True    # each time: an interrupt may be swallowed by whatever it hit
            sick(inputs[num_calls % 4])
            num_calls += 1
        armed = False
    except Exception:   # the interrupt itself, or the error that torch raises when interrupted
        num_interrupts += 1
signal.setitimer(signal.ITIMER_REAL, 0)
assert num_calls > 1000 and num_interrupts > 100, (num_calls, num_interrupts)
print(num_calls)
"""
    seen = observe(tmp_path, source)
    assert seen.status == 0, seen.stderr
    (process,) = read_recording(seen.folder).processes
    counted = process.facts["eager_calls"]
    # How many calls reach the hook depends on where torch was interrupted. In any case it still counts, and nothing
    # aborts.
    assert counted["eager"] > 0
    assert counted["hits"] > 0
    assert [code for code in seen.codes if code.startswith("TT9")] == []


def test_without_the_native_part_the_meter_is_absent_with_a_reason(tmp_path: Path) -> None:
    package = Path(__file__).parents[2] / "src" / "torchtriage"
    shutil.copytree(
        package, tmp_path / "site" / "torchtriage", ignore=shutil.ignore_patterns("_guard_meter*", "__pycache__")
    )
    source = HEAD + "hit_the_limit()\nrun_eager(10)\nimport torchtriage\nprint(torchtriage.__file__)\n"
    seen = observe(tmp_path, source, env={"PYTHONPATH": str(tmp_path / "site")})
    assert seen.status == 0, seen.stderr
    assert seen.stdout.startswith(str(tmp_path / "site"))
    assert [
        text for text in seen.report["not_seen"] if text.startswith("silent-eager meter: the native part was not built")
    ]
    assert seen.report["totals"]["eager_calls"] is None
    assert "not counted" in seen.finding("TT301")["title"]
