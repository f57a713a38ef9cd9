"""`with torchtriage.watch()` records the same facts as a run and restores everything; torchtriage.step() counts."""

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.programs import observe, plain, torch_version, write
from torchtriage.recording.events import CompileCall

REPORTS_SKIPS = torch_version() >= (2, 13)    # older versions skip a frame silently

HEAD = """
import json, logging, sys
import torch
import torchtriage
from torch._dynamo import convert_frame
from torch.autograd.profiler import record_function

out = {}

def named(name, dynamic=None):
    '''A compiled function of that name: it breaks, and is compiled again for each size.'''
    space = {}
    exec(compile(f"def {name}(x):\\n    x = x + 1\\n    print('{name}')\\n    return x\\n", __file__, "exec"), space)
    return torch.compile(space[name], backend="eager", dynamic=False)

def call(function, *sizes):
    for size in sizes:
        function(torch.ones(size))

def functions(events):
    return [e.function for e in events if "resume" not in e.function]

def state():
    trace = logging.getLogger("torch.__trace")
    # Python 3.14 puts a new list in place of `handlers`.
    return [type(trace), {**trace.__dict__, "handlers": None}, list(trace.handlers), trace.disabled, trace.level,
            torch._dynamo.optimize,
            getattr(convert_frame, "add_skip_reason", None), convert_frame.graph_break_log, record_function.__exit__,
            torch._logging.trace_structured]
"""

BODY = (
    HEAD
    + """
before = named("before")
call(before, 2, 3)
clean = state()

with torchtriage.watch() as seen:
    out["handlers_inside"] = len(logging.getLogger("torch.__trace").handlers)
    call(before, 2, 3)
    out["warm"] = [len(seen.graph_breaks), len(seen.recompiles)]
    call(before, 4)
    during = named("during")
    call(during, 2, 3)
out["seen"] = [functions(seen.graph_breaks), functions(seen.recompiles)]
stacks = {entry.path for e in seen.recompiles for entry in e.stack}
out["paths"] = sorted({e.path for e in (*seen.graph_breaks, *seen.recompiles)} | stacks)
out["codes"] = sorted({f.code for f in seen.findings})
places = [f.location for f in seen.findings if f.code == "TT101"]
out["places"] = sorted({(place.path, place.line, place.function) for place in places})
out["text"] = str(seen)
out["line"] = repr(seen)
out["restored"] = state() == clean

call(before, 5)
call(during, 4)
out["after"] = [len(seen.graph_breaks), len(seen.recompiles)]

with torchtriage.watch() as outer:
    call(named("outer"), 2)
    with torchtriage.watch() as inner:
        call(named("inner"), 2)
    call(named("outer_again"), 2)
out["outer"], out["inner"] = functions(outer.graph_breaks), functions(inner.graph_breaks)
out["nested_restored"] = state() == clean

first, second = torchtriage.watch(), torchtriage.watch()
in_first = first.__enter__()
in_second = second.__enter__()
first.__exit__(None, None, None)
call(named("only_second"), 2)
second.__exit__(None, None, None)
out["crossed"] = [functions(in_first.graph_breaks), functions(in_second.graph_breaks)]
out["crossed_restored"] = state() == clean

@torchtriage.watch()
def decorated(name):
    '''Its docstring.'''
    call(named(name), 2)
    if name == "two":
        decorated("recursive")
    if name == "raises":
        raise KeyError(name)
    return name
out["returned"] = [decorated("one"), decorated("two"), decorated.__name__, decorated.__doc__]
try:
    decorated("raises")
except KeyError as error:
    out["raised"] = error.args[0]
out["decorated"] = functions(decorated.seen.graph_breaks)
out["decorated_restored"] = state() == clean

logging.getLogger("torch.__trace").disabled = True
logging.getLogger("torch.__trace").setLevel(logging.ERROR)
silenced = state()
with torchtriage.watch() as seen:
    call(named("silenced"), 2)
out["silenced"] = functions(seen.graph_breaks)
out["silenced_restored"] = state() == silenced

torch._dynamo.reset()
with torchtriage.watch() as seen:
    fixed = torch.compile(torch.nn.functional.softsign, backend="eager", dynamic=False)
    sizes = torch.compile(torch.nn.functional.softsign, backend="eager")
    call(fixed, 2, 3)
    call(sizes, 4, 5, 6)
out["settings"] = sorted((f.code, f.title.rpartition(": ")[2]) for f in seen.findings)

with torchtriage.watch() as nothing:
    pass
out["nothing"] = [nothing.graph_breaks, nothing.recompiles, nothing.findings]

torch._dynamo.config.recompile_limit = 4
with torchtriage.watch() as seen:
    limited = named("limited")
    call(limited, *range(2, 20))
out["limit"] = [e.function for e in seen.limits]
out["limit_codes"] = sorted({f.code for f in seen.findings})
out["limit_restored"] = state() == silenced
out["limit_eager"] = seen.report.totals["eager_calls"]
out["hook_left"] = torch._C._dynamo.eval_frame.set_guard_complete_hook(None) is not None
print(json.dumps(out), file=sys.stderr)
"""
)


