"""Findings in the real programs of a corpus against the truth, beside tlparse and torch._dynamo.explain.

The corpus needs a separate venv with its packages, torchtriage and torchtriage.pth; its README says how. Then:
python benchmarks/recall.py --python VENV/bin/python [--corpus DIR] [--only case,case] [--keep DIR]
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import HERE, PROGRAMS, clean_environment, machine, note, run, save, table
from tlparse_pages import Pages, pages_of

UNSPECIFIC = ("TT199", "TT299")  # "everything else" of the breaks and of the recompiles
MIN_SPECIFIC = 0.90
FAMILIES = {"all": ("TT",), "breaks and recompiles": ("TT1", "TT2")}
HEADER = [
    "case",
    "breaks",
    "recompiles",
    "limits",
    "tlparse summary",
    "tlparse artifacts",
    "tlparse recompiles",
    "explain",
    "explain's remark",
]
EXPLANATION = """\
found/true +extra, distinct; ours by file, line and GB id, the peers by file and line
tlparse summary: breaks whose compile has a row for them on failures_and_restarts.html (the row gives no file and line)
tlparse artifacts: breaks on any artifact page (how many pages that is)
tlparse recompiles: artifact pages with reasons, by compile id; no page sums them up
explain: the first call of each compiled object, which so runs twice; it cannot see a recompile
"""

Place = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """How many of the true ones were found, and how many were found that are not true."""

    found: int
    true: int
    extra: int = 0

    def __add__(self, other: "Hits") -> "Hits":
        return Hits(found=self.found + other.found, true=self.true + other.true, extra=self.extra + other.extra)

    def __str__(self) -> str:
        return f"{self.found}/{self.true}" + (f" +{self.extra}" if self.extra else "")


@dataclass(slots=True, kw_only=True)
class Case:
    """The results of each tool for one program."""

    name: str
    breaks: Hits
    recompiles: Hits
    limits: Hits
    codes: dict[str, int]
    tlparse_summary: Hits | None = None
    tlparse_artifacts: Hits | None = None
    tlparse_num_pages: int = 0
    tlparse_recompiles: Hits | None = None
    explain: Hits | None = None
    remark: str = ""


def environment(scratch: Path, **extra: str) -> dict[str, str]:
    return clean_environment(HF_HUB_OFFLINE="1", TORCHINDUCTOR_CACHE_DIR=str(scratch / "inductor"), **extra)


def our_report(python: str, script: Path, keep: Path | None, scratch: Path) -> dict[str, Any]:
    """`torchtriage run`, then `torchtriage report --format json --events`, as a user would."""
    recording = scratch / "case.triage"
    run(
        [python, "-m", "torchtriage", "run", "-q", "-o", str(recording), str(script)],
        environment(scratch),
        cwd=scratch,
        check=False,
    )
    ended = run(
        [python, "-m", "torchtriage", "report", str(recording), "--format", "json", "--events"],
        environment(scratch),
        cwd=scratch,
    )
    if keep:
        (keep / f"{script.stem}.json").write_text(ended.stdout)
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


def tlparse_output(python: str, script: Path, scratch: Path) -> Pages:
    """TORCH_TRACE, then tlparse on the largest trace file (it takes one file)."""
    run([python, str(script)], environment(scratch, TORCH_TRACE=str(scratch / "trace")), cwd=scratch, check=False)
    return pages_of(max((scratch / "trace").iterdir(), key=lambda p: p.stat().st_size), scratch / "tl")


def explained(python: str, script: Path, scratch: Path) -> dict[str, list[Any]]:
    out = scratch / "explain.json"
    run(
        [python, str(PROGRAMS / "explain_first_call.py"), str(out), str(script)],
        environment(scratch),
        cwd=scratch,
        check=False,
    )
    found: dict[str, list[Any]] = (
        json.loads(out.read_text()) if out.exists() else {"breaks": [], "errors": ["the runner died"]}
    )
    return found


def breaks_with_id(report: Mapping[str, Any], truth: Mapping[str, Any]) -> Hits:
    """Distinct by file, line and GB id; the truth has only the end of the path."""
    true = {(b["file_suffix"], b["line"], b["gb_id"]) for b in truth["breaks"]}
    found = {(b["path"].replace("\\", "/"), b["line"], b["gb_id"] or "") for b in report["events"]["graph_breaks"]}
    hit = {t for t in true for f in found if f[0].endswith(t[0]) and f[1:] == t[1:]}
    extra = [f for f in found if not any(f[0].endswith(t[0]) and f[1:] == t[1:] for t in true)]
    return Hits(found=len(hit), true=len(true), extra=len(extra))


def places(found: Iterable[Place], truth: Mapping[str, Any]) -> Hits:
    """Distinct by file and line, for tools that give no GB id."""
    true = {(b["file_suffix"], b["line"]) for b in truth["breaks"]}
    found = {(path.replace("\\", "/"), line) for path, line in found}
    hit = {t for t in true for f in found if f[0].endswith(t[0]) and f[1] == t[1]}
    extra = [f for f in found if not any(f[0].endswith(t[0]) and f[1] == t[1] for t in true)]
    return Hits(found=len(hit), true=len(true), extra=len(extra))


def recompiles(report: Mapping[str, Any], truth: Mapping[str, Any]) -> Hits:
    """By function and compile id; the truth lists the attempt that is refused at a limit, which is not a recompile."""
    true = Counter((r["function"], r["compile_id"]) for r in truth["recompiles"])
    found = Counter((r["function"], str(r["compile_id"]).strip("[]")) for r in report["events"]["recompiles"])
    both = (found & true).total()
    return Hits(found=min(both, truth["n_recompiles"]), true=truth["n_recompiles"], extra=found.total() - both)


def recompile_pages(found: Iterable[str], truth: Mapping[str, Any]) -> Hits:
    """By compile id alone, which is all that tlparse's pages give; a refused attempt at a limit has a page as well."""
    true = Counter(r["compile_id"] for r in truth["recompiles"])
    seen = Counter(found)
    both = (seen & true).total()
    return Hits(found=min(both, truth["n_recompiles"]), true=truth["n_recompiles"], extra=seen.total() - both)


