"""Findings in an algorithm of Stable-Baselines3.

    model.learn(100_000, callback=TriageCallback())
"""

from typing import Any

from torchtriage.integrations.training_callback import TrainingWatch, needs

try:
    from stable_baselines3.common.callbacks import BaseCallback
except ImportError as error:
    raise needs("stable-baselines3", error) from error

NETWORKS = ("actor", "critic")      # of a policy with several optimizers


class TriageCallback(BaseCallback):  # type: ignore[misc, unused-ignore]
    """Watches gradients, weights and the numbers that the algorithm logs; findings go to `logging` and to its logger.
    """

    def __init__(self) -> None:
        super().__init__()
        self._watch: TrainingWatch | None = None

    def _on_training_start(self) -> None:
        def log(values: dict[str, float]) -> None:
            for name, value in values.items():
                self.logger.record(name, value)

        self._watch = TrainingWatch(log)
        policy = self.model.policy
        networks: dict[str, Any] = {"": policy, **{name: getattr(policy, name, None) for name in NETWORKS}}
        for name, network in networks.items():
            if getattr(network, "optimizer", None) is not None:
                self._watch.follow(network, network.optimizer, name=name)

    def _on_rollout_start(self) -> None:
        if self._watch is not None:
            self._watch.note(self.logger.name_to_value)     # of the last update; they are dumped after the rollout
            self._watch.report()

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        if self._watch is None:
            return
        num_before = len(self.logger.name_to_value)
        self._watch.close()
        self._watch = None
        if len(self.logger.name_to_value) > num_before:
            self.logger.dump(self.num_timesteps)    # the algorithm writes nothing after its last rollout
