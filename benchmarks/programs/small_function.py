"""100,000 calls of a small compiled function, in blocks; prints the wall and processor seconds of each block.

The processor seconds are those of all threads.

`thread` runs it beside a thread that sleeps.
"""

import json
import sys
import threading
import time

import torch

CALLS = 100_000
BLOCK = 5_000


@torch.compile(backend=sys.argv[1])
def small(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 2.0 + y) - 1.0


if "thread" in sys.argv:
    threading.Thread(target=threading.Event().wait, daemon=True).start()

x, y = torch.ones(64), torch.ones(64)
with torch.no_grad():
    for _ in range(2_000):
        small(x, y)
    blocks = []
    for _ in range(CALLS // BLOCK):
        began, began_cpu = time.perf_counter(), time.process_time()
        for _ in range(BLOCK):
            small(x, y)
        blocks.append((time.perf_counter() - began, time.process_time() - began_cpu))
print(json.dumps(blocks))
