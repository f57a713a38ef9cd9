"""torchtriage survives any change of the logging configuration, and does not change the program's own logging."""

import json
import re
import textwrap
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.programs import Outcome, observe, plain, torch_version, write

pytestmark = pytest.mark.thorough

DISTURBANCES = {
    "dict_config": (
        "logging.config.dictConfig({'version': 1, 'disable_existing_loggers': True, 'root': {'level': 'WARNING'}})"
    ),
    "disable": "logging.disable(logging.CRITICAL)",
    "basic_config": "logging.basicConfig(force=True)",
    "clear": "trace.handlers.clear()",
    "slice": "trace.handlers[:] = []",
    "assign": "trace.handlers = []",
    "remove": "[trace.removeHandler(handler) for handler in list(trace.handlers)]",
    "level": "[logging.getLogger(name).setLevel(logging.CRITICAL) for name in list(logging.root.manager.loggerDict)]",
    "disabled": "trace.disabled = True",
    "filter": "trace.addFilter(lambda record: False)",
    "set_logs": "torch._logging.set_logs(all=logging.ERROR)",
    "reset": "torch._dynamo.reset()",
    "close": "[handler.close() for handler in list(trace.handlers)]",
    "shutdown": "logging.shutdown()",
}

HEAD = """
import logging, logging.config, sys
import torch

trace = logging.getLogger("torch.__trace")

def compile_and_run(name):
    '''Compile a function of that name, which breaks, twice.'''
    space = {}
    exec(compile(f"def {name}(x):\\n    x = x + 1\\n    print('{name}')\\n    return x\\n", __file__, "exec"), space)
    function = torch.compile(space[name], backend="eager", dynamic=False)
    for size in (2, 3):
        function(torch.ones(size))
"""

SICK = HEAD + """
def whole_frame(x):
    for _ in range(2):
        try:
            print("in a try")
        finally:
            x = x + 1
    return x

def after_tracing(x):
    return x + 3

def refuse(guards):
    '''A break that torch writes down only if its log is on, or because we ask.'''
    raise torch._dynamo.exc.Unsupported("refused")

def generator(x):
    yield x + 1

@torch.compile(backend="eager")
def item(x):
    return x + x.sum().item()

compile_and_run("broken")
torch.compile(whole_frame, backend="eager")(torch.ones(2))
list(torch.compile(generator, backend="eager")(torch.ones(2)))
torch.compile(after_tracing, backend="eager", options={"guard_filter_fn": refuse})(torch.ones(2))
item(torch.ones(2))
for size in range(2, 14):
    torch.compile(lambda x: x * 2, backend="eager", dynamic=False)(torch.ones(size))
trace.disabled = True
compile_and_run("after_the_end")
"""


def without_stamps(log: str) -> str:
    """The text without times, process ids, and the addresses and names that differ in every run."""
    log = re.sub(r"^([VDIWE])\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ ", r"\1 ", log, flags=re.M)
    return re.sub(r"0x[0-9a-f]+|\b\d{12,}\b|[0-9a-f]{8}(_[0-9a-f]{4}){3}_[0-9a-f]{12}", "N", log)


def breaks(seen: Outcome) -> Counter[str]:
    return Counter(e["function"] for e in seen.report["events"]["graph_breaks"])


def test_no_event_is_lost_when_the_program_changes_logging(tmp_path: Path) -> None:
    source = HEAD + "compile_and_run('undisturbed')\n"
    for name, statement in DISTURBANCES.items():
        source += f"{statement}\ncompile_and_run('{name}')\n"
    alone = plain(tmp_path, write(tmp_path, source))
    seen = observe(tmp_path, source, flags=["-q", "--ignore", "TT"])
    assert (seen.status, seen.stderr) == (0, alone.stderr) == (0, "")
    assert seen.stdout.startswith(alone.stdout)
    assert breaks(seen) == {name: 2 for name in ("undisturbed", *DISTURBANCES)}
    recompiles = Counter(e["function"] for e in seen.report["events"]["recompiles"])
    assert {name: 1 for name in ("undisturbed", *DISTURBANCES)}.items() <= recompiles.items()
    assert not [code for code in seen.codes if code.startswith("TT9")]


def run_both_ways(folder: Path, env: Mapping[str, str]) -> tuple[str, Outcome]:
    """stderr without torchtriage, and the observed run; `{way}` in a value is "alone" or "ours"."""
    script = write(folder, SICK)
    alone = plain(folder, script, env={k: v.format(way="alone") for k, v in env.items()})
    assert alone.returncode == 0, alone.stderr
    seen = observe(folder, SICK, flags=["-q"], env={k: v.format(way="ours") for k, v in env.items()})
    assert seen.status == 0, seen.stderr
    assert {"broken": 2, "after_tracing": 1, "after_the_end": 2}.items() <= breaks(seen).items()
    return alone.stderr, seen


def test_the_log_of_the_program_is_unchanged(tmp_path: Path) -> None:
    alone, seen = run_both_ways(tmp_path, {"TORCH_LOGS": "graph_breaks,recompiles,graph_code,dynamic,bytecode"})
    assert "[__graph_breaks]" in alone
    assert "[__recompiles]" in alone
    assert without_stamps(seen.stderr) == without_stamps(alone)


def records(folder: Path) -> Counter[str]:
    """How many records of each kind the trace files in a folder have."""
    found: Counter[str] = Counter()
    for path in folder.rglob("dedicated_log_torch_trace_*"):
        for line in path.read_text().splitlines():
            if match := re.match(r"V\d{4} [^\]]*\] (\{.*)", line):
                record = json.loads(match[1])
                kind = next(iter(record))
                found[f"artifact {record['artifact']['name']}" if kind == "artifact" else kind] += 1
    return found


@pytest.mark.parametrize("env", [
    {"TORCH_TRACE": "trace-{way}"}, {"TORCH_COMPILE_DEBUG": "1", "TORCH_COMPILE_DEBUG_DIR": "trace-{way}"},
], ids=["TORCH_TRACE", "TORCH_COMPILE_DEBUG"])
def test_the_trace_of_the_program_has_the_same_records(env: dict[str, str], tmp_path: Path) -> None:
    run_both_ways(tmp_path, env)
    alone = records(tmp_path / "trace-alone")
    assert records(tmp_path / "trace-ours") == alone
    if "TORCH_TRACE" not in env and torch_version() < (2, 13):
        assert not alone        # this torch writes a trace for TORCH_TRACE only
        return
    assert alone["artifact dynamo_graph_break_reason"] > 2
    everything = "".join(p.read_text() for p in (tmp_path / "trace-ours").rglob("dedicated_log_torch_trace_*"))
    assert "in broken" in everything
    assert "after_the_end" not in everything
    assert not re.search(r"Graph break: (skip|torch\.compile cannot properly resume)", everything)    # 2.9, 2.13


def test_a_handler_of_the_program_gets_every_record(tmp_path: Path) -> None:
    source = textwrap.dedent("""
        import logging, torch
        class Mine(logging.Handler):
            def emit(self, record):
                kind = next(iter(record.metadata))
                found.append(record.metadata["artifact"]["name"] if kind == "artifact" else kind)
        found = []
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        logging.getLogger("torch.__trace").addHandler(Mine())
        torch.compile(lambda x: x + 2, backend="eager")(torch.ones(2))
        print(sorted(found))
        """)
    alone = plain(tmp_path, write(tmp_path, source))
    seen = observe(tmp_path, source, flags=["-q"])
    assert "dynamo_start" in alone.stdout
    assert seen.stdout.splitlines()[0] == alone.stdout.strip()
