"""The origin of the first NaN or Inf of a training, as a replay observed it."""

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from torchtriage.files import read_regular, replace_file
from torchtriage.recording.validation import AnyFloat, parsed_json

ORIGIN_FILE = "origin.json"     # beside the processes of a recording; by `torchtriage replay`
MAX_BYTES = 1 << 20             # of that file; one origin has a few kB


class OriginState(StrEnum):
    """What the replay found."""

    OPERATION = "operation"         # it has finite inputs, and its result is not finite
    INPUT = "input"                 # a tensor was not finite before any operation of the watched steps wrote to it
    COMPILED = "compiled"           # compiled code alone repeats it
    CLEAN = "clean"                 # nothing repeats it
    UNKNOWN = "unknown"             # it was repeated, and its way back ends at values that were not watched


class SeenIn(StrEnum):
    """The first tensor of a step that was not finite, in the order in which a step computes them."""

    LOSS = "loss"
    GRADIENT = "gradient"
    WEIGHT = "weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A tensor or a number that an operation read or wrote; `minimum` and `maximum` are those of its finite values."""

    dtype: str
    shape: tuple[int, ...] = ()
    num_values: int = 1
    minimum: AnyFloat | None = None     # None: no value is finite, or there is none
    maximum: AnyFloat | None = None
    num_zero: int = 0
    num_negative: int = 0
    num_nan: int = 0
    num_inf: int = 0
    num_negative_inf: int = 0
    name: str = ""                      # of a parameter or buffer

    @property
    def is_finite(self) -> bool:
        return not (self.num_nan or self.num_inf)

    @property
    def is_number(self) -> bool:
        """Whether it is a number of Python rather than a tensor."""
        return self.dtype in ("int", "float")


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginOperation:
    """One operation of ATen; a backward operation has the line of the forward operation that it belongs to."""

    name: str
    node: str = ""              # of autograd, such as SqrtBackward0; empty in the forward pass
    path: str = ""
    line: int | None = None
    function: str = ""
    module: str = ""            # the class of the innermost module
    module_path: str = ""       # its name within the outermost module
    code: str = ""              # the source line
    is_backward: bool = False
    operands: tuple[Operand, ...] = ()
    results: tuple[Operand, ...] = ()

    @property
    def base_name(self) -> str:
        """aten.log_.default is log."""
        return self.name.removeprefix("aten.").partition(".")[0].rstrip("_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the first NaN or Inf of a replay came from.

    `operation` is the producer, or the first reader of an input that was not finite. `nan_operation` made NaN from its
    Inf.
    """

    state: str                              # an OriginState
    seen_in: str = ""                       # a SeenIn
    subject: str = ""                       # the name of the gradient or weight
    step: int | None = None                 # of the replay
    recorded_step: int | None = None        # of the run that is replayed
    operation: OriginOperation | None = None
    nan_operation: OriginOperation | None = None
    input: Operand | None = None
    num_operations: int = 0                 # that were watched
    num_passed_on: int = 0                  # between the producer and the tensor in which it was seen
    was_compiled: bool = False              # the program compiles; the watched steps ran eagerly nevertheless
    pid: int | None = None                  # of the recorded process
    problem: str = ""


def write_origin(folder: Path, facts: dict[str, Any]) -> None:
    """Leave the facts of an origin in a recording, in place of an earlier one."""
    replace_file(folder / ORIGIN_FILE, json.dumps(facts).encode())


def read_origin(folder: Path) -> dict[str, Any]:
    """The stored facts; empty without them. ValueError or OSError if they cannot be read."""
    try:
        facts = parsed_json(read_regular(folder / ORIGIN_FILE, MAX_BYTES))
    except FileNotFoundError:
        return {}
    if not isinstance(facts, dict):
        raise ValueError("it is not a JSON object")
    return facts
