"""A step of an optimizer changes the weights that have a gradient."""

import weakref
from dataclasses import dataclass
from typing import Any

import torch

from torchtriage.telemetry.contract_checks.count import Count, is_readable

INTERVAL = 4            # updates from one look to the next
LOOKS = 10              # in a row: a warm-up begins with steps that are lost in rounding
MAX_ELEMENTS = 16_384   # of a tensor that is compared
NUM_TENSORS = 3
LAST_UPDATE = 400       # no more looks after it, but for NUM_MORE updates after each EVERY
EVERY = 1024
NUM_MORE = 64


@dataclass(slots=True)
class _Look:
    optimizer: "weakref.ref[torch.optim.Optimizer]"
    parameters: list[torch.Tensor]
    before: list[torch.Tensor]


class WeightChange:
    """Compares some tensors before and after a step, bit by bit."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._look: _Look | None = None
        self._num_updates: dict[int, int] = {}
        self._counters: dict[tuple[int, int], float] = {}

    def step_begins(self, optimizer: torch.optim.Optimizer) -> None:
        number = self._num_updates[id(optimizer)] = self._num_updates.get(id(optimizer), 0) + 1
        is_due = number <= LAST_UPDATE or number % EVERY < NUM_MORE
        if not is_due or number % INTERVAL:
            return
        chosen = _chosen(optimizer)
        self._look = _Look(weakref.ref(optimizer), chosen, [p.detach().clone() for p in chosen]) if chosen else None

    def step_ended(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        look, self._look = self._look, None
        if look is None or look.optimizer() is not optimizer:
            return
        same = [p for p, before in zip(look.parameters, look.before, strict=True) if torch.equal(p.detach(), before)]
        kind = str(look.parameters[0].dtype).removeprefix("torch.")
        self._count(
            "TT435", len(same) == len(look.parameters), LOOKS, step, key=f"TT435:{id(optimizer)}", name=kind,
            value=_rate(optimizer), share=float(len(same)),
        )
        self._judge_counter(optimizer, look.parameters[0], step)

    def _judge_counter(self, optimizer: torch.optim.Optimizer, parameter: torch.Tensor, step: int) -> None:
        counter = optimizer.state.get(parameter, {}).get("step")
        if isinstance(counter, torch.Tensor):
            if not counter.is_cpu or counter.numel() != 1:
                return
            counter = counter.item()
        if not isinstance(counter, int | float):
            return
        place = id(optimizer), id(parameter)
        before, self._counters[place] = self._counters.get(place), float(counter)
        if before is not None:
            self._count(
                "TT436", counter <= before, LOOKS, step, key=f"TT436:{id(optimizer)}", name=type(optimizer).__name__,
                value=float(counter),
            )


def _chosen(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The largest tensors on the CPU that have a gradient and may be copied."""
    candidates = []
    for group in optimizer.param_groups:
        if group.get("lr") == 0.0:
            continue
        candidates += [p for p in group["params"] if _has_gradient(p) and p.numel() <= MAX_ELEMENTS]
    largest = sorted(candidates, key=torch.Tensor.numel, reverse=True)[:NUM_TENSORS]
    return [p for p in largest if p.grad is not None and bool(p.grad.any())]


def _has_gradient(p: torch.Tensor) -> bool:
    return p.grad is not None and is_readable(p) and is_readable(p.grad)


def _rate(optimizer: torch.optim.Optimizer) -> float:
    rates: list[Any] = [group.get("lr") for group in optimizer.param_groups]
    return max((float(rate) for rate in rates if isinstance(rate, int | float)), default=0.0)
