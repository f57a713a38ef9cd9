"""Right and wrong changes of small programs, judged by `torchtriage verify`.

    python benchmarks/verify.py [--only TEXT] [--kind cure] [--limit 20] [--times 1]

The right ones are the options of the advice benchmark that keep the numbers, and edits that differ by rounding or by
random draws. Goal: 95 % of the right ones are verified and no wrong one is. The ratio is that of the time of a proof to
the time of the first run of BEFORE in it.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from advice_cases import (
    autograd,
    branches,
    calls,
    coverage,
    iteration,
    logs,
    mixed,
    scalars,
    shapes,
    sizes,
    state,
    values,
)
from common import clean_environment, machine, note, save, table
from verify_cases import branches as branch_cases
from verify_cases import outputs, trainings
from verify_cases.pair import Pair, pairs_of

from torchtriage import verify
from torchtriage.findings.proof.verdict import Proof, ProofVerdict
from torchtriage.reporters.proof.sentences import headline

ADVICE = (autograd, branches, calls, coverage, iteration, logs, mixed, scalars, shapes, sizes, state, values)


def pairs() -> Iterator[Pair]:
    yield from pairs_of((*trainings.FAMILIES, *outputs.FAMILIES, *branch_cases.FAMILIES))
    for module in ADVICE:
        for case in module.CASES:
            options = [option for option in case.options if option.same_numbers and not option.leaves]
            if options:
                yield Pair(
                    name=f"advice: {case.name}", kind="cure", before=case.source, after=case.twin(options[0]),
                    is_right=True)


def proof_of(pair: Pair, folder: Path) -> Proof:
    (folder / "before.py").write_text(pair.before)
    (folder / "after.py").write_text(pair.after)
    return verify(folder / "before.py", folder / "after.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="pairs whose name or kind contains this")
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--every", type=int, default=1, help="each n-th pair")
    parser.add_argument("--wrong", action="store_true", help="only the wrong ones")
    parser.add_argument("--right", action="store_true", help="only the right ones")
    parser.add_argument("--times", type=int, default=1, help="proofs per pair")
    options = parser.parse_args()
    os.environ.update(clean_environment())
    before = machine()
    chosen = [pair for pair in pairs() if options.only in f"{pair.name} ({pair.kind})"]
    if options.wrong or options.right:
        chosen = [pair for pair in chosen if pair.is_right == options.right]
    rows, results, ratios = [], [], []
    for pair in chosen[::options.every][:options.limit]:
        for _ in range(options.times):
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                proof = proof_of(pair, Path(folder))
                os.chdir(Path(__file__).parent)
            is_good = (proof.verdict is ProofVerdict.VERIFIED) == pair.is_right
            ratio = proof.seconds / (proof.before.seconds or 1.0)
            ratios.append(ratio)
            rows.append((pair.name, pair.kind, "right" if pair.is_right else "wrong", str(proof.verdict),
                         f"{ratio:.1f}", "" if is_good else "  <--"))
            results.append({"name": pair.name, "kind": pair.kind, "is_right": pair.is_right, "ratio": ratio,
                            "verdict": str(proof.verdict), "seconds": proof.seconds, "why": headline(proof)})
            note(f"{rows[-1]}: {headline(proof)}")
    print(table(("change", "kind", "is", "verdict", "ratio", ""), rows))
    counts = Counter((row[2], row[3]) for row in rows)
    print(f"right: {counts['right', 'verified']} verified, {counts['right', 'refuted']} refuted, "
          f"{counts['right', 'undecided']} undecided")
    print(f"wrong: {counts['wrong', 'verified']} verified, {counts['wrong', 'refuted']} refuted, "
          f"{counts['wrong', 'undecided']} undecided; median ratio {statistics.median(ratios):.1f}")
    save("verify", before, {"results": results})


if __name__ == "__main__":
    main()
