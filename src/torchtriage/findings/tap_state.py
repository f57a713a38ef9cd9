"""The parts of a run that were watched or missed, as fields from which reporters make sentences."""

from dataclasses import dataclass
from enum import StrEnum

STRUCTURED_TRACE, TEXT_LOG = "structured trace", "text log"
SCALARS = "scalars"     # from the log of another logger
COMPILER, OTHER_SCALARS = "torch.compile", "gradients of single tensors"
SOURCE = "source"     # read by lint
BREAK_COSTS = "run-time cost of graph breaks"
COMPILES = "compiles that gave up"
LEARNING = "learning"
SHAPE_STUDY = "shape study"
REMEDY_PROOFS = "verified edits"
RECURRENT_STATE, PPO_UPDATES = "recurrent state", "PPO updates"
# Missing from traces or logs.
STEPS = "the step of each event"
SKIPPED_FRAMES = "skipped frames"
EAGER_CALLS = "calls that ran eager past the recompile limit"
CALL_SITES, COMPILE_TIMES, CACHES = "torch.compile call sites", "compile times", "caches"
LOGGERS = ("Stable-Baselines3 Logger", "SummaryWriter", "tensorboardX", "wandb", "Trackio")    # of capture/taps/loggers
# The names that torchtriage itself defines. Any other name comes from a file and may contain a name of the program.
OWN_NAMES = frozenset({
    "trace", "steps", "compile calls", "whole-frame breaks", "piece timer", "silent-eager meter", "recorder",
    "policy", "call times", "call sizes", "shape marks", "gradients", "loss", "clipping and GradScaler",
    "gradients of some tensors", "loaded weights", "environments", *(f"scalars of {logger}" for logger in LOGGERS),
    STRUCTURED_TRACE, TEXT_LOG, BREAK_COSTS, COMPILES, LEARNING, SHAPE_STUDY,
    REMEDY_PROOFS, SOURCE, SCALARS, COMPILER, OTHER_SCALARS, STEPS, SKIPPED_FRAMES, EAGER_CALLS, CALL_SITES,
    COMPILE_TIMES, CACHES, RECURRENT_STATE, PPO_UPDATES,
})


class TapStatus(StrEnum):
    """Whether a tap watched, or why it did not."""

    ARMED = "armed"
    ABSENT = "absent"                   # `detail` says why
    LOST = "lost"                       # `detail` says why
    NOT_IN_SOURCE = "not in source"     # a trace or log does not contain it
    NOT_MEASURED = "not measured"       # only --measure shows it
    NOT_REPORTED = "not reported"       # only a program that passes it to a Monitor shows it
    ONLY_LOGGED = "only logged"         # `detail` names the quantities that the program's logger shows, and the logger
    NOT_EXPLAINED = "not explained"     # torch traced no reason, `number` times
    TOO_FAST = "too fast"               # `number` samples were overwritten before they were read
    NOT_PARSED = "not parsed"           # `name` is a source file, `detail` says why
    NO_ROOM = "no room"                 # `number` values belong to metrics beyond the limit on metric names


@dataclass(frozen=True, slots=True, kw_only=True)
class TapState:
    """One part of the run that was watched, or was not."""

    name: str
    status: TapStatus = TapStatus.ARMED
    detail: str = ""
    number: int = 0
