"""Ranks that share a model, over gloo, record the unsharded values, and no rank waits for another's telemetry."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.programs import TORCHTRIAGE, Done, environment, write
from torchtriage.recording.reader import read_recording

pytestmark = pytest.mark.thorough

HEAD = '''
import json, math, os, warnings
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor, DTensor
from torchtriage.telemetry import Monitor
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


class MemorySink:
    name = "sink"
    def __init__(self):
        self.rows, self.codes = {}, set()
    def write(self, observation):
        self.rows[observation.step] = observation.flat()
    def event(self, event):
        self.codes.add(event.code)
    def close(self):
        pass


def net():
    """Seven rows are uneven on two ranks, and of a bias of one element one rank has nothing."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1))


def train(model, wrap=lambda model: model, steps=4):
    sink, called = MemorySink(), wrap(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, opt, groups={"first": "0", "last": "2"}, sinks=[sink], level="debug") as monitor:
        for step in range(steps):
            x = torch.randn(8, 5, generator=torch.Generator().manual_seed(step))
            loss = called(x).pow(2).mean()
            loss.backward()
            monitor.after_backward(loss)
            if step % 2:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            opt.step()
            monitor.step()
            opt.zero_grad()
    return sink.rows


class Bag(torch.nn.Module):
    """Parameters and their gradients as given, each with its placements."""
    def __init__(self, tensors, mesh=None):
        super().__init__()
        for name, (weight, grad, *placements) in tensors.items():
            def placed(tensor):
                return tensor if mesh is None else distribute_tensor(tensor, mesh, placements)
            parameter = torch.nn.Parameter(placed(weight))
            parameter.grad = placed(grad)
            self.register_parameter(name, parameter)


def sample(bag):
    sink = MemorySink()
    with Monitor(bag, sinks=[sink], level="debug") as monitor:
        monitor.after_backward()
        monitor.step()
    return sink.rows[1], sink.codes, monitor.facts()["telemetry"]


def same(recorded, truth, case, rel=1e-6):
    left_out = ("telemetry/share",)
    names = {name for name in recorded if name not in left_out} ^ {name for name in truth if name not in left_out}
    assert not names, (case, names)
    for name, value in truth.items():
        are_both_nan = math.isnan(recorded[name]) and math.isnan(value)
        close = are_both_nan or math.isclose(recorded[name], value, rel_tol=rel, abs_tol=1e-9)
        assert name in left_out or close, (case, name, recorded[name], value)


def same_rows(recorded, truth, case):
    assert list(recorded) == list(truth), (case, list(recorded))
    for step in truth:
        # Trainings themselves differ: their norms to clip by are rounded apart.
        same(recorded[step], truth[step], (case, step), rel=1e-5)


def done():
    os.write(1, f"rank {rank} done\\n".encode())     # in one piece: all ranks write to one pipe