def facts_of(stderr: str) -> dict[str, Any]:
    return json.loads(stderr.splitlines()[-1])


@pytest.fixture(scope="module", params=["alone", "under run"])
def watched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program recorded about its watches, alone and while `torchtriage run` also observes it."""
    folder = tmp_path_factory.mktemp("watched")
    if request.param == "alone":
        done = plain(folder, write(folder, BODY))
        assert done.returncode == 0, done.stderr
        facts = facts_of(done.stderr)
    else:
        seen = observe(folder, BODY, flags=["-q"])
        assert seen.status == 0, seen.stderr
        facts = facts_of(seen.stderr)
        assert {"before", "during", "inner", "silenced", "limited"} <= {
            e["function"] for e in seen.report["events"]["graph_breaks"]
        }
        assert not [code for code in seen.codes if code.startswith("TT9")]
    return facts | {"script": str(folder / "train.py"), "alone": request.param == "alone"}


def test_a_block_has_its_events(watched: dict[str, Any]) -> None:
    assert watched["warm"] == [0, 0]
    assert watched["seen"] == [["before", "during", "during"], ["before", "during"]]
    assert watched["after"] == [3, 2]       # and nothing came after the block
    assert watched["nothing"] == [[], [], []]


def test_code_compiled_before_the_block_has_its_file_name(watched: dict[str, Any]) -> None:
    assert watched["paths"] == [watched["script"]]


def test_a_block_is_diagnosed(watched: dict[str, Any]) -> None:
    assert watched["codes"][0] == "TT101"
    assert [place[:2] for place in watched["places"]] == [[watched["script"], 3]]
    assert "TT101 P3" in watched["text"]
    assert re.fullmatch(r"<3 findings: .*\bTT101 at train\.py:3\b.*>", watched["line"]), watched["line"]
    assert watched["limit"].count("limited") == 1
    assert {"TT101", "TT301"} <= set(watched["limit_codes"])
    # Of 18 calls 4 are compiled, one hits the limit, and the meter runs from then on.
    assert watched["limit_eager"] == 13


def test_each_compile_belongs_to_the_call_whose_result_runs(watched: dict[str, Any]) -> None:
    assert watched["settings"] == [
        ["TT202", "args[0].size(0) keeps changing"],
        ["TT219", "torch.compile was called on it with other settings"],
    ]


def test_blocks_nest_and_cross(watched: dict[str, Any]) -> None:
    assert watched["outer"] == ["outer", "inner", "outer_again"]
    assert watched["inner"] == ["inner"]
    assert watched["crossed"] == [[], ["only_second"]]


def test_a_decorated_function_keeps_its_name_and_its_events(watched: dict[str, Any]) -> None:
    assert watched["returned"] == ["one", "two", "decorated", "Its docstring."]
    assert watched["raised"] == "raises"
    assert watched["decorated"] == ["one", "two", "recursive", "raises"]


def test_a_silenced_trace_logger_is_watched_and_stays_silenced(watched: dict[str, Any]) -> None:
    assert watched["silenced"] == ["silenced"]


@pytest.mark.parametrize("name", [
    "restored", "nested_restored", "crossed_restored", "decorated_restored", "silenced_restored", "limit_restored",
])
def test_logging_and_dynamo_are_restored(name: str, watched: dict[str, Any]) -> None:
    assert watched[name]


def test_the_guard_hook_is_removed_with_its_last_user(watched: dict[str, Any]) -> None:
    assert watched["hook_left"] != watched["alone"]


def test_an_internal_failure_never_reaches_the_program(tmp_path: Path) -> None:
    source = HEAD + textwrap.dedent("""
        from torchtriage.capture.observer import Observer
        def sink(event):
            raise OSError("disk gone")
        def generator(x):
            yield x + 1
        observer = Observer(sink, measure=True)
        observer.arm_for_block()
        observer._arm_timer(torch._dynamo.output_graph)
        torch._dynamo.config.recompile_limit = 3
        call(named("f"), *range(2, 9))
        list(torch.compile(generator, backend="eager")(torch.ones(2)))
        torch.optim.SGD([torch.ones(1, requires_grad=True)]).step()
        torchtriage.step()
        observer.facts(), observer.series(), observer.last_events()
        observer.disarm()
        print("survived")
        """)
    done = plain(tmp_path, write(tmp_path, source))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("survived\n")
    assert "torchtriage" not in done.stderr


@pytest.mark.thorough
def test_a_timeout_inside_torchtriage_reaches_the_program(tmp_path: Path) -> None:
    """A signal handler may raise at any line, also inside torchtriage."""
    source = HEAD + textwrap.dedent("""
        import signal
        from torchtriage.recording import recorder
        class Alarm:
            def ring(self, number, frame):
                raise ValueError("out of time")
        signal.signal(signal.SIGALRM, Alarm().ring)
        class Bound(int):
            def __le__(self, length):       # Recorder.add compares the length of its queue with this
                global armed
                if armed:
                    armed = False
                    signal.raise_signal(signal.SIGALRM)
                return int(self) <= length
        recorder.MAX_QUEUE = Bound(recorder.MAX_QUEUE)
        armed = False
        def generator(x):
            yield x + 1
        ready = named("ready")
        skipped = torch.compile(generator, backend="eager")
        for name, work in (
            ("compile call", lambda: named("f")),
            ("compile", lambda: call(ready, 2)),
            ("skip", lambda: list(skipped(torch.ones(2)))),
        ):
            armed = True
            try:
                work()
            except Exception as error:
                out[name] = "out of time" in str(error)
            armed = False
        call(named("afterwards"), 2)
        print(json.dumps(out), file=sys.stderr)
        """)
    seen = observe(tmp_path, source, flags=["-q"])
    assert seen.status == 0, seen.stderr
    assert facts_of(seen.stderr) == {"compile call": True, "compile": True} | ({"skip": True} if REPORTS_SKIPS else {})
    assert "afterwards" in [e["function"] for e in seen.report["events"]["graph_breaks"]]
    assert not [code for code in seen.codes if code.startswith("TT9")]


# torchtriage.step()

@pytest.mark.thorough
def test_steps_are_counted_and_events_carry_them(tmp_path: Path) -> None:
    source = HEAD + textwrap.dedent("""
        from torch._dynamo.utils import counters
        weight = torch.ones(3, requires_grad=True)
        actor, critic = torch.optim.SGD([weight]), torch.optim.Adam([weight])
        @torch.compile(backend="eager", dynamic=False)
        def loss(x, w):
            torchtriage.step()
            return (x * w.sum()).sum()
        for i in range(6):
            loss(torch.ones(2 + (i == 4)), weight).backward()
            actor.step()
            critic.step()
            critic.step()
            if i == 2:
                call(named("after_three"), 2)
        out["breaks"] = dict(counters["graph_break"])
        print(json.dumps(out), file=sys.stderr)
        """)
    seen = observe(tmp_path, source, flags=["-q"])
    assert seen.status == 0, seen.stderr
    # The print of after_three; step() in a compiled function is not a break.
    assert len(facts_of(seen.stderr)["breaks"]) == 1
    assert seen.report["totals"]["steps"] == 6
    assert [e["step"] for e in seen.report["events"]["graph_breaks"]] == [3]
    assert [e["step"] for e in seen.report["events"]["recompiles"]] == [4]
    facts = one_process(seen.folder).facts
    assert facts["step_source"] == "optimizer"
    assert facts["steps_of_other_optimizers"] == [12]
    assert len(one_process(seen.folder).series["step_seconds"].values) == 5


@pytest.mark.thorough
def test_a_block_inside_an_observed_run_changes_nothing_for_the_run(tmp_path: Path) -> None:
    source = HEAD + textwrap.dedent("""
        first, second = (torch.optim.SGD([torch.ones(3, requires_grad=True)]) for _ in range(2))
        for i in range(8):
            with torchtriage.watch() as seen:
                first.step()
                second.step()
                second.step()
                call(named(f"f{i}"), 2)
        print(json.dumps([[e.step for e in seen.graph_breaks], seen.report.totals["steps"]]), file=sys.stderr)
        """)
    seen = observe(tmp_path, source, flags=["-q"])
    assert facts_of(seen.stderr) == [[1], 1]
    assert [e["step"] for e in seen.report["events"]["graph_breaks"]] == list(range(1, 9))
    process = one_process(seen.folder)
    assert (process.facts["num_steps"], process.facts["steps_of_other_optimizers"]) == (8, [16])
    calls = list(process.of(CompileCall))
    assert [(Path(c.path).name, c.function, c.target) for c in calls] == [
        ("train.py", "named", f"f{i}") for i in range(8)
    ]


@pytest.mark.thorough
def test_steps_of_the_program_override_those_of_the_optimizer(tmp_path: Path) -> None:
    source = HEAD + textwrap.dedent("""
        with torchtriage.watch() as seen:
            optimizer = torch.optim.SGD([torch.ones(3, requires_grad=True)])
            for i in range(4):
                optimizer.step()
                optimizer.step()
                torchtriage.step()
                call(named(f"f{i}"), 2)
        print(json.dumps([[e.step for e in seen.graph_breaks], seen.report.totals["steps"]]), file=sys.stderr)
        """)
    alone = plain(tmp_path, write(tmp_path, source))
    assert facts_of(alone.stderr) == [[1, 2, 3, 4], 4]
    seen = observe(tmp_path, source, flags=["-q"])
    assert facts_of(seen.stderr) == [[1, 2, 3, 4], 4]
    assert seen.report["totals"]["steps"] == 4
    assert one_process(seen.folder).facts["step_source"] == "torchtriage.step()"


@pytest.mark.thorough
def test_a_project_called_torch_is_the_users_own(tmp_path: Path) -> None:
    """Nothing in the name of a folder makes a file torch's; not even `torch`."""
    folder = tmp_path / "torch"
    folder.mkdir()
    source = HEAD + textwrap.dedent("""
        def generator(x):
            yield x + 1
        list(torch.compile(generator, backend="eager")(torch.ones(2)))
        call(named("broken"), 2, 3)
        """)
    seen = observe(folder, source)
    assert seen.status == 0, seen.stderr
    calls = list(one_process(seen.folder).of(CompileCall))
    assert [(c.path, c.target) for c in calls] == [
        (str(folder / "train.py"), "generator"),
        (str(folder / "train.py"), "broken"),
    ]
    assert ("TT302" if REPORTS_SKIPS else "TT303") in seen.codes
    assert {f["owner"]["kind"] for f in seen.report["findings"]} == {"you"}


@pytest.mark.thorough
def test_a_finding_in_a_notebook_names_the_cell() -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    cells = [
        "import torch, torchtriage",
        "@torch.compile(backend='eager')\ndef f(x):\n    print('inside')\n    return x + 1",
        "with torchtriage.watch() as seen:\n    f(torch.ones(2))",
        "print(seen)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=600).execute()
    printed = notebook.cells[-1].outputs[0]["text"]
    assert "--> cell In[2]:3  in f\n      3 | print('inside')\n" in printed
    assert "ipykernel" not in printed


def one_process(folder: Path) -> Any:
    from torchtriage.recording.reader import read_recording

    (process,) = read_recording(folder).processes
    return process
