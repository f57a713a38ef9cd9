"""The training loop."""

import torch
from torch import nn

from pulse.control.scaling import RunningScale
from pulse.learner.slots import SlotState
from pulse.signals import (
    RatioReport,
    Reporter,
    SignalConfig,
    SlopeAverages,
    SlopeCollector,
    cell_health,
    gather_slopes,
)


def train(policy: nn.Module, batches: list[torch.Tensor], reporter: Reporter, config: SignalConfig) -> float:
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    scale = RunningScale(batches[0].shape[-1])
    collector, averages = SlopeCollector(), SlopeAverages()
    slots = [SlotState(pairs=[(0, 1)]) for _ in range(4)]
    for slot in slots:
        slot.reset()
        slot.add((0, 1), torch.ones(1))
    drift = 0.0
    for step, batch in enumerate(batches):
        scale.update(batch)
        out, state = policy(scale.normalize(batch))
        ratio = out.exp()
        loss = -(ratio * out).mean()
        optimizer.zero_grad()
        loss.backward()
        started = collector.start(policy.parameters())
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
        if not config.due(step):
            continue
        slopes = collector.finish(started)
        norm_drift, _ = averages.push(float(slopes["norm"]), float(slopes["health"]))
        drift = max(drift, norm_drift)
        health = cell_health(state)
        if health is not None and not health.is_healthy():
            print(gather_slopes(policy.parameters(), full=True), RatioReport.of_batch(ratio, batch))
        reporter.after_update(policy, {"ratio_max": 1.0, "ratio_min": 1.0, "explained": 0.5, "entropy": 1.0, "kl": 0.0},
                              step / len(batches))
        config.tick()
    return drift
