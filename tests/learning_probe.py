"""Records a small training by the series names that the rules read; for examples and tests; plain and slow."""

import contextlib
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from torchtriage.capture.taps import environments
from torchtriage.capture.taps.environments import EnvironmentLog
from torchtriage.diagnosis.learning.watch import LearningWatch
from torchtriage.recording.recording import Process, Series


class Probe:
    """Series of gradients and weights at each optimizer step, and of the values given to an AnomalyDetector."""

    def __init__(self) -> None:
        from torchtriage.telemetry.contracts import Contracts
        from torchtriage.telemetry.ppo.followed_policy import FollowedPolicy
        from torchtriage.telemetry.recurrent.followed_states import FollowedStates
        from torchtriage.telemetry.sampling.parameters import modules_of_process

        self.contracts = Contracts()
        self.policy = FollowedPolicy()
        self.log = EnvironmentLog()     # of the environments of gymnasium, where the test has armed it
        self.states = FollowedStates(modules_of_process, lambda: len(self.log.steps))
        self.num_acts = 0
        self.step = 1
        self.num_skipped = 0
        self.points: dict[str, list[tuple[int, float]]] = defaultdict(list)
        self.dtypes: set[str] = set()

    def put(self, values: Mapping[str, Any], step: int | None = None) -> None:
        for name, value in values.items():
            self.points[name].append((self.step if step is None else step, float(value)))

    @property
    def process(self) -> Process:
        for observation in (*self.policy.observations(wait=True), *self.states.observations()):
            self.put(observation.values, observation.step)
        series = {}
        for name, points in self.points.items():
            series[name] = Series(name=name, steps=[s for s, _ in points], values=[v for _, v in points])
        contracts = [*self.contracts.facts().get("contracts", ()), *self.policy.contracts.facts()]
        contracts += self.states.resets.facts()
        facts = {"num_steps": self.step, "grad_dtypes": sorted(self.dtypes), "contracts": contracts}
        return Process(series=series, facts=facts)


@contextlib.contextmanager
def probed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Probe]:
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    probe = Probe()
    before: dict[int, Any] = {}
    backward, clip, scaler_step, observe, no_grad = (
        torch.Tensor.backward, torch.nn.utils.clip_grad_norm_, torch.amp.GradScaler.step, LearningWatch.observe,
        torch.no_grad.__enter__,
    )

    def parameters(optimizer: Any) -> Iterator[tuple[str, Any]]:
        held = (p for group in optimizer.param_groups for p in group["params"])
        yield from ((f"parameter{number}", p) for number, p in enumerate(held) if p.grad is not None)

    def pre_step(optimizer: Any, *_: Any) -> None:
        probe.contracts.step_begins(optimizer, probe.step)
        named = list(parameters(optimizer))
        if not named:
            return
        total = torch.stack([p.grad.double().norm() for _, p in named]).norm()
        is_clipped = any(step == probe.step for step, _ in probe.points["grad_norm"])
        probe.put({"grad_norm_after_clip" if is_clipped else "grad_norm": total})
        for name, p in named:
            before[id(p)] = p.detach().clone()
            probe.dtypes.add(str(p.grad.dtype).removeprefix("torch."))
            probe.put(_statistics(name, "grad", p.grad) | _statistics(name, "weight", p.detach()))

    def post_step(optimizer: Any, *_: Any) -> None:
        pairs = [(p.detach() - before[id(p)], before[id(p)]) for _, p in parameters(optimizer)]
        if pairs:
            change, weight = (torch.stack([pair[side].double().norm() for pair in pairs]).norm() for side in (0, 1))
            probe.put({"update_ratio/all": change / weight})
        probe.contracts.step_ended(optimizer, probe.step)
        probe.states.step_ended(probe.step)
        probe.step += 1

    def noted_backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        probe.put({"loss": self.detach().sum()})
        probe.contracts.value(float(self.detach().sum()))
        probe.contracts.backward(self)
        steps = probe.log.take()
        probe.states.rollout(steps, probe.step)
        probe.policy.rollout(probe.num_acts, steps)
        probe.num_acts = 0
        probe.policy.backward(self, probe.step)
        return backward(self, *args, **kwargs)

    def noted_clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        listed = list(parameters)
        probe.contracts.clipping(listed)
        total = clip(listed, *args, **kwargs)
        probe.put({"grad_norm": total})
        return total

    def noted_scaler(self: Any, *args: Any, **kwargs: Any) -> Any:
        at = probe.step
        result = scaler_step(self, *args, **kwargs)
        if probe.step == at:
            probe.num_skipped += 1
            probe.step += 1
        probe.put({"scaler/skipped_total": probe.num_skipped, "scaler/scale": self.get_scale()}, at)
        return result

    def noted_observe(self: LearningWatch, row: Mapping[str, float], step: int | None = None) -> Any:
        probe.step += 1
        probe.put(row)
        return observe(self, row, step)

    def noted_no_grad(self: Any) -> None:
        probe.num_acts += sys._getframe(1).f_code.co_filename.startswith("<")      # the example, not torch
        no_grad(self)

    def noted_load(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = load(self, *args, **kwargs)
        probe.contracts.loaded(self, result.missing_keys, result.unexpected_keys, probe.step)
        return result

    import gymnasium

    load = torch.nn.Module.load_state_dict
    undos = [environments.arm(probe.log, base) for base in (gymnasium.Env, gymnasium.vector.VectorEnv)]
    hooks = [register_optimizer_step_pre_hook(pre_step), register_optimizer_step_post_hook(post_step)]
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "backward", noted_backward)
        patch.setattr(torch.no_grad, "__enter__", noted_no_grad)
        patch.setattr(torch.nn.utils, "clip_grad_norm_", noted_clip)
        patch.setattr(torch.amp.GradScaler, "step", noted_scaler)
        patch.setattr(LearningWatch, "observe", noted_observe)
        patch.setattr(torch.nn.Module, "load_state_dict", noted_load)
        try:
            yield probe
        finally:
            probe.states.stop()
            for hook in hooks:
                hook.remove()
            for undo in undos:
                if undo is not None:
                    undo()


def _statistics(name: str, side: str, x: Any) -> dict[str, Any]:
    values = {
        f"{side}_norm/{name}": x.double().norm(),
        f"{side}_nan/{name}": x.isnan().sum(),
        f"{side}_inf/{name}": x.isinf().sum(),
    }
    if side == "weight":
        return values
    return values | {
        f"grad_zero_fraction/{name}": (x == 0).double().mean(),
        f"grad_small_fraction/{name}": (x.abs() < 1e-6).double().mean(),
        f"grad_large_fraction/{name}": (x.abs() > 10).double().mean(),
    }
