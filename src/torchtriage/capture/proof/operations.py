"""What an eager run does with each operation: arranged draws, results that are moved by one rounding."""

import os
import sys
import zlib
from collections import Counter
from types import FrameType
from typing import Any

from torchtriage.capture.proof.arranged_draws import ArrangedDraws, digest_of, kind_and_shape

# Operations whose results are exact for any order of evaluation: they move, choose or compare values.
_EXACT = frozenset("""
    _to_copy clone copy detach alias lift_fresh_copy contiguous zeros_like ones_like full_like empty_like new_zeros
    new_ones new_full new_empty cat stack gather index index_select embedding where masked_fill masked_select take
    relu threshold threshold_backward hardtanh clamp clamp_min clamp_max abs neg sign sgn round floor ceil trunc max
    min amax amin maximum minimum fmax fmin sort topk kthvalue median mode roll flip tril triu diag_embed
    constant_pad_nd repeat scatter index_put nan_to_num max_pool2d_with_indices max_pool2d_with_indices_backward
    as_strided_copy slice_scatter select_scatter slice_backward select_backward isnan _local_scalar_dense copysign
    native_dropout bernoulli im2col pixel_shuffle unfold_backward
""".split())  # noqa: SIM905 - a list of strings would be three times as long
# Operations that sum over many elements: their rounding depends on the order, as if the inputs had moved.
_SUMMING = (
    "sum", "mean", "mm", "addmm", "bmm", "baddbmm", "convolution", "norm", "softmax", "var", "std", "prod", "dot",
    "mv", "loss", "embedding_dense_backward", "index_add", "scatter_add", "attention", "binary_cross_entropy", "cumsum",
    "logsumexp", "linalg", "lstm", "gru", "rnn",
)
# Operations of torch.nn.utils.clip_grad, the functions of which are looked for in the stack
_OF_CLIPPING = frozenset((
    "_foreach_norm", "linalg_vector_norm", "norm", "_foreach_clamp_min_", "_foreach_clamp_max_", "clamp_", "mul_",
    "_foreach_mul_",
))
_CLIPPING = f"{os.sep}nn{os.sep}utils{os.sep}clip_grad.py"
MAX_FRAMES = 8      # between an operation and the function that clips
DIGESTED = 64       # elements of each draw
BITS_OF_FLOAT = 8   # at least, of a uniform or normal float16
MIN_BITS = 64       # of a draw: below it two draws may be equal by chance