'''


def torchrun(folder: Path, source: str, size: int = 2, prefix: tuple[str, ...] = ()) -> Done:
    script = write(folder, HEAD + textwrap.dedent(source))
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size), script.name]
    return subprocess.run([*prefix, *words], cwd=folder, env=environment(), capture_output=True, text=True, timeout=600)


def assert_all_done(done: Done, size: int = 2) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("rank")) == [
        f"rank {r} done" for r in range(size)
    ]


def test_two_ranks_record_the_unsharded_values(tmp_path: Path) -> None:
    """FSDP2, DTensors split along any dimension or replicated, of all kinds of values, and DDP; a NaN on one rank is
    known to both.
    """
    assert_all_done(
        torchrun(
            tmp_path,
            """
        def sharded(model, mesh=None):
            for module in (model[0], model[2], model):
                fully_shard(module, **({} if mesh is None else {"mesh": mesh}))
            return model
        truth = train(net())
        assert "grad_norm_after_clip" in truth[2] and "grad_norm_after_clip" not in truth[1]
        same_rows(train(sharded(net())), truth, "FSDP2")
        for shape in ((2, 1), (1, 2)):
            mesh = init_device_mesh("cpu", shape, mesh_dim_names=("copies", "parts"))
            same_rows(train(sharded(net(), mesh)), truth, f"copies and parts {shape}")

        mesh = init_device_mesh("cpu", (2,))
        torch.manual_seed(0)
        tensors = {
            "rows": (torch.randn(7, 3), torch.randn(7, 3) + 1e4, Shard(0)),
            "columns": (torch.randn(3, 5), torch.randn(3, 5) * 1e25, Shard(1)),
            "single": (torch.randn(1), torch.randn(1) * 1e-30, Shard(0)),
            "equal": (torch.full((9,), 3.14159), torch.full((9,), 3.14159), Shard(0)),
            "copied": (torch.randn(4), torch.randn(4), Replicate()),
        }
        plain, _, _ = sample(Bag(tensors))
        recorded, _, facts = sample(Bag(tensors, mesh))
        same(recorded, plain, "placements")
        assert facts["shards"]["num_whole"] == 1, facts

        bag = Bag(tensors, mesh)
        if rank == 1:
            bag.rows.grad.to_local()[0, 0] = math.nan
        recorded, codes, _ = sample(bag)
        assert recorded["grad_nan/rows"] == 1 and math.isnan(recorded["grad_norm"]), recorded
        assert "TT402" in codes, codes

        bag = Bag(tensors, mesh)
        bag.copied.grad = DTensor.from_local(torch.ones(4), mesh, [Partial()])
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            recorded, _, _ = sample(bag)
        assert "weight_norm/copied" in recorded and "grad_norm/copied" not in recorded
        texts = [str(w.message) for w in warned]
        assert any("no statistics of copied" in text and "Partial" in text for text in texts), texts

        parallel = torch.nn.parallel.DistributedDataParallel
        same_rows(train(net(), parallel), train(net()), "DDP")
        model, sink = net(), MemorySink()
        called = parallel(model)
        with Monitor(called, sinks=[sink]) as monitor:
            x = torch.ones(2, 5)
            if rank == 1:
                x[0, 0] = math.nan
            called(x).sum().backward()
            monitor.after_backward()
            monitor.step()
        assert sink.rows[1]["grad_nan/0.weight"] == 35 and "TT402" in sink.codes, (sink.rows[1], sink.codes)
        assert "shards" not in monitor.facts()["telemetry"]
        done()
        dist.destroy_process_group()
        """,
        )
    )


def test_four_ranks_with_replicas_and_shards_count_every_element_once(tmp_path: Path) -> None:
    assert_all_done(
        torchrun(
            tmp_path,
            """
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
        model = net()
        for module in (model[0], model[2], model):
            fully_shard(module, mesh=mesh)
        truth = train(net())
        same_rows(train(model), truth, "2 copies of 2 parts")

        from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
        linear = torch.nn.Linear(5, 6)
        norm = linear.weight.detach().norm().item()
        model = parallelize_module(torch.nn.Sequential(linear), mesh["inner"], {"0": ColwiseParallel()})
        fully_shard(model, mesh=mesh["outer"])
        assert "split_factor" in dir(model[0].weight.placements[0]), model[0].weight.placements
        tensors = {
            "both": (torch.arange(30.).view(6, 5), torch.arange(30.).view(6, 5).cos(), Shard(0), Shard(1)),
            "mixed": (torch.arange(30.).view(6, 5), torch.arange(30.).view(6, 5).cos(), Shard(0), Replicate()),
            "twice": (torch.arange(10.), torch.arange(10.).cos(), Shard(0), Shard(0)),
        }
        plain, _, _ = sample(Bag(tensors))
        same(sample(Bag(tensors, mesh))[0], plain, "2 x 2 parts")
        strided = model[0].weight
        strided.grad = strided.detach().clone()
        recorded, _, _ = sample(model)
        assert math.isclose(recorded["grad_norm/0.weight"], norm, rel_tol=1e-6), (recorded, norm)

        alone = {"inner": (torch.ones(4), torch.ones(4), Shard(0))}
        bag = Bag(tensors, mesh)
        bag.register_parameter("apart", Bag(alone, mesh["inner"]).inner)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            recorded, _, _ = sample(bag)
        assert "grad_norm/mixed" in recorded and "weight_norm/apart" not in recorded
        texts = [str(w.message) for w in warned]
        assert any("no statistics of apart: it is on ranks" in text for text in texts), texts
        done()
        dist.destroy_process_group()
        """,
            size=4,
        ),
        size=4,
    )


def test_monitor_blocks_no_rank_and_changes_no_compiled_code(tmp_path: Path) -> None:
    """One rank has none, or a broken one, or ends without closing it, with samples that no other rank has taken."""
    assert_all_done(
        torchrun(
            tmp_path,
            """
        def run(is_monitored):
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()
            model = net()
            for module in (model[0], model[2], model):
                fully_shard(module)
            model.compile(backend="eager")
            opt = torch.optim.AdamW(model.parameters(), lr=0.1)
            sink = MemorySink()
            monitor = Monitor(model, opt, sinks=[sink]) if is_monitored else None
            for step in range(6):
                loss = model(torch.randn(4 + step % 2, 5, generator=torch.Generator().manual_seed(step))).pow(2).mean()
                loss.backward()
                if monitor:
                    monitor.after_backward(loss)
                opt.step()
                if monitor:
                    monitor.step()
                opt.zero_grad()
            if monitor:
                monitor.close()
                assert len(sink.rows) == 6 and "grad_norm/0.weight" in sink.rows[6], sink.rows
            kinds = ("frames", "stats", "graph_break", "unimplemented")
            counted = {kind: dict(torch._dynamo.utils.counters[kind]) for kind in kinds}
            return counted, [p.detach().full_tensor() for p in model.parameters()]
        counts, weights = run(False)
        again, monitored = run(True)
        assert counts["frames"]["total"] > 0 and counts == again, (counts, again)
        assert all(map(torch.equal, weights, monitored))

        from torchtriage.telemetry import writer

        from torchtriage.telemetry.sharding import exchange as sharded
        sharded.WAIT_SECONDS = 0.5
        # So that its thread is nearly always asking the other ranks, also as the process ends.
        writer.POLL_SECONDS = 0.0
        warnings.simplefilter("always")

        def go(model, monitor, steps, breaks_at=None):
            for step in range(1, steps + 1):
                model(torch.ones(2, 5)).sum().backward()
                if step == breaks_at:
                    monitor._watched.track.take_gradients = None
                if monitor is not None:
                    monitor.after_backward()
                    monitor.step()
                model.zero_grad()

        def sharded_net(*more):
            model = net().extend(more)
            fully_shard(model)
            return model

        model, sink = sharded_net(torch.nn.Linear(1, 2)), MemorySink()
        go(model, Monitor(model, sinks=[sink]) if rank == 0 else None, 3)
        dist.barrier()

        model, sink = sharded_net(), MemorySink()
        monitor = Monitor(model, sinks=[sink])
        go(model, monitor, 6, breaks_at=3 if rank == 1 else None)
        monitor.close()
        expected = [1, 2] if rank == 1 else [1, 2, 3, 4, 5, 6]
        assert "grad_norm" in sink.rows[2] and list(sink.rows) == expected, list(sink.rows)
        if rank == 0:
            assert sink.rows[4]["shard_grad_norm/0.weight"] > 0 and "shard_grad_norm" in sink.rows[4]
            assert not {"grad_norm", "grad_norm/0.weight"} & set(sink.rows[4]), sink.rows[4]

        model = sharded_net()
        left_open = Monitor(model, sinks=[sink])
        go(model, left_open, 2)
        if rank == 0:
            left_open.step()
        done()
        dist.destroy_process_group()
        """,
        )
    )


def values(process: Any, name: str) -> dict[int, float]:
    series = process.series[name]
    return {int(step): value for step, value in zip(series.steps, series.values, strict=True)}


def test_without_a_monitor_the_reader_merges_the_shards_of_all_ranks(tmp_path: Path) -> None:
    source = """
        model = net()
        for module in (model[0], model[2], model):
            fully_shard(module)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        calls = []
        for name in ("all_reduce", "all_gather", "broadcast", "barrier", "new_group", "ProcessGroupGloo"):
            def call(*a, own=getattr(dist, name), name=name, **k):
                calls.append(name)
                return own(*a, **k)

            setattr(dist, name, call)
        truth = {}
        for step in range(1, 6):
            loss = model(torch.randn(8, 5, generator=torch.Generator().manual_seed(step))).pow(2).mean()
            loss.backward()
            if step == 3:
                model[0].weight.grad.to_local()[0, 0] = math.inf if rank == 1 else 0.0
            opt.step()
            grads = [p.grad.full_tensor() for p in model.parameters()]
            full = torch.cat([grad.flatten() for grad in grads])
            truth[step] = [grads[0].norm().item(), full.norm().item(), model[0].bias.full_tensor().norm().item()]
            opt.zero_grad()
        if rank == 0:
            os.write(1, (json.dumps(truth) + "\\n" + json.dumps(calls) + "\\n").encode())
        dist.destroy_process_group()
        """
    out = tmp_path / "out.triage"
    done = torchrun(tmp_path, source, prefix=(*TORCHTRIAGE, "run", "-q", "-o", str(out), "--"))
    assert done.returncode == 0, done.stderr
    # What gloo of torch 2.9 prints itself.
    lines = [line for line in done.stdout.splitlines() if not line.startswith("[Gloo]")]
    truth, collectives = (json.loads(line) for line in lines[:2])
    assert collectives == []        # FSDP2 has others than these
    ranks = [process for process in read_recording(out).processes if process.series]
    assert [process.rank for process in ranks] == [0, 1]
    first, second = ranks
    for step in (1, 2, 4, 5):
        weight, all_of_it, _ = truth[str(step)]
        assert values(first, "grad_norm/0.weight")[step] == pytest.approx(weight, rel=1e-5)
        assert values(first, "grad_norm")[step] == pytest.approx(all_of_it, rel=1e-5)
        assert values(first, "weight_norm/0.bias")[step + 1 if step < 5 else 5] > 0
        assert values(first, "shard_grad_norm/0.weight")[step] < weight
    assert values(first, "weight_norm/0.bias")[2] == pytest.approx(truth["1"][2], rel=1e-5)
    assert values(first, "grad_norm/2.bias")[1] > 0          # of which the second rank holds nothing
    assert "grad_norm/0.weight" not in second.series
    assert values(second, "grad_inf/0.weight")[3] == 1
    assert values(first, "grad_norm/0.weight")[3] == float("inf")
