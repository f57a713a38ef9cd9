"""The operation behind the NaN or Inf of one training step, for a call in a program or a notebook."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchtriage.capture.operations.origin.one_step import origin_of
from torchtriage.diagnosis.learning import origin as texts
from torchtriage.recording.origins.origin import Origin, OriginState

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class StepOrigin:
    """What a step showed. `print` it, or read the place and the fields of `origin`."""

    origin: Origin

    @property
    def is_found(self) -> bool:
        return self.origin.state in texts.FOUND

    @property
    def path(self) -> str:
        """The file of the operation; empty if none was found."""
        return self.origin.operation.path if self.origin.operation is not None else ""

    @property
    def line(self) -> int | None:
        return self.origin.operation.line if self.origin.operation is not None else None

    @property
    def fix(self) -> str:
        """What to change; empty if the values do not show it."""
        return texts.fix(self.origin)

    def __str__(self) -> str:
        if self.origin.state == OriginState.CLEAN:
            return f"no NaN or Inf in the loss and the gradients of this step ({self.origin.num_operations} operations)"
        text = texts.explanation(self.origin)
        return f"{text}\nfix: {self.fix}" if self.fix else text


def find_origin(step: "Callable[[], torch.Tensor]", model: "torch.nn.Module | None" = None) -> StepOrigin:
    """Name the operation that makes NaN or Inf in one step, forward or backward.

    `step` computes the loss and returns it: `find_origin(lambda: loss_fn(model(x), y), model)`. It runs eagerly, each
    operation is followed, and so is its backward pass; if both are finite, it runs once more as it is compiled. No
    gradient is added to `.grad`. Random state is restored, and so are the buffers of `model`.
    """
    return StepOrigin(origin_of(step, model))
