"""Are ranks whose replicas differ found, and are healthy ranks left in peace? Two processes with gloo each.

    python benchmarks/replicas.py

The cases follow published silent errors: a bypassed DistributedDataParallel, clipping on one rank alone
(deepspeed-1801), weights that were to be equal and drift apart (BLOOM-176B), ranks that began with other
weights, a rank that skips a step.
"""

import socket
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from common import clean_environment, note, run, table

PROGRAM = """
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed({seed})
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 3))
model = {model}
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
generator = torch.Generator().manual_seed(100 + rank)

def average():
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad.div_(2)

for step in range(30):
    x = torch.randn(16, 8, generator=generator)
    loss = nn.functional.cross_entropy({call}(x), x[:, :3].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    {after}
    {update}
dist.destroy_process_group()
"""
LAUNCHER = """
import os, subprocess, sys
names = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "FREE"}
ranks = [
    subprocess.Popen([sys.executable, "train.py"], env=os.environ | names | {"RANK": str(i), "LOCAL_RANK": str(i)})
    for i in range(2)
]
sys.exit(max(rank.wait() for rank in ranks))
"""
DDP, STEP = "DistributedDataParallel(net)", "optimizer.step()"
USUAL = {"seed": "0", "model": DDP, "call": "model", "after": "pass", "update": STEP}
HEALTHY = {
    "DistributedDataParallel": {},
    "another seed per rank": {"seed": "rank"},
    "gradients averaged by hand": {"model": "net", "after": "average()"},
    "separate trainings": {"seed": "rank", "model": "net"},
    "clipped on both ranks": {"after": "nn.utils.clip_grad_norm_(net.parameters(), 0.5)"},
}
FAULTS = {
    "DistributedDataParallel is bypassed": {"call": "model.module"},
    "averaged by hand, other weights": {"seed": "rank", "model": "net", "after": "average()"},
    "a rank skips a step": {"update": f"if rank == 0 or step != 9: {STEP}"},
    "clipped on one rank (deepspeed-1801)": {
        "after": "if rank and step >= 4: nn.utils.clip_grad_norm_(net.parameters(), 0.05)"
    },
    "the LayerNorm of one rank drifts (BLOOM-176B)": {"after": "if rank and step >= 4: net[2].weight.grad.mul_(1.5)"},
}


def findings(case: dict[str, str]) -> list[str]:
    from torchtriage.diagnosis.report import build_report
    from torchtriage.recording.reader import read_recording

    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        free.close()
        Path(folder, "train.py").write_text(PROGRAM.format(**{**USUAL, **case}))
        Path(folder, "launch.py").write_text(LAUNCHER.replace("FREE", port))
        command = [sys.executable, "-m", "torchtriage", "run", "-q", "-o", "run.triage", "launch.py"]
        ended = run(command, clean_environment(), cwd=Path(folder), check=False)
        if ended.status:
            note(f"  failed: {ended.stderr[-600:]}")
        report = build_report(read_recording(Path(folder, "run.triage")))
    return [f"{f.code} {f.severity.name} {f.title}" for f in report.findings if f.code.startswith("TT4")]


def main() -> None:
    rows = []
    for name, case in [*HEALTHY.items(), *FAULTS.items()]:
        told = findings(case)
        is_right = bool(told) and told[0].startswith("TT445") if name in FAULTS else not told
        rows.append((name, "ok" if is_right else "WRONG", told[0] if told else "nothing"))
        note(f"  {rows[-1]}")
    print(table(["ranks", "", "first finding"], rows))


if __name__ == "__main__":
    main()
