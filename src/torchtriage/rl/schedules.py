"""How a setting moves over a training."""


def scheduled(start: float, schedule: str, progress: float) -> float:
    """A setting at a share of the training: linear to 0, or constant."""
    return start * (1.0 - min(1.0, progress)) if schedule == "linear" else start
