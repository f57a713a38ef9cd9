"""Two gloo ranks together have the statistics of one process, however often they merge."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import environment

pytestmark = pytest.mark.thorough

PROGRAM = '''
import os
import torch
import torch.distributed as dist
from torchtriage.rl import RunningMeanStd

dist.init_process_group("gloo")
rank = dist.get_rank()
collectives = []
all_reduce = dist.all_reduce
dist.all_reduce = lambda *args, **kwargs: (collectives.append(1), all_reduce(*args, **kwargs))


def rollout(number, of_rank):
    """Of another size on every rank; in the third one rank 1 has nothing to say."""
    generator = torch.Generator().manual_seed(10 * number + of_rank)
    size = 0 if (number, of_rank) == (2, 1) else 16 + 8 * of_rank + number
    return torch.randn(size, 2, 3, generator=generator, dtype=torch.float64) + 1e4 * (1 + of_rank)


for momentum in (None, 0.9):
    mine, alone = RunningMeanStd((2, 3), momentum=momentum), RunningMeanStd((2, 3), momentum=momentum)
    for number in range(4):
        mine.update(rollout(number, rank))
        alone.update(torch.cat([rollout(number, 0), rollout(number, 1)]))
        if number == 1:     # a checkpoint between two merges
            saved = mine.state_dict()
            mine = RunningMeanStd((2, 3))
            mine.load_state_dict(saved)
        before = len(collectives)
        mine.merge_across_ranks()
        assert len(collectives) == before + 1
        for name in ("count", "mean", "var"):
            where = f"{name} {momentum} {number}"
            torch.testing.assert_close(getattr(mine, name), getattr(alone, name), rtol=1e-8, atol=0, msg=where)
    mine.merge_across_ranks()   # nothing new
    torch.testing.assert_close(mine.var, alone.var, rtol=1e-8, atol=0)
    both = [torch.empty_like(mine.var) for _ in range(2)]
    dist.all_gather(both, mine.var)
    assert torch.equal(both[0], both[1]), "the ranks differ"
os.write(1, f"rank {rank} done\\n".encode())     # in one piece: both ranks write to one pipe
dist.destroy_process_group()
'''


def test_two_ranks_have_the_statistics_of_one_process(tmp_path: Path) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)],
        env=environment() | {"PYTHONPATH": os.getcwd()},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(line for line in done.stdout.splitlines() if "done" in line) == ["rank 0 done", "rank 1 done"]
