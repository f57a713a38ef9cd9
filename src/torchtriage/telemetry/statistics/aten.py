"""Statistics by torch operations alone: on any device, without host reads, in a constant number of operations.

One foreach call copies all tensors of a dtype into the rows of a persistent buffer. Rows are reduced together, then per
tensor. P tensors, S statistics, R rows, W elements per row, C counts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from torchtriage.telemetry.statistics.columns import LARGE, NUM_STATS, SMALL, Stat, is_dense

ROW = 256                       # elements: short enough that a thousand biases waste little, long enough for few rows
# Elements per buffer: extra memory stays below 150 MB per dtype, whatever the model size.
CHUNK = 1 << 22
# Operations start quickly on the CPU, and a buffer that fits the cache is 1.6 times as fast.
CPU_CHUNK = 1 << 18
_EXACT = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_INF = float("inf")
_FINITE, _INFINITE, _ZERO, _SMALL, _LARGE = range(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """A full tensor, or consecutive elements of one that is larger than the buffer."""

    index: int                  # in the group
    start: int = 0
    length: int | None = None

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.length is None:
            return tensor
        flat = tensor if is_dense(tensor) else tensor.contiguous()
        return flat.as_strided((self.length,), (1,), flat.storage_offset() + self.start)


@dataclass(slots=True, kw_only=True)
class _Chunk:
    """Pieces that fit into the buffer together."""

    pieces: list[_Piece] = field(default_factory=list)
    views: list[torch.Tensor] = field(default_factory=list)         # where in the buffer each piece goes
    owner_R: torch.Tensor | None = None                             # the tensor that a row belongs to
    num_rows: int = 0


def accumulator(device: torch.device) -> torch.dtype:
    """Double where the device supports it."""
    return torch.float32 if device.type == "mps" else torch.float64


class AtenPlan:
    """Repeated statistics of tensors of the given shapes and dtypes on one device, with the same buffers."""

    def __init__(
        self, tensors: Sequence[torch.Tensor], *, small: float = SMALL, large: float = LARGE,
        sums: torch.dtype | None = None,
    ) -> None:
        device = tensors[0].device if tensors else torch.device("cpu")
        sums = sums or accumulator(device)
        self.table_PS = torch.zeros(len(tensors), NUM_STATS, dtype=sums, device=device)
        by_dtype: dict[torch.dtype, list[int]] = {}
        for index, tensor in enumerate(tensors):
            if tensor.numel():
                by_dtype.setdefault(tensor.dtype, []).append(index)
        self._groups = [
            _Group([tensors[i] for i in indices], indices, self.table_PS, small, large) for indices in by_dtype.values()
        ]

    def run(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """[P, S] on the device, the same tensor at every call. Nothing is read back."""
        with torch.no_grad():
            for group in self._groups:
                group.run([tensors[i] for i in group.indices])
        return self.table_PS


class _Group:
    """Tensors of one dtype."""

    def __init__(
        self, tensors: list[torch.Tensor], indices: list[int], table_PS: torch.Tensor, small: float, large: float,
    ) -> None:
        device, sums = table_PS.device, table_PS.dtype
        # Float8 supports little arithmetic.
        dtype = tensors[0].dtype if tensors[0].dtype in _EXACT else torch.float32
        self.indices = indices
        self._in_double = sums == torch.float64
        self._out_PS = table_PS
        self._small, self._large = limits(dtype, small, large)
        max_rows = (CPU_CHUNK if device.type == "cpu" else CHUNK) // ROW
        num_rows = min(max_rows, sum(-(-t.numel() // ROW) for t in tensors))

        def new(*shape: int, dtype: torch.dtype = sums) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self._x_RW, self._abs_RW, self._test_RW = (new(num_rows, ROW, dtype=dtype) for _ in range(3))
        self._work_RW, self._mask_RW = new(num_rows, ROW), new(num_rows, ROW, dtype=torch.bool)
        self._native_R, self._counts_CR = new(num_rows, dtype=dtype), new(5, num_rows)
        self._sums_R, self._center_R = new(num_rows), new(num_rows)
        self._inf = torch.full((), _INF, dtype=dtype, device=device)
        self._minus_inf = torch.full((), -_INF, dtype=dtype, device=device)
        p = len(tensors)
        self._counts_CP, self._min_P, self._max_P = new(5, p), new(p, dtype=dtype), new(p, dtype=dtype)
        self._n_P, self._scale_P, self._center_P, self._sum_P, self._square_P, self._norm_P = (new(p) for _ in range(6))
        self._none_P = new(p, dtype=torch.bool)
        if sums == torch.float64:
            bits, self._exponent_bits = torch.int64, 0x7FF << 52
        else:
            bits, self._exponent_bits = torch.int32, 0xFF << 23
        self._scale_bits_P, self._min_scale = self._scale_P.view(bits), torch.finfo(sums).tiny
        self._table_PS = new(p, NUM_STATS)
        self._table_PS[:, Stat.NUM_ELEMENTS] = torch.tensor([t.numel() for t in tensors], dtype=sums)
        self._index_P = torch.tensor(indices, device=device)
        self._chunks = list(self._layout(tensors, num_rows))

    def _layout(self, tensors: list[torch.Tensor], num_rows: int) -> Iterator[_Chunk]:
        chunk, owners = _Chunk(), list[int]()

        def close() -> _Chunk:
            chunk.owner_R, chunk.num_rows = torch.tensor(owners, device=self._x_RW.device), len(owners)
            return chunk

        flat = self._x_RW.view(-1)
        for index, tensor in enumerate(tensors):
            start = 0
            while start < tensor.numel():
                if len(owners) == num_rows:
                    yield close()
                    chunk, owners = _Chunk(), []
                room = (num_rows - len(owners)) * ROW
                length = min(tensor.numel() - start, room)
                view = flat[len(owners) * ROW :][:length]
                if length == tensor.numel():
                    chunk.views.append(view.view(tensor.shape))
                    chunk.pieces.append(_Piece(index=index))
                else:
                    chunk.views.append(view)
                    chunk.pieces.append(_Piece(index=index, start=start, length=length))
                owners += [index] * -(-length // ROW)
                start += length
        yield close()

    def run(self, tensors: list[torch.Tensor]) -> None:
        self._counts_CP.zero_()
        self._min_P.fill_(_INF)
        self._max_P.fill_(-_INF)
        for chunk in self._chunks:
            self._load(chunk, tensors)
            self._extremes(chunk)
        self._pivot()
        for accumulated_P in (self._sum_P, self._square_P, self._norm_P):
            accumulated_P.zero_()
        if not self._in_double:
            for chunk in self._chunks:
                self._load_again(chunk, tensors)
                self._norm_and_sum(chunk)
            torch.div(self._sum_P, self._n_P, out=self._center_P)
            self._sum_P.zero_()
        for chunk in self._chunks:
            self._load_again(chunk, tensors)
            self._moments(chunk)
        self._finish()

    def _load_again(self, chunk: _Chunk, tensors: list[torch.Tensor]) -> None:
        if len(self._chunks) > 1:
            self._load(chunk, tensors)

    def _load(self, chunk: _Chunk, tensors: list[torch.Tensor]) -> None:
        self._x_RW[: chunk.num_rows].fill_(float("nan"))        # elements that no tensor fills are ignored
        pieces = [piece.of(tensors[piece.index]) for piece in chunk.pieces]
        torch._foreach_copy_(chunk.views, pieces)       # torchtriage: ignore[TT716] listed in CONTRIBUTING

    def _extremes(self, chunk: _Chunk) -> None:
        """Counts, and the smallest and largest finite value."""
        r = chunk.num_rows
        x_RW, abs_RW, test_RW, mask_RW = self._x_RW[:r], self._abs_RW[:r], self._test_RW[:r], self._mask_RW[:r]
        counts_CR, native_R = self._counts_CR[:, :r], self._native_R[:r]
        torch.abs(x_RW, out=abs_RW)
        tests = (
            (_FINITE, torch.lt, _INF), (_INFINITE, torch.eq, _INF), (_ZERO, torch.eq, 0.0),
            (_SMALL, torch.lt, self._small), (_LARGE, torch.gt, self._large),
        )
        for row, compare, limit in tests:
            compare(abs_RW, limit, out=test_RW)     # ones and zeros of the same dtype: summing booleans would copy them
            torch.sum(test_RW, 1, out=native_R)
            counts_CR[row].copy_(native_R)
        self._counts_CP.index_add_(1, chunk.owner_R, counts_CR)
        torch.lt(abs_RW, _INF, out=mask_RW)
        sides = ((self._inf, torch.amin, "amin", self._min_P), (self._minus_inf, torch.amax, "amax", self._max_P))
        for other, reduce, how, into_P in sides:
            torch.where(mask_RW, x_RW, other, out=test_RW)
            reduce(test_RW, 1, out=native_R)
            into_P.scatter_reduce_(0, chunk.owner_R, native_R, how)

    def _pivot(self) -> None:
        """Scale and centre of each tensor, so that squares neither overflow nor underflow, nor hide the spread."""
        low_P, high_P, max_abs_P = (self._table_PS[:, s] for s in (Stat.MIN, Stat.MAX, Stat.MAX_ABS))
        torch.eq(self._counts_CP[_FINITE], 0, out=self._none_P)
        torch.clamp(self._counts_CP[_FINITE], min=1, out=self._n_P)
        low_P.copy_(self._min_P).masked_fill_(self._none_P, 0)
        high_P.copy_(self._max_P).masked_fill_(self._none_P, 0)
        torch.neg(low_P, out=max_abs_P)
        torch.maximum(max_abs_P, high_P, out=max_abs_P)
        # The largest power of two below it, so that scaling does not round: the bits of the exponent alone.
        self._scale_P.copy_(max_abs_P)
        self._scale_bits_P.bitwise_and_(self._exponent_bits)
        self._scale_P.clamp_(min=self._min_scale)
        torch.div(low_P, self._scale_P, out=self._center_P)
        torch.div(high_P, self._scale_P, out=self._sum_P)
        self._center_P.add_(self._sum_P).mul_(0.5)

    def _scaled(self, chunk: _Chunk) -> torch.Tensor:
        r = chunk.num_rows
        torch.index_select(self._scale_P, 0, chunk.owner_R, out=self._sums_R[:r])
        return self._work_RW[:r].copy_(self._x_RW[:r]).div_(self._sums_R[:r].unsqueeze(1))

    def _norm_and_sum(self, chunk: _Chunk) -> None:
        """Without double, the centre must be the mean itself, and the norm be summed separately."""
        work_RW = self._scaled(chunk).nan_to_num_(0.0, 0.0, 0.0)
        self._add(work_RW, self._sum_P, self._norm_P, chunk)

    def _moments(self, chunk: _Chunk) -> None:
        """Sums about the centre."""
        center_R = self._center_R[: chunk.num_rows]
        torch.index_select(self._center_P, 0, chunk.owner_R, out=center_R)
        work_RW = self._scaled(chunk).sub_(center_R.unsqueeze(1)).nan_to_num_(0.0, 0.0, 0.0)
        self._add(work_RW, self._sum_P, self._square_P, chunk)

    def _add(self, work_RW: torch.Tensor, sum_P: torch.Tensor, square_P: torch.Tensor, chunk: _Chunk) -> None:
        result_R = self._sums_R[: chunk.num_rows]
        torch.sum(work_RW, 1, out=result_R)
        sum_P.index_add_(0, chunk.owner_R, result_R)
        torch.linalg.vector_norm(work_RW, dim=1, out=result_R)
        square_P.index_add_(0, chunk.owner_R, result_R.square_())

    def _finish(self) -> None:
        table_PS, counts_CP = self._table_PS, self._counts_CP
        mean_P, std_P, norm_P, num_nan_P = (table_PS[:, s] for s in (Stat.MEAN, Stat.STD, Stat.NORM, Stat.NUM_NAN))
        if self._in_double:
            # Squares about 0 from those about the centre: scaled, they sum to at least 1, so a double is precise
            # enough.
            self._norm_P.copy_(self._square_P).addcmul_(self._sum_P, self._center_P, value=2)
            torch.mul(self._center_P, self._center_P, out=mean_P)
            self._norm_P.addcmul_(mean_P, self._counts_CP[_FINITE])
        self._sum_P.div_(self._n_P)
        torch.add(self._sum_P, self._center_P, out=mean_P)
        mean_P.mul_(self._scale_P)
        torch.div(self._square_P, self._n_P, out=std_P)
        std_P.addcmul_(self._sum_P, self._sum_P, value=-1).clamp_(min=0).sqrt_().mul_(self._scale_P)
        torch.sqrt(self._norm_P.clamp_(min=0), out=norm_P)
        norm_P.mul_(self._scale_P)
        torch.sub(table_PS[:, Stat.NUM_ELEMENTS], counts_CP[_FINITE], out=num_nan_P)
        num_nan_P.sub_(counts_CP[_INFINITE])
        table_PS[:, Stat.NUM_INF : Stat.NUM_LARGE + 1].copy_(counts_CP[_INFINITE:].t())
        self._out_PS.index_copy_(0, self._index_P, table_PS)


def limits(dtype: torch.dtype, small: float, large: float) -> tuple[float, float]:
    """The limits in a tensor's dtype, rounded so that `|x| < small` and `|x| > large` count the same as in double."""
    exact = torch.tensor([small, large], dtype=torch.float64)
    near = exact.to(dtype)
    beyond = torch.nextafter(near, torch.tensor([_INF, -_INF], dtype=dtype))
    wrong = torch.stack([near[0].double() < exact[0], near[1].double() > exact[1]])
    low, high = torch.where(wrong, beyond, near).tolist()
    return low, high
