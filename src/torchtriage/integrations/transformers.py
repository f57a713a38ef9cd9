"""Findings in a Trainer of Transformers or TRL.

    trainer = Trainer(model, args, train_dataset=data)
    trainer.add_callback(TriageCallback(trainer))       # TriageCallback() logs with `logging` only
    trainer.train()
"""

from typing import Any

from torchtriage.integrations.training_callback import PREFIX, TrainingWatch, needs

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise needs("transformers", error) from error


class TriageCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Watches gradients, weights and the logged loss; findings go to `logging` and to the trainer's log."""

    def __init__(self, trainer: Any = None) -> None:
        self._trainer = trainer
        self._watch: TrainingWatch | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        optimizer = kwargs["optimizer"]
        self._watch = TrainingWatch(self._log)
        self._watch.follow(kwargs["model"], getattr(optimizer, "optimizer", optimizer))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if self._watch is not None and not any(name.startswith(PREFIX) for name in logs or ()):
            self._watch.note(logs or {})

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._watch is not None:
            self._watch.report()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _log(self, values: dict[str, float]) -> None:
        if self._trainer is not None:
            self._trainer.log(values)
