"""`bucketed(fn, dim=1, sizes=(32, 64, 128))`: pads inputs to a few sizes, each compiled once, to avoid recompiles."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torchtriage.errors import TriageError
from torchtriage.shapes.functions.compiling import bucket_compiler, name_of, parameter_names, uncompiled
from torchtriage.shapes.functions.edges import best_edges, histogram_of, next_edge, read_study
from torchtriage.shapes.functions.padding import Padding
from torchtriage.shapes.functions.padding_check import Call, CheckedPadding, check, warm_up
from torchtriage.text import counted

Above = Literal["error", "eager", "grow"]


@dataclass(slots=True)
class BucketCount:
    """The calls of one bucket; sizes are along the padded dimension."""

    num_calls: int = 0
    real: int = 0
    padded: int = 0

    @property
    def waste_share(self) -> float:
        return self.padded / (self.padded + self.real) if self.padded else 0.0


@dataclass(slots=True)
class BucketCounts:
    """The calls of each bucket, and those above the last bucket that ran unpadded."""

    by_bucket: dict[int, BucketCount] = field(default_factory=dict)
    num_eager: int = 0

    def add(self, bucket: int, size: int) -> None:
        count = self.by_bucket.setdefault(bucket, BucketCount())
        count.num_calls += 1
        count.real += size
        count.padded += bucket - size

    def __getitem__(self, bucket: int) -> BucketCount:
        return self.by_bucket.get(bucket, BucketCount())

    def __repr__(self) -> str:
        rows = [f"{'bucket':>8}{'calls':>10}{'padding':>10}"]
        total = BucketCount()
        for bucket, count in sorted(self.by_bucket.items()):
            rows.append(f"{bucket:>8}{count.num_calls:>10,}{count.waste_share:>10.1%}")
            total.num_calls += count.num_calls
            total.real += count.real
            total.padded += count.padded
        rows.append(f"{'all':>8}{total.num_calls:>10,}{total.waste_share:>10.1%}")
        if self.num_eager:
            rows.append(f"{counted(self.num_eager, 'call')} above the last bucket ran eagerly")
        return "\n".join(rows)


class Bucketed:
    """The result of `bucketed`, called like the function itself.

    Also has `.bucket_of`, `.last_bucket`, `.counts`, `.warmup` and `.check`.
    """

    def __init__(
        self, fn: Callable[..., Any], edges: Sequence[int], padding: Padding, *, length: str | None, above: Above,
        checks_first: bool, compile_options: Mapping[str, Any],
    ) -> None:
        self.fn = fn
        self.edges = tuple(edges)
        self.counts = BucketCounts()
        self.last_bucket: int | None = None
        self._plain = uncompiled(fn)
        self._padding = padding
        self._length = length
        self._above = above
        self._checks_first = checks_first
        self._compile_bucket = bucket_compiler(fn, compile_options)
        self._compiled: dict[int, Callable[..., Any]] = {}
        self.__wrapped__ = fn
        self.__name__ = name_of(self._plain)

    def __repr__(self) -> str:
        return f"<bucketed {self.__name__}: {', '.join(map(str, self.edges))}>"

    def bucket_of(self, size: int) -> int | None:
        """The length to which `size` is padded; None if it is above the last bucket and runs eagerly."""
        for edge in self.edges:     # a plain loop, which Dynamo turns into one guard per bucket
            if size <= edge:
                return edge
        if self._above == "grow":
            return -(-size // self.edges[-1]) * self.edges[-1]
        if self._above == "eager":
            return None
        raise TriageError(
            f"size {size} is above the largest bucket, {self.edges[-1]}; add an edge to sizes=, or give above='grow' "
            f"(next multiple of {self.edges[-1]}, one compile each) or above='eager' (unpadded, not compiled)"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import torch

        if torch.compiler.is_compiling():
            return self._run(self._plain_of, args, kwargs, *self._padding.dims(args, kwargs, settle=False))
        size, dims = self._padding.dims(args, kwargs)
        bucket = self.last_bucket = self.bucket_of(size)
        if bucket is None:
            self.counts.num_eager += 1
            return self._run(self._plain_of, args, kwargs, size, dims)
        if self._checks_first and size < bucket and bucket not in self.counts.by_bucket:
            self.check(*args, **kwargs)
        self.counts.add(bucket, size)
        return self._run(self._compiled_for, args, kwargs, size, dims)

    def _run(
        self, function_for: Callable[[int], Callable[..., Any]], args: Sequence[Any], kwargs: Mapping[str, Any],
        size: int, dims: Mapping[str, int], length: int | None = None,
    ) -> Any:
        """Pad to the bucket of `size` (or to `length`), call, cut back."""
        length = length or self.bucket_of(size) or size
        padded_args, padded_kwargs = self._padding.padded(args, kwargs, dims, length)
        padded_kwargs |= self._length_argument(size, args, kwargs)
        return self._padding.cut(function_for(length)(*padded_args, **padded_kwargs), dims, length, size)

    def _plain_of(self, length: int) -> Callable[..., Any]:
        return self._plain

    def _compiled_for(self, bucket: int) -> Callable[..., Any]:
        if bucket not in self._compiled:
            self._compiled[bucket] = self._compile_bucket()
        return self._compiled[bucket]

    def _length_argument(self, size: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The true length as a tensor: a Python number would become a constant of the graph and cause recompiles."""
        if self._length is None:
            return {}
        import torch

        device = self._padding.tensors(args, kwargs)[0][1].device
        return {self._length: torch.full((), size, dtype=torch.int64, device=device)}

    def warmup(self, *args: Any, **kwargs: Any) -> dict[int, float]:
        """Compile every bucket now, with example arguments of any size; with and without gradients if any are required.

        Returns the compile seconds of each bucket, by Dynamo's own clock.
        """
        _, dims = self._padding.dims(args, kwargs)
        seconds = {}
        for edge in self.edges:
            resized = self._padding.padded(args, kwargs, dims, edge)
            extra = self._length_argument(edge, args, kwargs)
            seconds[edge] = warm_up(self._plain, self._compiled_for(edge), resized[0], {**resized[1], **extra})
        return seconds

    def check(self, *args: Any, rtol: float | None = None, atol: float | None = None, **kwargs: Any) -> CheckedPadding:
        """Compare the unpadded call with the padded one, both uncompiled.

        Compares results, arguments that are written to, and gradients if there are any. Raises
        PaddingChangesResultError. A size that is itself an edge is padded to the next one. Costs two calls of the
        function, and the backward of each if gradients are required.
        """
        size, dims = self._padding.dims(args, kwargs)
        length = next_edge(size + 1, self.edges) or size + max(1, size // 4)

        def plain(*args: Any, **kwargs: Any) -> Any:
            return self._plain(*args, **kwargs, **self._length_argument(size, args, kwargs))

        def padded(*args: Any, **kwargs: Any) -> Any:
            return self._run(self._plain_of, args, kwargs, size, dims, length)

        return check(Call(
            function=self._plain, plain=plain, padded=padded, arguments=(args, kwargs), named=self._padding.tensors,
            size=size, length=length, rtol=rtol, atol=atol,
        ))


def bucketed(
    fn: Callable[..., Any], *, dim: int | Mapping[str, int] = 0, sizes: Iterable[int] | Mapping[int, int] | str | Path,
    num_buckets: int | None = None, args: Sequence[str] | None = None, pad: Any = 0,
    out_dim: int | Sequence[int] | Mapping[str, int | Sequence[int]] | None = None, length: str | None = None,
    above: Above = "error", check: Literal["first"] | None = None, **compile_options: Any,
) -> Bucketed:
    """Wrap `fn` so that calls are padded to a few sizes, each compiled once with dynamic=False.

    sizes: the bucket edges; or size -> number of calls, or the recording of `torchtriage shapes`, from which the
        `num_buckets` edges that pad least are chosen.
    dim, args: the dimension that varies, and the names of the tensor arguments that have it; by default all tensors
        with the size of the first one in `dim`. A mapping name -> dim gives both.
    pad: the padding value; or name -> value; or a callable (tensor, dim, length) -> tensor.
    out_dim: where the result is cut back; by default `dim`, in every tensor that is as long as the bucket there.
    length: the name of an argument of `fn` that receives the true length, as a tensor.
    above: the treatment of a size above the last bucket: "error", "eager" (unpadded and uncompiled) or "grow" (next
        multiple of the last edge).
    check: "first" checks that padding changes nothing on the first padded call of every bucket; it costs two more
        calls, uncompiled.
    Everything else goes to torch.compile (backend, mode, fullgraph, options). A function that is already compiled is
    called unchanged.
    """
    if above not in ("error", "eager", "grow") or check not in (None, "first"):
        raise TriageError(f"above={above!r}, check={check!r} is unknown; above is 'error', 'eager' or 'grow', "
                          "check is None or 'first'")
    plain = uncompiled(fn)
    padding = Padding(parameter_names(plain), dim, args, pad, out_dim)
    edges = _edges(sizes, num_buckets, plain, padding)
    return Bucketed(
        fn, edges, padding, length=length, above=above, checks_first=check == "first", compile_options=compile_options,
    )


def _edges(sizes: Any, num_buckets: int | None, fn: Callable[..., Any], padding: Padding) -> tuple[int, ...]:
    if isinstance(sizes, str | Path):
        sizes = _recorded(Path(sizes), fn, padding)
    if isinstance(sizes, Mapping):
        if num_buckets is None:
            raise TriageError("sizes= is a histogram, from which edges are chosen; give their number: num_buckets=4")
        return best_edges(sizes, num_buckets)[0]
    edges = tuple(sorted({int(size) for size in sizes}))
    if not edges or edges[0] < 1 or num_buckets is not None:
        raise TriageError(
            f"sizes={edges} are not edges of 1 or more, or num_buckets={num_buckets} was given with them; "
            "give sizes=(32, 64, 128), or a histogram and num_buckets="
        )
    return edges


def _recorded(folder: Path, fn: Callable[..., Any], padding: Padding) -> dict[int, int]:
    """The histogram of the argument that is padded, in the frame of `fn` if the recording has it."""
    if isinstance(padding.dim, Mapping):
        argument, dim = next(iter(padding.dim.items()))
    else:
        argument, dim = next(iter(padding.args or padding.names), ""), padding.dim
    if dim < 0:
        raise TriageError(f"dim={dim} counts from the end, but a recording counts from the front; "
                          f"give the dimension of {argument!r} as 0 or more")
    code = getattr(getattr(fn, "forward", fn), "__code__", None)
    place = (code.co_filename, code.co_firstlineno) if code is not None else None
    return histogram_of(read_study(folder), argument, dim, place, code.co_name if code is not None else "")
