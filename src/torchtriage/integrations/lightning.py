"""Findings in a Trainer of Lightning.

    trainer = lightning.Trainer(callbacks=[TriageCallback()])
"""

import sys
from typing import TYPE_CHECKING, Any

from torchtriage.integrations.training_callback import TrainingWatch, needs

try:
    if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
        from pytorch_lightning import Callback
    else:
        from lightning.pytorch import Callback
except ImportError as error:
    raise needs("lightning", error) from error

if TYPE_CHECKING:
    from torchtriage.telemetry.monitor import Monitor


class TriageCallback(Callback):  # type: ignore[misc, unused-ignore]
    """Watches gradients before clipping, weights and the loss; findings go to `logging` and to the trainer's loggers.
    """

    def __init__(self) -> None:
        self._watch: TrainingWatch | None = None
        self._monitor: Monitor | None = None
        self._loss: Any = None          # of the backward passes since the last step
        self._has_stepped = False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        def log(values: dict[str, float]) -> None:
            for one in trainer.loggers:
                one.log_metrics(values, step=trainer.global_step)

        optimizers = trainer.optimizers
        self._watch = TrainingWatch(log)
        self._monitor = self._watch.watch(
            pl_module, optimizers[0] if len(optimizers) == 1 else None,
            scaler=getattr(trainer.precision_plugin, "scaler", None),
        )

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        value = loss.detach()
        self._loss = value if self._loss is None else self._loss + value

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        if self._monitor is not None:
            self._monitor.after_backward(self._loss)
            self._has_stepped, self._loss = True, None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._watch is not None and self._monitor is not None and self._has_stepped:
            self._has_stepped = False
            self._watch.note(trainer.callback_metrics if self._monitor.is_looking else {})
            self._watch.step(self._monitor)
            self._watch.report()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._close()

    def _close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._watch = self._monitor = self._loss = None
