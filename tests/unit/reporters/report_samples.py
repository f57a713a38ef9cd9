"""Hand-made reports with a history, for the tests of charts."""

import math

from tests.unit.samples import a_finding, sampled, source_lines, taps
from torchtriage.findings.history import (
    CompileEntry,
    Curve,
    FrameHistory,
    History,
    Link,
    Moment,
    MomentKind,
    ProcessHistory,
)
from torchtriage.findings.model import (
    Check,
    CheckKind,
    Cost,
    CostKind,
    Evidence,
    Finding,
    Fix,
    Location,
    Owner,
    OwnerKind,
    Severity,
)
from torchtriage.findings.report import Report

STORM, BREAK, LIMIT = "aaaa000000000001", "aaaa000000000002", "aaaa000000000003"
POLICY = Location(path="/app/policy.py", line=52, function="Policy.forward")
DIFF = (
    "--- a/train.py\n+++ b/train.py\n@@ -31 +31 @@\n"
    "-step = torch.compile(step, dynamic=False)\n+step = torch.compile(step)\n"
)
RUN = {
    "argv": ["train.py", "--epochs", "3"],
    "cwd": "/app",
    "torch": "2.13.0",
    "python": "3.11.7",
    "host": "box",
    "platform": "Linux",
    "start": 1_700_000_000.0,
    "exit_status": 0,
    "origin": "recording",
    "environment": {"TORCH_LOGS": "recompiles"},
}


def three_findings() -> list[Finding]:
    """A limit and the storm behind it, and a break in a library."""
    return [
        a_finding(
            "TT301",
            slug="recompile-limit-hit",
            title="Policy.forward hit its recompile limit (8): 412 calls ran eager",
            location=POLICY,
            severity=Severity.P1,
            cause="obs.size(0) took 32, 48, 57",
            fingerprint=LIMIT,
            related=(STORM, "gone"),
            owner=Owner(kind=OwnerKind.YOU),
            cost=Cost(seconds=61.2, share=0.23, kind=CostKind.OBSERVED, note="compile time of this frame"),
            fix=Fix(text="drop dynamic=False at train.py:31", edit=DIFF),
            steps=tuple(range(40)),
            ranks=(0, 1),
            evidence=Evidence(
                num_events=8,
                values=sampled("32", "48", "57", "61"),
                reasons=("tensor 'obs' size mismatch",),
                compile_ids=("0/8",),
            ),
            verification=(Check(CheckKind.BELOW_RECOMPILE_LIMIT, "Policy.forward"),),
        ),
        a_finding(
            "TT202",
            slug="size-keeps-changing",
            title="Policy.forward recompiled 7 times: obs.size(0) keeps changing",
            location=POLICY,
            severity=Severity.P2,
            fingerprint=STORM,
            related=(LIMIT,),
            owner=Owner(kind=OwnerKind.YOU),
            cost=Cost(ms_per_step=2.5, kind=CostKind.ESTIMATED),
            fix=Fix(text="call maybe_mark_dynamic(obs, 0)", safe=True),
        ),
        a_finding(
            "TT101",
            title="print() breaks Block.forward",
            severity=Severity.P3,
            fingerprint=BREAK,
            upstream="GB0059",
            owner=Owner(kind=OwnerKind.LIBRARY, name="timm", version="1.0"),
            raised_at=Location(path="/v/site-packages/timm/x.py", line=9),
            evidence=Evidence(
                num_events=3,
                source=source_lines("y = x * 2", "print(y)", "return y", first=13, at=14),
                folded=("resume at 14",),
                notes=("a note",),
            ),
        ),
    ]