class Operations:
    """Sees every operation of an eager run; `draws` gives random operators their values."""

    def __init__(self, *, rounding: int, draws: ArrangedDraws | None = None) -> None:
        self._rounding, self._draws = rounding, draws
        self._generator: dict[Any, Any] = {}
        self._row_draws = [0, 0]    # digest and bits of the values drawn since `drawn` was called
        self._digests: set[int] = set()
        self._row_kinds: Counter[int] | None = None     # digests of kinds and shapes since then; None in the first row
        self.draw_pairs: set[int] = set()   # of those that a later row draws twice, or four times
        self.repeats_shapes = False         # a later row draws the same kind and shape more than once
        self.num_repeats = 0        # draws of values that were drawn before
        self.num_ops = 0
        self.num_clipping = 0       # operations of torch.nn.utils.clip_grad
        self.is_paused = False      # while our own statistics are computed

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of one operation, called for every operation of the process."""
        if self.is_paused:
            return func(*args, **kwargs)
        name = func._schema.name.rpartition("::")[2]
        if self._draws is not None and _is_random(func):
            self._note_pair(func, args, kwargs)
            return self._draws.run(func, args, kwargs)
        self.num_clipping += name in _OF_CLIPPING and _is_clipping()
        returns = func._schema.returns
        is_plain = not any(result.alias_info is not None for result in returns)     # neither a view nor in place
        if is_plain or any(result.alias_info is not None and result.alias_info.is_write for result in returns):
            self.num_ops += name not in ("detach", "_local_scalar_dense")
        if _is_random(func):
            result = func(*args, **kwargs)
            self._note_pair(func, args, kwargs)
            self._note_draw(result)
            return result
        if not self._rounding or not is_plain or not _rounds(name, args, kwargs):
            return func(*args, **kwargs)
        if any(word in name for word in _SUMMING):
            number = 1 if "batch_norm" in name else 3       # the running statistics are updated in place
            args = (*(self._moved(value, copy=True) for value in args[:number]), *args[number:])
        result = func(*args, **kwargs)
        for value in result if isinstance(result, tuple | list) else (result,):
            self._moved(value, copy=False)
        return result

    def drawn(self) -> list[int]:
        """[digest, number of random bits at least] of what was drawn since the last call."""
        self.draw_pairs |= {digest for digest, number in (self._row_kinds or {}).items() if number % 2 == 0}
        self.repeats_shapes = self.repeats_shapes or max((self._row_kinds or {}).values(), default=0) > 1
        drawn, self._row_draws, self._row_kinds = self._row_draws, [0, 0], Counter()
        return drawn

    def _note_pair(self, func: Any, args: Any, kwargs: Any) -> None:
        """In the first row the weights are drawn too, often two of a shape."""
        if self._row_kinds is not None:
            self._row_kinds[digest_of(*kind_and_shape(func, args, kwargs))] += 1

    def _note_draw(self, result: Any) -> None:
        """Draws of the same values have the same digest, whichever generator made them."""
        import torch

        values = result[-1] if isinstance(result, tuple) else result    # the mask of a dropout, not its output
        if not isinstance(values, torch.Tensor) or values.layout is not torch.strided or values.numel() == 0:
            return
        first = values.detach().reshape(-1)[:DIGESTED].to(torch.float64).cpu()
        num_bits = _random_bits(first, is_float=values.is_floating_point())
        digest = zlib.crc32(first.numpy().tobytes())
        if num_bits >= MIN_BITS:
            self.num_repeats += digest in self._digests
            self._digests.add(digest)
        self._row_draws = [zlib.crc32(digest.to_bytes(4, "big"), self._row_draws[0]), self._row_draws[1] + num_bits]

    def _moved(self, value: Any, *, copy: bool) -> Any:
        """The tensor with each element moved by one rounding up or down; anything else unchanged."""
        import torch

        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.layout is not torch.strided:
            return value
        if value.numel() == 0 or (not copy and value.is_inference()):
            return value
        if value.device not in self._generator:
            self._generator[value.device] = torch.Generator(value.device).manual_seed(self._rounding)
        signs = torch.empty_like(value, memory_format=torch.preserve_format)
        signs.bernoulli_(0.5, generator=self._generator[value.device])
        factor = signs.mul_(2).sub_(1).mul_(torch.finfo(value.dtype).eps).add_(1)
        return factor.mul_(value) if copy else value.mul_(factor)


def _is_clipping() -> bool:
    frame: FrameType | None = sys._getframe(1)
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        if frame.f_code.co_filename.endswith(_CLIPPING):
            return True
        frame = frame.f_back
    return False


def _random_bits(values: Any, *, is_float: bool) -> int:
    """How many random bits these values hold at least; two values, as of a mask, hold few if one of them is rare."""
    number = int(values.numel())
    num_low, num_high = int((values == values.min()).sum()), int((values == values.max()).sum())
    if num_low == number:
        return 0
    if num_low + num_high == number:
        return 2 * min(num_low, num_high)
    return number * (BITS_OF_FLOAT if is_float else 1)


def _is_random(func: Any) -> bool:
    import torch

    return torch.Tag.nondeterministic_seeded in func.tags


def _rounds(name: str, args: Any, kwargs: Any) -> bool:
    """Whether the result depends on rounding: arithmetic on floating-point tensors, or a cast to fewer digits."""
    import torch

    given = [*args, *(args[0] if args and isinstance(args[0], list | tuple) else ())]     # also a list of tensors
    tensors = [value for value in given if isinstance(value, torch.Tensor) and value.is_floating_point()]
    if not tensors:
        return False
    if name == "_to_copy":
        dtype = kwargs.get("dtype")
        is_float = dtype is not None and dtype.is_floating_point
        return is_float and torch.finfo(dtype).eps > torch.finfo(tensors[0].dtype).eps
    return name not in _EXACT
