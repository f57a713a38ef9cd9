"""Size recompiles below one line of the user's are one finding."""

from torchtriage.diagnosis.recompiles.fold import fold_library_frames
from torchtriage.findings.model import (
    YOU,
    Category,
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

LIBRARY = Owner(kind=OwnerKind.LIBRARY, name="transformers")


def recompile(
    function: str, *, line: int = 13, code: str = "TT201", owner: Owner = LIBRARY, severity: Severity = Severity.P4,
) -> Finding:
    return Finding(
        code=code, slug="size", title=f"{function} recompiled once", severity=severity, category=Category.COMPILE,
        cause="", fix=Fix(text=""), owner=owner,
        location=Location(path="train.py", line=line), raised_at=Location(path="lib.py", line=1, function=function),
        cost=Cost(seconds=0.5, kind=CostKind.OBSERVED), evidence=Evidence(num_events=1, compile_ids=(f"{function}/1",)),
    )


def test_frames_below_one_call_are_one_finding_with_the_total_cost() -> None:
    [finding] = fold_library_frames(
        [recompile("outer"), recompile("inner"), recompile("innermost", severity=Severity.P2)]
    )
    assert finding.title == "outer recompiled once (and 2 frames below it)"
    assert finding.evidence.num_events == 3
    assert finding.cost.seconds == 1.5
    assert finding.evidence.folded == ("inner: 1 recompile, 500 ms", "innermost: 1 recompile, 500 ms")
    assert finding.evidence.compile_ids == ("outer/1", "inner/1", "innermost/1")
    assert finding.severity is Severity.P2


def test_other_calls_other_causes_and_user_frames_stay_separate() -> None:
    apart = [
        recompile("a"), recompile("b", line=14), recompile("c", code="TT211"), recompile("d", owner=YOU),
        recompile("e", code="TT202"),
    ]
    assert sorted(f.title for f in fold_library_frames(apart)) == sorted(f.title for f in apart)