def measure(name: str, truth: Mapping[str, Any], options: argparse.Namespace) -> Case:
    script = options.corpus / f"case_{name}.py"
    with tempfile.TemporaryDirectory() as folder:
        report = our_report(options.python, script, options.keep, Path(folder))
    at_limit, true_limits = report["totals"]["frames_at_limit"], len(truth["recompile_limits"])
    case = Case(
        name=name,
        breaks=breaks_with_id(report, truth),
        recompiles=recompiles(report, truth),
        limits=Hits(found=min(at_limit, true_limits), true=true_limits, extra=max(0, at_limit - true_limits)),
        codes=dict(Counter(f["code"] for f in report["findings"])),
    )
    if not options.no_peers:
        with tempfile.TemporaryDirectory() as folder:
            pages = tlparse_output(options.python, script, Path(folder))
        case.tlparse_summary = places(pages.in_summary, truth)
        case.tlparse_artifacts = places(pages.in_artifacts, truth)
        case.tlparse_num_pages = pages.num_break_pages
        case.tlparse_recompiles = recompile_pages(pages.recompiles, truth)
    if not (options.no_peers or options.no_explain):
        with tempfile.TemporaryDirectory() as folder:
            outcome = explained(options.python, script, Path(folder))
        case.explain = places([(path, line) for path, line in outcome["breaks"]], truth)
        case.remark = "; ".join(dict.fromkeys(outcome["errors"]))[:60]
    note(f"  {name}: breaks {case.breaks}, recompiles {case.recompiles}, limits {case.limits}")
    return case


def specific_share(codes: Mapping[str, int], families: tuple[str, ...]) -> tuple[int, int]:
    """(findings with a specific rule, findings) of these families."""
    mine = {code: n for code, n in codes.items() if code.startswith(families)}
    return sum(n for code, n in mine.items() if code not in UNSPECIFIC), sum(mine.values())


def row_of(c: Case) -> list[object]:
    row: list[object] = [c.name, c.breaks, c.recompiles, c.limits]
    if c.tlparse_summary is None:
        return row
    return [
        *row,
        c.tlparse_summary,
        f"{c.tlparse_artifacts} ({c.tlparse_num_pages})",
        c.tlparse_recompiles,
        c.explain or "not run",
        c.remark,
    ]


def summed(cases: list[Case]) -> Case:
    none = Hits(found=0, true=0)

    def total(kind: str) -> Hits:
        return sum((getattr(c, kind) or none for c in cases), none)

    return Case(
        name="all",
        breaks=total("breaks"),
        recompiles=total("recompiles"),
        limits=total("limits"),
        codes=dict(sum((Counter(c.codes) for c in cases), Counter[str]())),
        tlparse_summary=total("tlparse_summary") if cases[0].tlparse_summary is not None else None,
        tlparse_artifacts=total("tlparse_artifacts"),
        tlparse_num_pages=sum(c.tlparse_num_pages for c in cases),
        tlparse_recompiles=total("tlparse_recompiles"),
        explain=total("explain") if cases[0].explain is not None else None,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter with the corpus' packages and torchtriage"
    )
    parser.add_argument("--corpus", type=Path, default=HERE.parents[1] / "shared" / "corpus")
    parser.add_argument("--only", default="", help="comma-separated case names")
    parser.add_argument("--no-peers", action="store_true", help="ours alone, in a third of the time")
    parser.add_argument("--no-explain", action="store_true", help="without torch._dynamo.explain, in two thirds of it")
    parser.add_argument("--keep", type=Path, help="keep our reports in this folder, one JSON a case")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    truth = json.loads((options.corpus / "truth.json").read_text())
    names = [name for name in truth if not options.only or name in options.only.split(",")]
    before = machine()
    with ThreadPoolExecutor(options.jobs) as pool:
        cases = list(pool.map(lambda name: measure(name, truth[name], options), names))
    total = summed(cases)
    print(EXPLANATION)
    print(table(HEADER[: 4 if options.no_peers else None], [row_of(c) for c in (*cases, total)]))
    shares = {title: specific_share(total.codes, families) for title, families in FAMILIES.items()}
    for title, (specific, number) in shares.items():
        share = f"{specific} of {number} ({specific / max(1, number):.0%})"
        print(f"\nfindings with a specific rule, {title}: {share}, target >= {MIN_SPECIFIC:.0%}")
    print("codes:", dict(sorted(total.codes.items())))
    save("recall", before, {"cases": cases, "all": total, "specific": shares})


if __name__ == "__main__":
    main()
