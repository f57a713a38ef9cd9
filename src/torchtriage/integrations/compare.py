"""`torchtriage.compare_policies(fn, inputs)`: a study of the shape policies of one function."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchtriage.findings.shape_study import ShapeStudy
from torchtriage.shapes.functions.call_inputs import Inputs
from torchtriage.shapes.functions.compare import POLICIES, study_policies


class Comparison(ShapeStudy):
    """A shape study whose repr is the table and the advice."""

    __slots__ = ()

    def __repr__(self) -> str:
        from torchtriage.reporters.shapes import render_study

        return render_study(self)


def compare_policies(
    fn: Callable[..., Any], inputs: Inputs, *, policies: Sequence[str] = POLICIES, rounds: int = 3,
    buckets: int | Mapping[str, Any] | None = None, num_planned: int | None = None, **compile_options: Any,
) -> Comparison:
    """Measure the best shape policy of `fn` for these calls: compile time plus steady time, over `num_planned` calls.

    inputs: the calls: argument tuples (or dicts of keywords, or single arguments), replayed in every trial; or a
        function that returns an iterator of them, called for every trial, if `fn` writes into its arguments.
    policies: some of "dynamic=False", "dynamic=None", "dynamic=True" and "marked" (only the dimensions that vary over
        the inputs).
    buckets: also measure `torchtriage.bucketed`: its arguments as a dict, or just the number of buckets.
    Everything else goes to torch.compile (backend, mode, fullgraph, options).

    Every trial calls torch._dynamo.reset(), which discards everything compiled in this process, and starts with an
    empty cache on disk. Prefill and decode are two functions, or two sets of inputs: compare them separately, as their
    best policies may differ.
    """
    from torchtriage.reporters.shape_text import with_sentences

    study = with_sentences(study_policies(
        fn, inputs, policies=policies, rounds=rounds, buckets=buckets, num_planned=num_planned, **compile_options,
    ))
    return Comparison(**{name: getattr(study, name) for name in ShapeStudy.__dataclass_fields__})
