"""Events without any field do not make a coverage rule fail."""


import pytest

from tests.unit.diagnosis.coverage.samples import Rule, findings_of
from torchtriage.diagnosis.coverage.compile_calls import compile_did_nothing
from torchtriage.diagnosis.coverage.failures import compile_failed, compile_raised, errors_suppressed
from torchtriage.diagnosis.coverage.limits import frame_skipped, recompile_limit_hit
from torchtriage.diagnosis.coverage.start_up import compile_cache_misses, slow_cold_start
from torchtriage.recording.events import (
    CacheUse,
    CompileCall,
    CompileEnd,
    CompileStart,
    FrameSkipped,
    GraphBreak,
    LimitHit,
    Recompile,
)

RULES = [
    recompile_limit_hit, frame_skipped, compile_did_nothing, compile_failed,
    compile_raised, errors_suppressed, slow_cold_start, compile_cache_misses,
]
KINDS = [CacheUse, CompileCall, CompileEnd, CompileStart, FrameSkipped, GraphBreak, LimitHit, Recompile]


@pytest.mark.parametrize("rule", RULES)
def test_events_without_any_field_make_no_rule_fail(rule: Rule) -> None:
    assert isinstance(findings_of(rule, *(kind() for kind in KINDS)), list)
    assert findings_of(rule) == []
