"""Recording never changes the run: same frames, graphs, breaks, recompiles, numbers, output and status."""

import json
import os
from pathlib import Path

import pytest

from tests.programs import observe, plain, write

TAIL = """
import json
from torch._dynamo.utils import counters
print(json.dumps({
    "frames": dict(counters["frames"]), "stats": dict(counters["stats"]),
    "unimplemented": sum(counters["unimplemented"].values()),
    "graph_break": sum(counters["graph_break"].values()), "rng": torch.get_rng_state().sum().item(),
    "numbers": float(sum(p.double().sum() for p in globals().get("kept", []))),
    "compile_times": len(torch._dynamo.utils.compilation_time_metrics),
}))
"""

PROGRAMS = {
    "breaks and recompiles": """
        import torch
        torch.manual_seed(0)
        kept = [torch.nn.Parameter(torch.randn(4))]
        def inner(x):
            print("hello")
            return x * torch.rand(1)
        @torch.compile(backend="eager", dynamic=False)
        def f(x, k):
            y = inner(x) + kept[0].sum()
            if y.sum() > 0:
                y = y + k
            return y
        for i in range(12):
            f(torch.ones(2 + i), i)
        """,
    "training with a compiled optimizer step": """
        import torch
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
        kept = list(model.parameters())
        opt = torch.optim.AdamW(kept, lr=1e-3)
        fwd = torch.compile(model, backend="eager")
        @torch.compile(backend="eager")
        def step():
            opt.step()
        for i in range(6):
            fwd(torch.randn(3, 4)).pow(2).mean().backward()
            step()
            opt.zero_grad()
        """,
    "whole update in one function": """
        import torch
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        kept = list(model.parameters())
        opt = torch.optim.SGD(kept, lr=1e-2)
        @torch.compile(backend="aot_eager")
        def update(x):
            loss = model(x).pow(2).mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss
        for i in range(5):
            update(torch.randn(8, 4))
        """,
    "generators, hooks and a failing frame": """
        import torch
        torch.manual_seed(0)
        kept = []
        def gen(x):
            yield x + 1
        compiled = torch.compile(gen, backend="eager")
        kept += list(compiled(torch.ones(2)))
        m = torch.nn.Linear(2, 2)
        m.register_forward_hook(lambda mod, args, out: out * 2)
        cm = torch.compile(m, backend="eager")
        kept.append(cm(torch.ones(1, 2)))
        @torch.compile(backend="eager")
        def loop(x):
            for i in range(3):
                x = x + x.sum().item()
            return x
        kept.append(loop(torch.ones(3)))
        """,
}


@pytest.mark.parametrize("name", [
    name if name == "breaks and recompiles" else pytest.param(name, marks=pytest.mark.thorough) for name in PROGRAMS
])
def test_the_run_is_the_same_with_and_without_torchtriage(name: str, tmp_path: Path) -> None:
    import textwrap

    source = textwrap.dedent(PROGRAMS[name]) + TAIL
    alone = plain(tmp_path, write(tmp_path, source))
    seen = observe(tmp_path, source, flags=["-q", "--format", "json"])
    assert alone.returncode == seen.status == 0, seen.stderr
    ours_at = seen.stdout.index('{\n "schema"')
    printed = seen.stdout[:ours_at]
    assert printed == alone.stdout
    assert json.loads(printed.splitlines()[-1])["frames"]["total"] > 0


def test_the_program_sees_itself_as_under_plain_python(tmp_path: Path) -> None:
    source = """
        import sys, os, __main__
        print(__name__, __file__ == os.path.abspath("train.py"), sys.argv, sys.path[0] == os.getcwd(), sys.stdin.read())
        print(sorted(n for n in sys.modules if n.startswith("torchtriage.rec")))
        print(__main__.__spec__, __loader__.__class__.__name__, sys.flags.dev_mode)
        """
    script = write(tmp_path, source)
    seen = observe(tmp_path, source, "--lr", "3", flags=["-q"], stdin="typed")
    lines = seen.stdout.splitlines()
    assert lines[0] == "__main__ True ['train.py', '--lr', '3'] True typed"
    assert lines[1] == "[]"     # nothing of the recorder is loaded before torch is
    assert lines[2] == "None SourceFileLoader False"
    assert os.path.exists(script)
