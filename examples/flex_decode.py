"""flex_attention decoding over a KV cache: static shapes or a Python offset compile every token, the cure only once.

`score_mod` captures the offset, the position of the query in the sequence. A captured tensor is an input of the
compiled kernel, so `fill_` changes its value without a compile. A captured Python number is a constant of a static
kernel, so every new value compiles a new kernel.

    flex_decode.py                          dynamic=False, Python offset, growing cache: every token compiles
    flex_decode.py --cured                  offset tensor and dynamic=True: one compile for all lengths
    flex_decode.py --cured --cache fixed    a preallocated cache: one static compile
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

# B batch, H heads, Q queries, K keys, D head size
HEADS, HEAD_SIZE = 2, 16
# Lengths of 10 to 22: at 8 above a multiple of 16 keys inductor's CPU kernel of torch 2.13 gives wrong rows.
NUM_PROMPT, NUM_TOKENS = 10, 12

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
Attend = Callable[[Tensor, Tensor, Tensor, ScoreMod], Tensor]


def score_mod_at(offset: Tensor | int) -> ScoreMod:
    """Causal attention that fades with distance, for queries that begin at `offset`."""

    def score_mod(score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        distance = q_idx + offset - kv_idx
        # A literal: under dynamic=True a global float becomes an input, which the CPU kernel does not accept.
        return torch.where(distance >= 0, score - 0.5 * distance, -float("inf"))

    return score_mod


class TensorOffset:
    """One `score_mod` for the entire sequence; its offset is a tensor."""

    def __init__(self) -> None:
        self.offset = torch.zeros((), dtype=torch.int64)
        self.score_mod = score_mod_at(self.offset)

    def at(self, position: int) -> ScoreMod:
        self.offset.fill_(position)
        return self.score_mod


class PythonOffset:
    """One `score_mod` per position, with the offset as a constant."""

    def at(self, position: int) -> ScoreMod:
        return score_mod_at(position)


class GrowingCache:
    """Keys and values so far: attention has one more key at every token."""

    def __init__(self) -> None:
        self.keys_BHKD = self.values_BHKD = torch.empty(1, HEADS, 0, HEAD_SIZE)

    def append(self, keys_BHQD: Tensor, values_BHQD: Tensor) -> tuple[Tensor, Tensor]:
        self.keys_BHKD = torch.cat((self.keys_BHKD, keys_BHQD), 2)
        self.values_BHKD = torch.cat((self.values_BHKD, values_BHQD), 2)
        return self.keys_BHKD, self.values_BHKD


class FixedCache:
    """A cache with the size of the longest sequence: one shape for all tokens; `score_mod` masks unwritten keys."""

    def __init__(self, capacity: int) -> None:
        self.keys_BHKD, self.values_BHKD = torch.zeros(2, 1, HEADS, capacity, HEAD_SIZE)
        self.length = 0

    def append(self, keys_BHQD: Tensor, values_BHQD: Tensor) -> tuple[Tensor, Tensor]:
        end = self.length + keys_BHQD.shape[2]
        self.keys_BHKD[:, :, self.length:end] = keys_BHQD
        self.values_BHKD[:, :, self.length:end] = values_BHQD
        self.length = end
        return self.keys_BHKD, self.values_BHKD


@dataclass(frozen=True)
class Sequence:
    """The prompt and the tokens after it, as the model's projections would give them."""

    queries_BHKD: Tensor
    keys_BHKD: Tensor
    values_BHKD: Tensor

    @classmethod
    def random(cls, length: int) -> "Sequence":
        return cls(*torch.randn(3, 1, HEADS, length, HEAD_SIZE, generator=torch.Generator().manual_seed(0)))


# The same body twice: compiled code is cached per function, and one query and many have different best policies.
def prefill(queries_BHQD: Tensor, keys_BHKD: Tensor, values_BHKD: Tensor, score_mod: ScoreMod) -> Tensor:
    return flex_attention(queries_BHQD, keys_BHKD, values_BHKD, score_mod=score_mod)


def decode(queries_BHQD: Tensor, keys_BHKD: Tensor, values_BHKD: Tensor, score_mod: ScoreMod) -> Tensor:
    return flex_attention(queries_BHQD, keys_BHKD, values_BHKD, score_mod=score_mod)


def generate(
    sequence: Sequence,
    num_prompt: int,
    first: Attend,
    then: Attend,
    cache: GrowingCache | FixedCache,
    offsets: TensorOffset | PythonOffset,
) -> Tensor:
    """The attention of the entire sequence: the prompt in one call of `first`, then one call of `then` per token."""
    length = sequence.queries_BHKD.shape[2]
    bounds = [(0, num_prompt), *((i, i + 1) for i in range(num_prompt, length))]
    outputs = []
    for begin, end in bounds:
        attend = first if begin == 0 else then
        new_keys, new_values = sequence.keys_BHKD[:, :, begin:end], sequence.values_BHKD[:, :, begin:end]
        keys_BHKD, values_BHKD = cache.append(new_keys, new_values)
        outputs.append(attend(sequence.queries_BHKD[:, :, begin:end], keys_BHKD, values_BHKD, offsets.at(begin)))
    return torch.cat(outputs, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cured", action="store_true", help="an offset tensor, and dynamic=True over a growing cache")
    parser.add_argument("--cache", choices=("growing", "fixed"), default="growing")
    parser.add_argument("--backend", default="eager", help="inductor for real kernels; the compiles are the same")
    parser.add_argument("--tokens", type=int, default=NUM_TOKENS, help="decoded after the prompt")
    options = parser.parse_args()
    sequence = Sequence.random(NUM_PROMPT + options.tokens)
    cache = FixedCache(NUM_PROMPT + options.tokens) if options.cache == "fixed" else GrowingCache()
    offsets = TensorOffset() if options.cured else PythonOffset()
    is_dynamic = options.cured and options.cache == "growing"
    first = torch.compile(prefill, backend=options.backend, dynamic=False)
    then = torch.compile(decode, backend=options.backend, dynamic=is_dynamic)
    with torch.no_grad():
        output = generate(sequence, NUM_PROMPT, first, then, cache, offsets)
    print(f"decoded {options.tokens} tokens, mean attention {output.mean().item():.6f}")


if __name__ == "__main__":
    main()
