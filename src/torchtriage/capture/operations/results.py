"""The result that a process leaves: its graphs, with the first difference."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torchtriage.capture.operations.request import OperationsRequest
from torchtriage.files import replace_file

FIRST_CALLS = 3     # of each graph that are compared in any case: a wrong graph is usually wrong at once
MAX_CALLS = 30      # of each graph; a comparison costs several times the call


@dataclass(slots=True, kw_only=True)
class GraphRecord:
    """One compiled graph: how many of its calls were compared, and why the others were not."""

    compile_id: str
    num_operations: int
    num_calls: int = 0
    num_compared: int = 0
    is_equal: bool = True       # bit by bit, in every compared call
    not_compared: str = ""


@dataclass(slots=True)
class GraphResults:
    """Collected in memory, written when a difference is found and at the end."""

    request: OperationsRequest
    current_step: Callable[[], int | None]
    graphs: list[GraphRecord] = field(default_factory=list)
    difference: dict[str, Any] | None = None
    is_done: bool = False

    def wants(self, graph: GraphRecord) -> bool:
        """Whether this call is to be compared: the first ones, and those around the first bad step."""
        if self.is_done or graph.num_compared >= MAX_CALLS:
            return False
        wanted = self.request.step
        if graph.num_compared < FIRST_CALLS or wanted is None:
            return True
        return wanted - 1 <= self._step() <= wanted

    def add_difference(self, **fields: Any) -> None:
        self.difference = {**fields, "step": self._step()}
        self.write()

    def write(self) -> None:
        """Leave the result where the request says, complete or not at all."""
        path = Path(self.request.folder) / f"graphs-{os.getpid()}.json"
        text = json.dumps({"graphs": [asdict(graph) for graph in self.graphs], "difference": self.difference})
        replace_file(path, text.encode())

    def _step(self) -> int:
        """The step in progress, counted from 1."""
        return (self.current_step() or 0) + 1
