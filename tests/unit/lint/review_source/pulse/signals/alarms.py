"""Alarms on the numbers of a PPO update; the limits depend on how far the training is."""

from dataclasses import dataclass, field


@dataclass
class AlarmReport:
    raised: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        self.raised.append(name)

    @property
    def any_raised(self) -> bool:
        return bool(self.raised)


class AlarmPanel:
    """Compares the scalars of one update with limits."""

    def __init__(self, max_ratio: float = 5.0, min_ratio: float = 0.1, min_entropy: float = 0.1) -> None:
        self.max_ratio = max_ratio
        self.min_ratio = min_ratio
        self.min_entropy = min_entropy

    def check_ratios(self, high: float, low: float) -> AlarmReport:
        report = AlarmReport()
        if high > self.max_ratio:
            report.add("ratio explosion")
        if low < self.min_ratio:
            report.add("ratio collapse")
        return report

    def check_value_fit(self, explained: float, progress: float) -> AlarmReport:
        report = AlarmReport()
        limit = -0.5 if progress < 0.1 else 0.0 if progress < 0.5 else 0.1
        if explained < limit:
            report.add("value collapse")
        return report

    def check_entropy(self, entropy: float) -> AlarmReport:
        report = AlarmReport()
        if entropy < self.min_entropy:
            report.add("entropy collapse")
        return report

    def check_divergence(self, kl: float, limit: float = 0.05) -> AlarmReport:
        report = AlarmReport()
        if kl > limit:
            report.add("kl spike")
        return report

    def check_drift(self, norm_drift: float, health_drift: float, limit: float = 0.5) -> AlarmReport:
        """Gradients that move away from their running averages."""
        report = AlarmReport()
        if norm_drift > limit:
            report.add("gradient norm drift")
        if health_drift > limit:
            report.add("gradient health drift")
        return report

    def check_everything(
        self, high: float, low: float, explained: float, entropy: float, kl: float, progress: float,
    ) -> AlarmReport:
        merged = AlarmReport()
        for part in (
            self.check_ratios(high, low),
            self.check_value_fit(explained, progress),
            self.check_entropy(entropy),
            self.check_divergence(kl),
        ):
            merged.raised.extend(part.raised)
        return merged