def a_history(num_ranks: int = 2, num_steps: int = 120, num_layers: int = 12) -> History:
    """Start-up compiles, a storm until the limit, breaks all along, a loss that becomes NaN."""
    moments: list[Moment] = []
    curves: list[Curve] = []
    steps = list(range(2, num_steps + 2))
    for rank in range(num_ranks):
        seconds = [0.9 if n < 10 else 2.4 if n == 70 + rank else 0.02 + 0.004 * (n % 5) for n in range(num_steps)]
        times = [4.0 + sum(seconds[:n]) for n in range(num_steps)]
        curves.append(Curve(name="step_seconds", process=rank, steps=steps, values=seconds, times=times))
        moments.append(
            Moment(
                kind=MomentKind.COMPILE,
                time=0.8 + 0.1 * rank,
                process=rank,
                seconds=3.0,
                label="Policy.forward",
                compile_id="0/0",
            )
        )
        for n in range(1, 8):
            moments.append(
                Moment(
                    kind=MomentKind.RECOMPILE,
                    time=times[n],
                    process=rank,
                    seconds=0.7,
                    step=n,
                    label="Policy.forward",
                    compile_id=f"0/{n}",
                    detail="tensor 'obs' size mismatch at index 0",
                    fingerprint=STORM,
                )
            )
        moments.append(
            Moment(
                kind=MomentKind.LIMIT, time=times[9], process=rank, step=9, label="Policy.forward", fingerprint=LIMIT
            )
        )
        moments += [
            Moment(
                kind=MomentKind.BREAK,
                time=times[n],
                process=rank,
                step=n,
                label="print() in Block.forward",
                fingerprint=BREAK,
            )
            for n in range(0, num_steps, 15)
        ]
    moments.append(Moment(
        kind=MomentKind.ANOMALY, time=12.0, process=0, step=100, label="loss is not finite", fingerprint=LIMIT,
    ))
    curves.append(
        Curve(
            name="loss",
            process=0,
            steps=steps,
            values=[math.nan if n > 100 else 3 / (1 + n / 9) for n in range(num_steps)],
        )
    )
    curves += [
        Curve(name=f"grad_norm/layers.{k}.weight", process=0, steps=steps,
              values=[math.inf if n > 100 else 10 ** (math.sin(n / 17 + k) - k / 4) for n in range(num_steps)])
        for k in range(num_layers)
    ]
    return History(
        start=RUN["start"],
        seconds=20.0,
        moments=tuple(sorted(moments, key=lambda m: m.time)),
        frames=(a_frame(),),
        curves=tuple(curves),
        processes=tuple(
            ProcessHistory(
                name=f"rank {rank}",
                rank=rank,
                pid=4711 + rank,
                start=0.1,
                end=20.0,
                num_compiles=9,
                num_recompiles=7,
                num_breaks=3,
                compile_seconds=9.0 + rank,
                num_steps=num_steps,
                step_milliseconds=24.0,
                eager_calls=206,
                steady_time=3.9,
                steady_step=0,
            )
            for rank in range(num_ranks)
        ),
    )


def a_frame() -> FrameHistory:
    """Eight compiles for eight sizes, and a chain of two pieces."""
    compiles = tuple(CompileEntry(
        compile_id=f"0/{n}", time=1.0 + n, step=n or None, seconds=0.7, num_ops=42, num_guards=17,
        guards_failed=(f"tensor 'obs' size mismatch at index 0. expected {31 + n}, actual {32 + n}",) * min(n, 3),
        num_guards_failed=min(n, 3),
        values=(("obs.size(0)", str(32 + n)), ("obs.size(1)", "8")),
    ) for n in range(8))
    chain = (
        Link(is_break=False, label="Policy.forward", location=POLICY, compile_id="0/7", num_ops=30),
        Link(is_break=True, label="print() at x.py:9", detail="Failed to trace builtin operator", fingerprint=BREAK),
        Link(
            is_break=False,
            label="resumed at line 54",
            location=Location(path=POLICY.path, line=54),
            compile_id="1/7",
            num_ops=12,
        ),
    )
    return FrameHistory(
        name="Policy.forward",
        location=POLICY,
        process=0,
        compiles=compiles,
        num_compiles=8,
        compile_seconds=5.6,
        chain=chain,
        is_at_limit=True,
        fingerprints=(LIMIT, STORM),
    )


def a_report(**fields: object) -> Report:
    """Three findings with all that can be drawn; `fields` replace its parts."""
    return Report(
        **{  # type: ignore[arg-type]  # the names are those of Report's fields
            "findings": three_findings(),
            "run": RUN,
            "watched": taps("trace", "steps"),
            "not_seen": taps("skipped frames: gone"),
            "totals": {
                "compiles": 18,
                "graph_breaks": 16,
                "distinct_graph_breaks": 1,
                "recompiles": 14,
                "frames_at_limit": 2,
                "eager_calls": 412,
                "compile_seconds": 10.0,
                "steps": 120,
            },
            "history": a_history(),
            **fields,
        }
    )
