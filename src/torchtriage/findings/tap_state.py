"""What was watched during a run and what was not, as fields from which reporters make sentences."""

from dataclasses import dataclass
from enum import StrEnum

STRUCTURED_TRACE, TEXT_LOG = "structured trace", "text log"
BREAK_COSTS = "run-time cost of graph breaks"
COMPILES = "compiles that gave up"
LEARNING = "learning"
SHAPE_STUDY = "shape study"
# Not in a trace or a log, whichever program wrote it.
STEPS, SKIPPED_FRAMES, EAGER_CALLS = "the step of each event", "skipped frames", "calls that ran eager past the recompile limit"
CALL_SITES, COMPILE_TIMES, CACHES = "torch.compile call sites", "compile times", "caches"
# Names that are torchtriage's own. Any other name comes from a file, and may hold a name of the program.
OWN_NAMES = frozenset({
    "trace", "steps", "compile calls", "whole-frame breaks", "piece timer", "silent-eager meter", "recorder", "policy", "call times",
    "call sizes", "shape marks", "gradients", "loss", "clipping and GradScaler", "gradients of some tensors",
    STRUCTURED_TRACE, TEXT_LOG, BREAK_COSTS, COMPILES, LEARNING, SHAPE_STUDY, STEPS, SKIPPED_FRAMES, EAGER_CALLS, CALL_SITES,
    COMPILE_TIMES, CACHES,
})


class TapStatus(StrEnum):
    """Whether something was watched, or why not."""

    ARMED = "armed"
    ABSENT = "absent"                   # `detail` says why
    LOST = "lost"                       # `detail` says why
    NOT_IN_SOURCE = "not in source"     # a trace or log does not hold it
    NOT_MEASURED = "not measured"       # only --measure shows it
    NOT_EXPLAINED = "not explained"     # torch traced no reason, `number` times
    TOO_FAST = "too fast"               # `number` samples were overwritten before they were read
    NO_ROOM = "no room"                 # `number` values of metrics past the bound


@dataclass(frozen=True, slots=True, kw_only=True)
class TapState:
    """One thing that was watched, or was not."""

    name: str
    status: TapStatus = TapStatus.ARMED
    detail: str = ""
    number: int = 0
