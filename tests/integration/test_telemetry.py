"""`torchtriage run` records the learning of a script that does not use telemetry, and does not change the script."""

import importlib
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_same_run import TAIL
from tests.programs import Outcome, command, observe, plain, write
from torchtriage.recording.events import StepSkipped, Tap
from torchtriage.recording.reader import read_recording
from torchtriage.recording.recording import Process

BITS = """
import hashlib
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in kept)).hexdigest())
"""
SAME = {
    "compiled model, clipping and a GradScaler that skips": """
        import torch
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        kept = list(model.parameters())
        opt = torch.optim.SGD(kept, lr=1e-2)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        fwd = torch.compile(model, backend="eager")
        for i in range(8):
            loss = fwd(torch.randn(3 + i % 2, 4)).pow(2).mean()
            scaler.scale(loss).backward()
            if i == 3:
                kept[0].grad[0, 0] = float("inf")
            scaler.unscale_(opt)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
        kept.append(torch.tensor([scaler.get_scale()]))
        """,
    "clipping, backward and the step in one compiled function": """
        import torch
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        kept = list(model.parameters())
        opt = torch.optim.AdamW(kept, lr=1e-2)
        @torch.compile(backend="eager")
        def clip():
            torch.nn.utils.clip_grad_norm_(kept, 0.01)
        @torch.compile(backend="eager")
        def update(x):
            loss = model(x).pow(2).mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            opt.step()
            opt.zero_grad()
            return loss
        for i in range(4):
            update(torch.randn(8, 4))
        model(torch.randn(8, 4)).sum().backward()
        clip()
        """,
    "closures, TorchScript, and a mode that counts operations": """
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode
        torch.manual_seed(0)
        class Count(TorchDispatchMode):
            num = 0
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                Count.num += 1
                return func(*args, **(kwargs or {}))
        model = torch.nn.Linear(4, 1)
        kept = list(model.parameters())
        opt = torch.optim.LBFGS(kept, lr=1e-1, max_iter=3)
        fwd = torch.compile(model, backend="eager")
        x = torch.randn(8, 4)
        def closure():
            opt.zero_grad()
            loss = fwd(x).pow(2).mean()
            loss.backward()
            return loss
        for i in range(3):
            opt.step(closure)
        adam = torch.optim.Adam(kept)
        with Count():
            for i in range(3):
                model(x).sum().backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
                adam.step()
        print(Count.num)
        @torch.jit.script
        def scripted(x):
            with torch.no_grad():
                y = x * 2
            with torch.autograd.profiler.record_function("block"):
                y = y + 1
            return y
        print(scripted(x).sum())
        """,
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", SAME)
def test_the_run_is_the_same_with_and_without_telemetry(name: str, tmp_path: Path) -> None:
    source = textwrap.dedent(SAME[name]) + BITS + TAIL
    alone = plain(tmp_path, write(tmp_path, source))
    seen = observe(tmp_path, source, flags=["-q", "--format", "json"])
    assert alone.returncode == seen.status == 0, seen.stderr
    printed = seen.stdout[: seen.stdout.index('{\n "schema"')]
    assert printed == alone.stdout
    assert json.loads(printed.splitlines()[-1])["frames"]["total"] > 0
    assert "the recorder tap" not in seen.stdout


MONITORED = {"compiled model and optimizer step": """
    import os, torch
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    kept = list(model.parameters())
    opt = torch.optim.AdamW(kept, lr=1e-2)
    fwd = torch.compile(model, backend="eager")
    @torch.compile(backend="eager")
    def step():
        opt.step()
    monitor = None
    if "WITH_MONITOR" in os.environ:
        from torchtriage.telemetry import Monitor
        monitor = Monitor(model, opt, sinks=["jsonl:run.jsonl"])
    for i in range(30):
        loss = fwd(torch.randn(3 + i % 3, 4)).pow(2).mean()
        loss.backward()
        if monitor:
            monitor.after_backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        step()
        if monitor:
            monitor.step({"loss again": loss})
        opt.zero_grad()
    if monitor:
        monitor.close()
    """, "the full step compiled": """
    import os, torch
    torch.manual_seed(0)
    torch._dynamo.config.trace_autograd_ops = True
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    kept = list(model.parameters())
    opt = torch.optim.AdamW(kept, lr=1e-2)
    monitor = None
    if "WITH_MONITOR" in os.environ:
        from torchtriage.telemetry import Monitor
        monitor = Monitor(model, opt, sinks=["jsonl:run.jsonl"])
    @torch.compile(backend="eager")
    def update(x):
        loss = model(x).pow(2).mean()
        loss.backward()
        if monitor is not None:
            monitor.after_backward(loss)        # does nothing here: no hook of ours may be traced
            monitor.step()
        torch.nn.utils.clip_grad_norm_(kept, 0.01)
        opt.step()
        return loss
    for i in range(30):
        loss = update(torch.randn(8, 4)).detach()
        if monitor:
            monitor.after_backward(loss)        # out here it sees the gradients as the optimizer used them
            monitor.step({"loss again": loss})
        opt.zero_grad()
    if monitor:
        monitor.close()
    """}


@pytest.mark.thorough
@pytest.mark.parametrize("name", MONITORED)
def test_a_monitored_run_is_the_same_as_one_without(name: str, tmp_path: Path) -> None:
    """The same frames, graphs, breaks, recompiles, RNG, and weights to the bit."""
    if "trace_autograd_ops" in MONITORED[name] and not hasattr(
        importlib.import_module("torch._dynamo.config"), "trace_autograd_ops"
    ):
        pytest.skip("this torch does not trace a backward in a compiled function")
    script = write(tmp_path, textwrap.dedent(MONITORED[name]) + BITS + TAIL)
    alone = plain(tmp_path, script)
    monitored = plain(tmp_path, script, env={"WITH_MONITOR": "1"})
    assert alone.returncode == monitored.returncode == 0, monitored.stderr
    assert monitored.stdout == alone.stdout
    rows = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    samples = [row for row in rows if "event" not in row]
    assert len(samples) >= 20     # gradients of a compiled optimizer are measured too
    assert all(row["loss"] == row["loss again"] for row in samples)
    if name == "compiled model and optimizer step":
        assert samples[0]["grad_norm_after_clip"] < samples[0]["grad_norm"]


def process(seen: Outcome) -> Process:
    found = read_recording(seen.folder).processes
    assert len(found) == 1
    return found[0]


def values(process: Process, name: str) -> dict[int, float]:
    series = process.series[name]
    return {int(step): value for step, value in zip(series.steps, series.values, strict=True)}


def close(expected: Any) -> Any:
    return pytest.approx(expected, rel=1e-5)


def test_nan_in_a_gradient_is_located_and_drawn(tmp_path: Path) -> None:
    seen = observe(tmp_path, """
        import torch
        torch.manual_seed(0)
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first = torch.nn.Linear(16, 64)
                self.last = torch.nn.Linear(64, 1)
            def forward(self, x):
                return self.last(torch.relu(self.first(x)))
        def main():
            net = Net()
            opt = torch.optim.Adam(net.parameters(), lr=1e-3)
            for i in range(1, 61):
                net(torch.randn(32, 16)).pow(2).mean().backward()
                if i == 40:      # a step that is looked at
                    net.first.weight.grad[0, 0] = float("nan")
                opt.step()
                opt.zero_grad()
        main()
        """, flags=["-q", "--html"])
    assert seen.status == 0, seen.stderr
    found = seen.finding("TT402") if "TT402" in seen.codes else seen.finding("TT403")
    assert min(found["steps"]) == 40 or "step 40" in found["cause"]
    recorded = process(seen)
    assert recorded.facts["telemetry"]["gradients"] == "as the optimizer used them"
    assert recorded.facts["grad_dtypes"] == ["float32"]
    assert values(recorded, "grad_nan/first.weight")[40] == 1.0
    page = seen.folder.with_suffix(".html").read_text()
    assert "first.weight" in page
    assert "grad_norm" in page
    assert "No telemetry was recorded" not in page


def test_recorded_values_equal_those_of_the_program(tmp_path: Path) -> None:
    """Loss, norms before and after clipping, weights and updates against numbers that the program prints itself."""
    seen = observe(
        tmp_path,
        """
        import json, torch
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        model[2].bias.requires_grad_(False)
        groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "name": "head"}]
        opt = torch.optim.SGD(groups, lr=0.1)
        truth = {}
        for i in range(1, 6):
            total = 0.0
            for _ in range(2):
                loss = model(torch.randn(4, 8)).pow(2).mean() / 2
                loss.backward()
                total += loss.item()
            grads = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            before = [p.detach().clone() for p in model[0].parameters()]
            opt.step()
            change = torch.cat([(a - b).flatten() for a, b in zip(before, model[0].parameters())]).norm()
            weight = torch.cat([p.flatten() for p in model[0].parameters()]).norm()
            head_norm = model[2].weight.grad.norm().item()
            truth[i] = [total, grads.norm().item(), head_norm, before[0].norm().item(), (change / weight).item()]
            opt.zero_grad()
        print(json.dumps(truth))
        """,
        flags=["-q", "--format", "json"],
    )
    assert seen.status == 0, seen.stderr
    truth = json.loads(seen.stdout.splitlines()[0])
    recorded = process(seen)
    for step in range(2, 6):
        loss, norm, _, weight, ratio = truth[str(step)]
        assert values(recorded, "loss")[step] == close(loss)
        assert values(recorded, "grad_norm")[step] == close(norm)
        assert values(recorded, "weight_norm/0.weight")[step] == close(weight)
        assert values(recorded, "update_ratio/0")[step] == close(ratio)
    assert values(recorded, "grad_norm_after_clip")[5] == pytest.approx(min(0.1, truth["5"][1]), rel=1e-3)
    assert 1 not in values(recorded, "grad_norm")       # clipped before any optimizer was known
    assert "update_ratio/head" in recorded.series
    assert "grad_norm/group:head" in recorded.series
    assert "grad_norm/2.bias" not in recorded.series
    assert recorded.facts["telemetry"]["gradients"] == "before clipping"


def test_gradients_under_a_scaler_are_unscaled_and_skipped_steps_are_events(tmp_path: Path) -> None:
    seen = observe(tmp_path, """
        import json, torch
        torch.manual_seed(0)
        truth = {}
        def train(opt, model, key, bad=4):
            scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
            for i in range(1, 7):
                loss = model(torch.ones(4, 4) * i).pow(2).mean()
                scaler.scale(loss).backward()
                norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item()
                truth[f"{key} {i}"] = [loss.item(), norm / scaler.get_scale()]
                if i == bad:
                    model.weight.grad[0, 0] = float("inf")
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
        model = torch.nn.Linear(4, 1)
        train(torch.optim.SGD(model.parameters(), lr=1e-3), model, "plain")
        other = torch.nn.Linear(4, 1)
        fused = torch.optim.AdamW(other.parameters(), lr=1e-3, fused=True)
        train(fused, other, "fused")
        third = torch.nn.Linear(4, 1)
        train(torch.optim.Adam(third.parameters(), lr=1e-3), third, "last", bad=6)
        print(json.dumps(truth))
        """, flags=["-q", "--format", "json"])
    assert seen.status == 0, seen.stderr
    truth = json.loads(seen.stdout.splitlines()[0])
    recorded = process(seen)
    losses, norms = values(recorded, "loss"), values(recorded, "grad_norm")
    for step, i in ((1, 1), (2, 2), (3, 3), (4, 5), (5, 6)):        # the fourth was skipped, so it is not a step
        assert losses[step] == close(truth[f"plain {i}"][0])
        assert norms[step] == close(truth[f"plain {i}"][1])
    assert values(recorded, "scaler/scale")[2] == 1024.0
    assert values(recorded, "scaler/skipped_total")[5] == 1.0
    assert {e.optimizer: e.total for e in recorded.of(StepSkipped)} == {"SGD": 1, "AdamW 2": 1, "Adam 3": 1}
    assert recorded.facts["telemetry"]["num_skipped_steps"] == 3
    fused = recorded.series["grad_norm/group:AdamW 2"].values
    assert fused[0] == close(truth["fused 1"][1])
    assert len(fused) == 6


@pytest.mark.thorough
def test_unobservable_training_is_reported_and_off_is_off(tmp_path: Path) -> None:
    source = """
        import torch
        model = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        @torch.compile(backend="eager")
        def step():
            opt.step()
        for _ in range(3):
            model(torch.randn(4, 4)).sum().backward()
            step()
        """
    seen = observe(tmp_path, source, flags=["-q"])
    assert seen.status == 0, seen.stderr
    assert any("no optimizer stepped outside a compiled function" in line for line in seen.report["not_seen"])
    (tmp_path / "off").mkdir()
    off = observe(tmp_path / "off", source, flags=["-q", "--no-telemetry"])
    assert off.status == 0
    assert not {"gradients", "loss"} & {tap.name for tap in process(off).of(Tap)}


def test_statistics_in_a_full_graph_cause_no_break_and_no_recompile(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "statistics_in_graph.py"
    done = command(tmp_path, "run", "-o", "x.triage", "-q", str(example))
    assert done.returncode == 0, done.stderr
    assert "gradient norms of the first and the last step" in done.stdout
    totals = json.loads(command(tmp_path, "report", "x.triage", "--format", "json").stdout)["totals"]
    assert (totals["compiles"], totals["graph_breaks"], totals["recompiles"]) == (1, 0, 0)
