"""Report of an episode: which seeds were fixed, with what each contributed."""

from dataclasses import asdict, dataclass
from typing import Any

from torchtriage.rl.growth.lifecycle import STAGES
from torchtriage.rl.growth.program import GrowthProgram
from torchtriage.rl.growth.subsets import pairs
from torchtriage.telemetry.ppo.emitter import VectorizedEmitter


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeReport:
    """One episode of one environment at its end, in plain numbers; subsets and pairs are indexed by their numbers."""

    environment: int
    episode: int  # of this environment, from 0
    length: int
    episode_return: float
    rent: float  # total, in the unit of the reward
    stages: list[str]  # of each slot
    relevant: list[bool]  # the slots at which a seed could help, which the agent does not observe
    train_loss: float
    train_accuracy: float
    val_loss: float
    accuracies: list[float]  # validation accuracy with each subset of the slots on
    contributions: list[float]
    interactions: list[float]
    shapley: list[float]

    @property
    def accuracy(self) -> float:
        """Accuracy with all slots on."""
        return self.accuracies[-1]

    @property
    def host_accuracy(self) -> float:
        return self.accuracies[0]

    @property
    def kept_accuracy(self) -> float:
        """Accuracy with only the fixed seeds active, which is the result of the episode."""
        return self.accuracies[sum(1 << slot for slot, stage in enumerate(self.stages) if stage == "fixed")]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def emit(self, emitter: VectorizedEmitter) -> None:
        """Emit an epoch, the counterfactual matrix and a snapshot named growth_episode."""
        names = [f"slot{number}" for number in range(len(self.stages))]
        emitter.on_epoch_completed(
            self.episode,
            env_id=self.environment,
            train_loss=self.train_loss,
            train_accuracy=self.train_accuracy,
            val_loss=self.val_loss,
            val_accuracy=self.accuracy,
            slots={
                name: {"stage": stage, "contribution": contribution, "shapley": shapley}
                for name, stage, contribution, shapley in zip(
                    names, self.stages, self.contributions, self.shapley, strict=True
                )
            },
        )
        matrix = {
            tuple(bool(number >> slot & 1) for slot in range(len(names))): value
            for number, value in enumerate(self.accuracies)
        }
        emitter.on_counterfactual_matrix(names, matrix, env_id=self.environment)
        interactions = {
            f"{names[i]}+{names[j]}": value for (i, j), value in zip(pairs(len(names)), self.interactions, strict=True)
        }
        emitter.on_analytics_snapshot(
            "growth_episode",
            {
                "return": self.episode_return,
                "rent": self.rent,
                "length": self.length,
                "host_accuracy": self.host_accuracy,
                "kept_accuracy": self.kept_accuracy,
                "relevant": dict(zip(names, self.relevant, strict=True)),
                "shapley": dict(zip(names, self.shapley, strict=True)),
                "interactions": interactions,
            },
            env_id=self.environment,
        )


def reports_of(program: GrowthProgram, episode: int) -> list[EpisodeReport]:
    """Reports of all environments after the last step; only here the CPU reads the counters."""
    effects = program.counterfactual(program.counts)
    columns = {
        "episode_return": program.return_N,
        "rent": program.rent_N,
        "relevant": program.relevant_NS,
        "train_accuracy": program.counts.train_accuracies(),
        "accuracies": effects.accuracy_NC,
        "contributions": effects.contribution_NS,
        "interactions": effects.interaction_NL,
        "shapley": effects.shapley_NS,
    }
    rows = zip(
        program.stage_NS.tolist(),
        program.counts.mean_losses().tolist(),
        *(c.tolist() for c in columns.values()),
        strict=True,
    )
    return [
        EpisodeReport(
            environment=number,
            episode=episode,
            length=program.settings.episode_steps,
            stages=[STAGES[s] for s in stages],
            train_loss=train_loss,
            val_loss=val_loss,
            **dict(zip(columns, values, strict=True)),
        )
        for number, (stages, (train_loss, val_loss), *values) in enumerate(rows)
    ]
