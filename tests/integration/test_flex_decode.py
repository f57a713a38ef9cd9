"""flex_attention over a KV cache: what compiles how often, counted by a watch in one process."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.programs import plain, write

pytestmark = pytest.mark.thorough

EXAMPLES = Path(__file__).parents[2] / "examples"

BODY = f"""
import json, sys
sys.path.insert(0, {str(EXAMPLES)!r})
import torch
import torchtriage
from torchtriage.recording.events import CompileStart
from flex_decode import NUM_PROMPT as PROMPT
from flex_decode import FixedCache, GrowingCache, PythonOffset, Sequence, TensorOffset, decode, generate, prefill

out = {{}}


def plain_attention(sequence):
    '''What the whole sequence gives in one piece, without flex_attention.'''
    q, k, v = sequence.queries_BHKD, sequence.keys_BHKD, sequence.values_BHKD
    place = torch.arange(q.shape[2])
    distance = place[:, None] - place
    scores = q @ k.mT / q.shape[3] ** 0.5 - 0.5 * distance
    return torch.softmax(scores.masked_fill(distance < 0, -float("inf")), -1) @ v


def variant(tokens, cache, offsets, dynamic, backend="eager"):
    '''Compiles of the two functions, why decode was compiled again, and how far the result is from plain attention.'''
    torch._dynamo.reset()
    sequence = Sequence.random(PROMPT + tokens)
    first = torch.compile(prefill, backend=backend, dynamic=False)
    then = torch.compile(decode, backend=backend, dynamic=dynamic)
    with torch.no_grad(), torchtriage.watch() as seen:
        output = generate(sequence, PROMPT, first, then, cache, offsets)
    started = [e.function for e in seen.recording.of(CompileStart)]
    return {{
        "prefill": started.count("prefill"), "decode": started.count("decode"), "graph_breaks": len(seen.graph_breaks),
        "reasons": [e.reasons[0] for e in seen.recompiles],
        "error": (output - plain_attention(sequence)).abs().max().item(),
    }}
"""

EAGER = BODY + """
out["short"] = variant(3, GrowingCache(), TensorOffset(), True)
out["long"] = variant(12, GrowingCache(), TensorOffset(), True)
out["automatic"] = variant(4, GrowingCache(), TensorOffset(), None)
out["static"] = variant(3, GrowingCache(), TensorOffset(), False)
out["python_offset"] = variant(3, FixedCache(PROMPT + 3), PythonOffset(), False)
out["fixed"] = variant(3, FixedCache(PROMPT + 3), TensorOffset(), False)

sequence, offsets = Sequence.random(PROMPT), TensorOffset()
warm = torch.compile(decode, backend="eager", dynamic=False)
query = sequence.queries_BHKD[:, :, :1]
call = lambda position: warm(query, sequence.keys_BHKD, sequence.values_BHKD, offsets.at(position))
call(0)
with torchtriage.watch() as seen:
    results = [call(position) for position in range(1, PROMPT)]
num_compiles = len(list(seen.recording.of(CompileStart)))
out["filled"] = {"compiles": num_compiles, "equal": len(results) - len({result.sum().item() for result in results})}
print(json.dumps(out))
"""

INDUCTOR = BODY + """
out["growing"] = variant(6, GrowingCache(), TensorOffset(), True, "inductor")
print(json.dumps(out))
"""


def facts(folder: Path, source: str) -> dict[str, Any]:
    done = plain(folder, write(folder, source))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_policy_alone_determines_the_compiles(tmp_path: Path) -> None:
    """One process for all: its prefill and decode, each by how often it was compiled."""
    counted = facts(tmp_path, EAGER)
    assert counted.pop("filled") == {"compiles": 0, "equal": 0}, "fill_ changes the result and compiles nothing"
    assert {name: found["decode"] for name, found in counted.items()} == {
        "short": 1, "long": 1, "automatic": 2, "static": 3, "python_offset": 3, "fixed": 1,
    }
    assert {(found["prefill"], found["graph_breaks"]) for found in counted.values()} == {(1, 0)}
    assert all("size mismatch at index 2" in reason for reason in counted["static"]["reasons"])
    assert all("cell_contents ==" in reason for reason in counted["python_offset"]["reasons"])
    assert max(found["error"] for found in counted.values()) < 1e-5, "as plain attention gives"


def test_inductor_also_compiles_decode_once(tmp_path: Path) -> None:
    found = facts(tmp_path, INDUCTOR)["growing"]
    assert (found["prefill"], found["decode"]) == (1, 1)
    assert found["error"] < 1e-4
