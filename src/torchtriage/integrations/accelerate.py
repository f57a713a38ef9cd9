"""Findings in a loop with Accelerate, which has no callbacks: a block around the loop.

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    with triage(accelerator, model, optimizer):
        ...                                         # the training loop
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torchtriage.integrations.training_callback import TrainingWatch, needs

try:
    import accelerate  # noqa: F401 - only to say clearly that it is missing
except ImportError as error:
    raise needs("accelerate", error) from error


@contextmanager
def triage(accelerator: Any, model: Any, optimizer: Any) -> Iterator[None]:
    """Watch gradients and weights; findings go to `logging` and to `accelerator.log`."""
    watch = TrainingWatch(accelerator.log)
    plain = getattr(optimizer, "optimizer", optimizer)
    watch.follow(model, plain)
    hook = plain.register_step_post_hook(lambda *_: watch.report())
    try:
        yield
    finally:
        hook.remove()
        watch.close()
