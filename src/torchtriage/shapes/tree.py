"""The decision tree for changing shapes, answered with what was measured.

    Is the tensor shape fixed?
    - yes: dynamic=False
    - no: does it change frequently?
        - yes: dynamic=True
        - no, few shapes: pad to a fixed shape, or bucket the sizes and compile each beforehand
"""

from collections.abc import Sequence

from torchtriage.diagnosis.source_names import readable
from torchtriage.findings.shape_study import Advice, Branch, VaryingSize
from torchtriage.shapes.advice import NOT_SETTLED
from torchtriage.shapes.bucketing import best_edges
from torchtriage.shapes.wording import listed

FEW_SHAPES = 8      # torch's default limit of graphs for one function
NUM_BUCKETS = 4
MAX_NAMED = 3
IS_FIXED = "Is the tensor shape fixed?"


def decision_tree(sizes: Sequence[VaryingSize] | None, num_sources: int, num_calls: int, advice: Advice) -> list[Branch]:
    """Each question on the way, its answer, and the fact behind it. `sizes`: those that vary; None if they could not be seen."""
    verdict = advice.policy or NOT_SETTLED
    measured = Branch(question="What did the measurement say?", answer=verdict, evidence=advice.text.removeprefix(f"{verdict}: "))
    if sizes is None:
        return [Branch(question=IS_FIXED, answer="not measured", evidence="the sizes of the calls could not be seen"), measured]
    if not sizes:
        evidence = f"{num_sources} sizes and numbers were seen over {num_calls} calls, none took a second value"
        return [Branch(question=IS_FIXED, answer="yes: one graph is enough, dynamic=False is safe", evidence=evidence), measured]
    most = max(sizes, key=lambda size: size.num_values)
    names = [name_of(size) for size in sorted(sizes, key=lambda size: -size.num_values)[:MAX_NAMED]]
    more = f" and {len(sizes) - MAX_NAMED} more" if len(sizes) > MAX_NAMED else ""
    evidence = f"{listed(names)}{more} {'varies' if len(sizes) == 1 else 'vary'}; sizes and numbers seen: {num_sources}"
    fixed = Branch(question=IS_FIXED, answer="no", evidence=evidence)
    if most.num_values > FEW_SHAPES:
        often = f"yes: dynamic shapes, a graph for each of {most.num_values} values does not pay"
    else:
        often = f"no: {most.num_values} values, each could have a graph of its own"
    changes = Branch(
        question="Does it change frequently?", answer=often,
        evidence=f"{name_of(most)} took {most.num_values:,} values in {most.num_calls:,} calls",
    )
    buckets = _buckets(most)
    return [branch for branch in (fixed, changes, buckets, measured) if branch is not None]


def name_of(size: VaryingSize) -> str:
    """x.size(1), or n for a number."""
    name = readable(size.source)
    return name if size.dim is None else f"{name}.size({size.dim})"


def _buckets(size: VaryingSize) -> Branch | None:
    """Which bucket edges would waste least, if the sizes are known in full."""
    known = {int(value): number for value, number in size.values.items() if value.isdigit()}
    if size.dim is None or len(known) < size.num_values or size.num_values < 2:
        return None
    num_buckets = min(NUM_BUCKETS, size.num_values - 1)
    edges, waste = best_edges(known, num_buckets)
    where = f"{num_buckets} bucket{'s' * (num_buckets > 1)} at {', '.join(map(str, edges))}"
    return Branch(
        question="Would padding or buckets do?", answer=f"{where}: {num_buckets} compile{'s' * (num_buckets > 1)}",
        evidence=f"{waste:.0%} of the padded {name_of(size)} would be padding (estimated from the sizes seen; not run). "
                 "Try it with torchtriage.bucketed",
    )
