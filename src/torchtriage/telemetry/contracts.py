"""What must hold in any training, tested while it runs."""

import gc
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from torchtriage.recording.facts import BrokenContract, to_dict
from torchtriage.telemetry.contract_checks.batch_norm import BatchNormCounts
from torchtriage.telemetry.contract_checks.count import is_readable
from torchtriage.telemetry.contract_checks.loading import LoadedNames
from torchtriage.telemetry.contract_checks.loss_graph import (
    broadcast_size,
    leaves,
    not_log_probabilities,
    operations_behind,
    probabilities_as_logits,
    sign_of_error,
)
from torchtriage.telemetry.contract_checks.lost_gradients import LostGradients
from torchtriage.telemetry.contract_checks.model_inputs import ModelInputs, received
from torchtriage.telemetry.contract_checks.prediction_gain import START_FACTOR, PredictionGain
from torchtriage.telemetry.contract_checks.rival_losses import RivalLosses
from torchtriage.telemetry.contract_checks.step_order import StepOrder
from torchtriage.telemetry.contract_checks.target_networks import (
    FIRST_LOOK,
    TargetNetworks,
)
from torchtriage.telemetry.contract_checks.target_networks import LOOK_INTERVAL as TARGET_INTERVAL
from torchtriage.telemetry.contract_checks.target_networks import PATIENCE as TARGET_PATIENCE
from torchtriage.telemetry.contract_checks.unused_units import CutOffLayers, EqualUnits, Latents, frozen_at_random
from torchtriage.telemetry.contract_checks.weight_change import WeightChange
from torchtriage.telemetry.sampling.parameters import from_modules, modules_of_process

# The graph behind the loss is walked in these updates, and in two of every GRAPH_INTERVAL later ones.
GRAPH_UPDATES = frozenset({1, 2, 3, 8, 9, 10})
GRAPH_INTERVAL = 512
JUDGED_AFTER = frozenset({4, 11})       # a verdict needs two of these in agreement: some branches are used in turns
MAX_SCANS = 4           # searches through all objects of the process, about 50 ms each
MAX_NAMED = 20
MAX_PHASES = 8          # of a program, each with new parameters, that are looked at as closely as the first
PATIENCE = 3            # steps with gradients of the step before
LOOK_INTERVAL = 4       # steps from one look at the mode and the settings to the next
LOOKS = 5               # looks in a row at a model in eval mode, or at a weight decay
LOOKS_AT_ZERO = 10      # looks in a row at a learning rate of 0: a warm-up starts there
VANISHED_RATE = 1e-5    # of the largest rate so far; a cosine is below that in the last 0.2 % of its steps
SHARE_VANISHED = 0.05   # of all looks so far, at the least
# Steps at the start, and after each GRAPH_INTERVAL, whose gradients are looked for in the next one.
NUM_CLEARED = 12
MANY = 0.5              # share of unused parameters from which the loss is cut off, not a layer left unused
MAX_NEW = 5             # optimizers of the same parameters, each with one or two steps
MAX_SHRINKAGE = 0.01    # of the weights in one step, by weight decay alone; usual are 1e-6 to 1e-4
# The weight decay of these optimizers shrinks a weight by lr times itself. Up to these values it is usual, and a large
# product comes from the learning rate, as it does from a rate above these.
USUAL_DECAYS = {"AdamW": 0.1, "SGD": 1e-3}
USUAL_RATES = {"AdamW": 0.1, "SGD": 1.0}
MIN_IDLE = 100          # updates of other optimizers in which one that holds trained parameters makes no step
NUM_COMPARED = 64       # elements of a parameter that should change
MIN_ALONE = 128         # backward passes before which an optimizer makes its first step
DROPOUT = (torch.nn.Dropout, torch.nn.Dropout1d, torch.nn.Dropout2d, torch.nn.Dropout3d, torch.nn.AlphaDropout)
BATCH_NORM = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d, torch.nn.SyncBatchNorm)


@dataclass(slots=True)
class _End:
    """The gradient of one parameter at the end of a step, which the next backward pass should not find again."""

    parameter: "weakref.ref[torch.Tensor]"
    gradient: "weakref.ref[torch.Tensor]"
    num_backwards: int = 0
    is_cleared: bool = False


@dataclass(slots=True)
class _Owner:
    """The optimizer that last made a step with a parameter; its id may be that of another one by now."""

    parameter: "weakref.ref[torch.Tensor]"
    optimizer: "weakref.ref[torch.optim.Optimizer]"
    num_steps: int = 1


class Contracts:
    """Called by the taps in every step; most calls only count. A broken contract is kept once, with its first step."""

    def __init__(self) -> None:
        self._broken: dict[str, BrokenContract] = {}
        self._num_updates = 0
        self._num_backwards = 0
        self._num_scans = 0
        self._phase_start = 0       # updates before the current phase
        self._num_phases = 0
        self._reached: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}     # trained leaves of a loss, with depth
        self._used: dict[int, weakref.ref[torch.Tensor]] = {}       # those of all phases
        self._optimizers: dict[int, weakref.ref[torch.optim.Optimizer]] = {}
        self._suspects: dict[str, frozenset[int]] = {}      # of the last judgement, by code
        self._ends: dict[int, _End] = {}
        self._streaks: dict[str, int] = {}
        self._last_of: dict[int, _Owner] = {}
        self._num_new = 0
        self._roots: list[weakref.ref[torch.nn.Module]] | None = None
        self._num_settings = 0
        self._since_look: set[int] = set()      # optimizers that made a step
        self._largest_rates: dict[int, float] = {}
        self._order = StepOrder(self._count)
        self._batch_norm = BatchNormCounts(self._count)
        self._weight_change = WeightChange(self._count)
        self._targets = TargetNetworks()
        self._lost_gradients = LostGradients(self._count)
        self._gain = PredictionGain()
        self._inputs = ModelInputs()
        self._latents = Latents()
        self._units = EqualUnits()
        self._cut_off = CutOffLayers()
        self._has_compiled = False
        self._rivals = RivalLosses()
        self._loaded = LoadedNames()
        self._values: dict[int, torch.Tensor] = {}      # of trained leaves, when it was first asked whether they change
        self._idle: dict[int, weakref.ref[torch.Tensor]] = {}     # parameters of optimizers that have made no step

    @property
    def follows_order(self) -> bool:
        """Whether calls of clipping and GradScaler are wanted."""
        return self._order.is_due

    @property
    def _is_graph_due(self) -> bool:
        return self._progress in GRAPH_UPDATES or self._progress % GRAPH_INTERVAL < 2

    @property
    def _progress(self) -> int:
        """Updates of this phase; backward passes in a program that updates its weights without an optimizer of torch.

        A new optimizer begins a phase, which is looked at as closely as the start of the program.
        """
        if not self._num_updates:
            return self._num_backwards
        return self._num_updates - self._phase_start

    def facts(self) -> dict[str, Any]:
        broken = [
            *self._broken.values(), *self._loaded.broken, *self._inputs.broken, *self._latents.broken,
            *self._rivals.broken,
        ]
        return {"contracts": [to_dict(one) for one in broken]} if broken else {}

    # Called by the taps

    def loaded(self, module: torch.nn.Module, missing: Sequence[str], unexpected: Sequence[str], step: int) -> None:
        """A state dict was loaded, without tensors of these names."""
        self._loaded.loaded(module, missing, unexpected, step)

    def backward(self, loss: torch.Tensor) -> None:
        self._num_backwards += 1
        self._order.backward()
        self._batch_norm.num_backwards += 1
        for end in self._ends.values():
            end.num_backwards += 1
            end.is_cleared = end.is_cleared or _is_cleared(end)
        is_due, progress = self._is_graph_due, self._progress
        if is_due or self._cut_off.is_open or self._inputs.is_due(progress) or self._latents.is_due(progress):
            operations = list(operations_behind(loss.grad_fn))
            nodes = [node for _, node in operations]
            self._inputs.look(loss, nodes, self._num_updates + 1)
            if self._inputs.may_read():
                self._latents.look(nodes, progress, self._num_updates + 1)
                if self._cut_off.is_open:
                    self._cut_off.backward(received(nodes))
        if is_due:
            trained = []
            for distance, leaf in leaves(operations):
                if isinstance(leaf, torch.nn.Parameter):
                    trained.append(leaf)
                    self._reached.setdefault(id(leaf), (weakref.ref(leaf), distance))
                    self._used[id(leaf)] = self._reached[id(leaf)][0]
            self._units.begin(trained)
            if self._num_updates:
                equal = self._units.equal()
                self._count(
                    "TT454", bool(equal), PATIENCE + 1, self._num_updates + 1, value=float(sum(map(len, equal))),
                    share=float(len(equal)),
                )
            self._lost_gradients.backward(trained)
            self._judge_loss(loss)
        self._judge_gain(loss)
        self._judge_first_step()

    def compile_called(self) -> None:
        """What the program compiles must not contain a hook."""
        self._has_compiled = True
        self._cut_off.stop()

    def value(self, loss: float) -> None:
        """The loss of a backward pass, where it can be read without waiting."""
        self._rivals.add(loss)

    def clipping(self, parameters: Sequence[torch.Tensor]) -> None:
        self._order.clipping(parameters)

    def unscaling(self, optimizer: torch.optim.Optimizer, scale: float, step: int) -> None:
        self._order.unscaling(optimizer, scale, step)

    def step_begins(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        self._note(optimizer, step)
        self._judge_clearing(optimizer, step)
        if self._progress in JUDGED_AFTER or self._progress % GRAPH_INTERVAL == 2:
            self._judge_graph(step)
        self._judge_idle(step)
        self._order.step_begins(optimizer, step, self._reached.__contains__)
        self._lost_gradients.step_begins(step)
        self._weight_change.step_begins(optimizer)

    def step_ended(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        self._num_updates += 1
        self._rivals.step_ended(id(optimizer), step)
        self._judge_clearing(optimizer, step)       # the backward passes of a closure are inside the step
        if self._progress % GRAPH_INTERVAL <= NUM_CLEARED:
            self._remember_gradient(optimizer)
        self._since_look.add(id(optimizer))
        if self._num_updates % LOOK_INTERVAL == 0:
            for key in self._since_look:        # of two that take turns a single look would always be at the same one
                stepped = self._optimizers[key]() if key in self._optimizers else None
                if stepped is not None:
                    self._judge_settings(stepped, step)
            self._since_look.clear()
            self._judge_mode(step)
        self._order.step_ended()
        self._weight_change.step_ended(optimizer, step)
        self._batch_norm.step_ended(step)
        self._judge_cut_off()
        self._judge_targets(step)

    # TT431, TT432: the operations next to the loss

    def _judge_loss(self, loss: torch.Tensor) -> None:
        step = self._num_updates + 1
        activation = probabilities_as_logits(loss)
        if activation:
            self._count("TT431", True, 2, step, name=activation)
        given = not_log_probabilities(loss)
        if given:
            self._count("TT431", True, 2, step, key="TT431:log", name=given)
        self._judge_sign(sign_of_error(loss), step)
        size = broadcast_size(loss)
        if size:
            self._count("TT432", True, 2, step, value=float(size))

    # TT446: a loss is minimized

    def _judge_sign(self, sign: int, step: int) -> None:
        """Networks with optimizers of their own may work against each other."""
        optimizers = [optimizer for ref in self._optimizers.values() if (optimizer := ref()) is not None]
        if len(optimizers) == 1 and sign:
            maximizes = bool(optimizers[0].param_groups[0].get("maximize", False))
            self._count(
                "TT446", (sign < 0) != maximizes, PATIENCE, step, name="maximize" if maximizes else "minus",
            )

    # TT440, TT442: predictions

    def _judge_gain(self, loss: torch.Tensor) -> None:
        if self._num_backwards > 1 and not self._gain.is_due(self._progress):
            return
        self._gain.look(loss)
        if self._gain.first is not None and self._num_backwards == 1:
            model, equal = self._gain.first
            if model > START_FACTOR * equal:
                names = ("squares",) if self._gain.is_distance else ()
                self._break(BrokenContract(code="TT442", step=1, value=model, share=equal, names=names))
        self._judge_classes()
        verdict = self._gain.verdict(self._progress) if len(self._optimizers) <= 1 else None
        if verdict is None or (verdict.is_distance and self._targets.has_any):
            self._broken.pop("TT440", None)
        elif "TT440" not in self._broken:
            self._break(BrokenContract(
                code="TT440", step=self._progress, count=verdict.num_looks, value=verdict.model, share=verdict.guess,
                names=("mean" if verdict.is_distance else "frequencies",), total=int(verdict.was_better),
            ))

    # TT450: a batch has targets of several classes

    def _judge_classes(self) -> None:
        found = self._gain.one_class
        if found is None:
            self._broken.pop("TT450", None)
        elif "TT450" not in self._broken:
            self._break(BrokenContract(
                code="TT450", step=self._progress, count=found.num_looks, total=found.num_seen,
                value=float(found.num_targets), share=float(found.first),
            ))

    # TT444: every optimizer that holds trained parameters makes steps

    def _judge_idle(self, step: int) -> None:
        if not self._idle or self._num_updates % LOOK_INTERVAL:
            return
        held = self._held(self._optimizers)
        idle = {key for key, ref in self._idle.items() if ref() is not None and key not in held}
        if not idle:
            self._idle.clear()
            self._broken.pop("TT444", None)
        elif self._num_updates >= MIN_IDLE and "TT444" not in self._broken:
            names = from_modules(modules_of_process(), idle)
            self._break(BrokenContract(
                code="TT444", step=step, count=len(idle), total=self._num_updates,
                names=tuple(names.get(key, "parameter") for key in self._idle if key in idle)[:MAX_NAMED],
            ))

    def _judge_first_step(self) -> None:
        """No optimizer at all has made a step, and the program does not change what the loss trains either."""
        if self._optimizers or self._num_backwards not in (MIN_ALONE // 2, MIN_ALONE):
            return
        trained = {key: leaf for key, (ref, _) in self._reached.items() if (leaf := ref()) is not None}
        still = [key for key, leaf in trained.items() if self._is_same_as_before(key, leaf)]
        if not still or len(still) < len(trained):
            return
        held = self._held({id(one): weakref.ref(one) for one in _optimizers_of_process()})
        if held.keys() >= trained.keys():
            names = from_modules(modules_of_process(), set(still))
            self._break(BrokenContract(
                code="TT444", step=MIN_ALONE, count=len(still), value=float(MIN_ALONE),
                names=tuple(names.get(key, "parameter") for key in still)[:MAX_NAMED],
            ))

    def _is_same_as_before(self, key: int, leaf: torch.Tensor) -> bool:
        """Whether its first elements have not changed since the first call; the first call says no."""
        if not is_readable(leaf):
            return False
        now = leaf.detach().flatten()[:NUM_COMPARED]
        before = self._values.get(key)
        if before is None:
            self._values[key] = now.clone()
        return before is not None and torch.equal(before, now)

    # TT430: target networks move

    def _judge_targets(self, step: int) -> None:
        if self._num_updates == FIRST_LOOK:
            self._targets.find(modules_of_process(), set(self._held(self._optimizers)))
        elif self._num_updates > FIRST_LOOK and self._num_updates % TARGET_INTERVAL == 0 and self._targets.still:
            self._targets.look()
            still = self._targets.still
            if not still:
                self._broken.pop("TT430", None)
            elif self._num_updates >= TARGET_PATIENCE:
                self._broken["TT430"] = BrokenContract(
                    code="TT430", step=self._broken.get("TT430", BrokenContract(code="", step=step)).step,
                    count=self._num_updates - FIRST_LOOK, names=tuple(still),
                )

    # TT420, TT421: the loss and the optimizers have the same parameters

    def _judge_graph(self, step: int) -> None:
        held = self._held(self._optimizers)
        # The graph also leads to inputs of compiled code that it detaches, which get no gradient.
        reached = {key: leaf for key, (ref, _) in self._reached.items()
                   if (leaf := ref()) is not None and (leaf.grad is not None or key in held)}
        missing = frozenset(reached.keys() - held.keys())
        if missing and self._num_scans < MAX_SCANS:     # an optimizer may not have made a step yet
            self._num_scans += 1
            held = self._held({id(one): weakref.ref(one) for one in _optimizers_of_process()})
            self._idle = {key: self._reached[key][0] for key in missing & held.keys()}
            missing = frozenset(reached.keys() - held.keys())
        unused = frozenset(key for key, p in held.items() if p.requires_grad and p.grad is None and key not in reached)
        if not missing:     # the networks of a program that trains them in turns have phases of their own
            unused = frozenset(key for key in unused if key not in self._used or self._used[key]() is not held[key])
        for key in missing:
            self._is_same_as_before(key, reached[key])
        agreed = {"TT420": missing & self._suspects.get("TT420", frozenset()),
                  "TT421": unused & self._suspects.get("TT421", frozenset())}
        self._suspects = {"TT420": missing, "TT421": unused}
        # An optimizer that holds parameters without use beside those that are missing has those of an old model.
        is_old = bool(agreed["TT420"]) and bool(agreed["TT421"])
        is_replaced = bool(agreed["TT420"]) or self._has_little_use(agreed["TT421"])
        for code, tensors, total in (("TT420", reached, len(reached)), ("TT421", held, len(held))):
            names = from_modules(modules_of_process(), set(agreed[code])) if agreed[code] else {}
            if code == "TT420":     # a parameter outside of modules may be changed by the program itself
                names |= {
                    key: f"the parameter of shape {list(reached[key].shape)} outside of modules"
                    for key in agreed[code] - names.keys() if self._is_same_as_before(key, reached[key])
                }
            if code == "TT421":     # the module may be gone, while its parameters are still held
                names = {key: names.get(key, self._place(key)) for key in agreed[code]}
            if names:
                is_part = not is_replaced
                if code == "TT420":
                    is_part = not is_old and self._is_backbone(agreed[code], held)
                self._break(BrokenContract(
                    code=code, step=step, count=len(names), total=total, is_deliberate=is_part,
                    names=tuple(names[key] for key in tensors if key in names)[:MAX_NAMED],
                ))
                if code == "TT421" and is_part and not self._has_compiled and not self._cut_off.is_open:
                    self._cut_off.begin(modules_of_process(), agreed[code])
        self._judge_frozen(held, step)

    # TT421, TT455: layers that were to learn

    def _judge_cut_off(self) -> None:
        num_called = self._cut_off.step_ended() if self._cut_off.is_open else None
        if num_called and "TT421" in self._broken:
            self._broken["TT421"] = replace(self._broken["TT421"], value=float(num_called))

    def _judge_frozen(self, held: dict[int, torch.Tensor], step: int) -> None:
        frozen = {key for key, p in held.items() if not p.requires_grad}
        if not frozen or self._num_phases or "TT455" in self._broken:
            return
        modules = modules_of_process()
        names = from_modules(modules, frozen_at_random(modules, held))
        if names:
            self._break(BrokenContract(
                code="TT455", step=step, count=len(names), total=len(held), names=tuple(names.values())[:MAX_NAMED],
            ))

    def _has_little_use(self, unused: frozenset[int]) -> bool:
        """Whether an optimizer holds many of these parameters, for what it holds."""
        for ref in self._optimizers.values():
            held = self._held({0: ref})
            if held and len(unused & held.keys()) >= MANY * len(held):
                return True
        return False

    def _place(self, key: int) -> str:
        """The place of a parameter in its optimizer, such as `group0.3`."""
        for ref in self._optimizers.values():
            optimizer = ref()
            for number, group in enumerate(optimizer.param_groups if optimizer is not None else ()):
                for index, p in enumerate(group["params"]):
                    if id(p) == key:
                        return f"group{number}.{index}"
        return "parameter"

    def _held(self, optimizers: dict[int, "weakref.ref[torch.optim.Optimizer]"]) -> dict[int, torch.Tensor]:
        held: dict[int, torch.Tensor] = {}
        for ref in optimizers.values():
            optimizer = ref()
            for group in optimizer.param_groups if optimizer is not None else ():
                held.update((id(p), p) for p in group["params"])
        return held

    def _is_backbone(self, missing: Iterable[int], held: dict[int, torch.Tensor]) -> bool:
        """Whether every trained tensor is nearer to the loss than every missing one, as with a backbone that is not to
        be trained.
        """
        trained = [depth for key, (_, depth) in self._reached.items() if key in held]
        return bool(trained) and max(trained) < min(self._reached[key][1] for key in missing)

    # TT422: gradients are cleared between steps

    def _judge_clearing(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        end = self._ends.get(id(optimizer))
        if end is not None and end.num_backwards:
            del self._ends[id(optimizer)]
            self._count("TT422", not end.is_cleared, PATIENCE, step, key=f"TT422:{id(optimizer)}")

    def _remember_gradient(self, optimizer: torch.optim.Optimizer) -> None:
        parameters = [
            p for p in optimizer.param_groups[0]["params"][:8] if p.grad is not None and is_readable(p.grad)
        ]
        if parameters and "TT422" not in self._broken:
            smallest = min(parameters, key=torch.Tensor.numel)
            if smallest.grad.any():
                self._ends[id(optimizer)] = _End(weakref.ref(smallest), weakref.ref(smallest.grad))

    # TT423: an optimizer lives as long as its training

    def _note(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        parameters = optimizer.param_groups[0]["params"]
        if not parameters:
            return
        first = parameters[0]
        last = self._last_of.get(id(first))
        if last is not None and last.parameter() is first:
            if last.optimizer() is optimizer:
                last.num_steps += 1
                return
            known = self._optimizers.get(id(optimizer))
            is_new = known is None or known() is not optimizer      # two optimizers may take turns
            if last.num_steps <= 2 and is_new:
                self._num_new += 1
                if self._num_new >= MAX_NEW:
                    self._break(BrokenContract(code="TT423", step=step, count=self._num_new))
        if last is None and self._num_updates and self._num_phases < MAX_PHASES:
            self._num_phases += 1
            self._phase_start = self._num_updates
            self._order.begin_phase()
            self._reached, self._suspects = {}, {}      # the optimizer of the phase before may be gone
        self._optimizers[id(optimizer)] = weakref.ref(optimizer)
        self._last_of[id(first)] = _Owner(weakref.ref(first), weakref.ref(optimizer))

    # TT424: a model with dropout or BatchNorm trains in training mode

    def _judge_mode(self, step: int) -> None:
        if "TT424" in self._broken:
            return
        if self._roots is None:
            roots = _roots(self._held(self._optimizers).keys())
            self._roots = [weakref.ref(root) for root in roots]
            self._batch_norm.follow(roots)
        self._batch_norm.judge_mode(step)
        for number, ref in enumerate(self._roots):
            root = ref()
            if root is not None:
                self._count("TT424", not root.training, LOOKS, step, key=f"TT424:{number}", name=type(root).__name__)

    # TT425, TT426: the settings of the optimizer

    def _judge_settings(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        groups = [group for group in optimizer.param_groups if group["params"]]
        rates = [group.get("lr") for group in groups]
        if not all(isinstance(rate, int | float) for rate in rates):
            return
        kind = type(optimizer).__name__
        self._judge_rates(optimizer, [float(rate or 0.0) for rate in rates], step)
        decays = [float(group.get("weight_decay") or 0.0) for group in groups]
        if kind in USUAL_DECAYS:
            pairs = [(float(rate or 0.0), decay) for rate, decay in zip(rates, decays, strict=True)]
            shrinkages = [
                rate * decay for rate, decay in pairs if decay > USUAL_DECAYS[kind] and rate <= USUAL_RATES[kind]
            ]
            most = max(shrinkages, default=0.0)
            self._count("TT426", most >= MAX_SHRINKAGE, LOOKS, step, name=kind, value=max(decays), share=most)

    def _judge_rates(self, optimizer: torch.optim.Optimizer, rates: Sequence[float], step: int) -> None:
        """The largest rate counts: a group with a rate of 0 beside others may be frozen on purpose."""
        self._num_settings += 1
        now = max(rates, default=0.0)
        largest = self._largest_rates[id(optimizer)] = max(now, self._largest_rates.get(id(optimizer), 0.0))
        patience = max(LOOKS_AT_ZERO, int(SHARE_VANISHED * self._num_settings))
        is_vanished = bool(rates) and now <= VANISHED_RATE * largest
        key, kind = f"TT425:{id(optimizer)}", type(optimizer).__name__
        self._count("TT425", is_vanished, patience, step, key=key, name=kind, value=now, share=largest)

    def _count(
        self, code: str, is_broken: bool, patience: int, step: int, *, key: str = "", name: str = "",
        value: float | None = None, share: float | None = None,
    ) -> None:
        key = key or code
        streak = self._streaks[key] = self._streaks.get(key, 0) + 1 if is_broken else 0
        if streak >= patience:
            self._break(BrokenContract(
                code=code, step=step, count=streak, names=(name,) if name else (), value=value, share=share,
            ))

    def _break(self, contract: BrokenContract) -> None:
        self._broken.setdefault(contract.code, contract)


def _is_cleared(end: _End) -> bool:
    parameter, gradient = end.parameter(), end.gradient()
    if parameter is None or gradient is None or parameter.grad is not gradient:
        return True
    return not bool(gradient.any())


def _optimizers_of_process() -> list[torch.optim.Optimizer]:
    return [one for one in gc.get_objects() if issubclass(type(one), torch.optim.Optimizer)]


def _roots(parameters: Iterable[int]) -> Sequence[torch.nn.Module]:
    """The outermost modules with any of these parameters in which the mode makes a difference."""
    wanted = set(parameters)
    modules = [module for module in modules_of_process() if any(id(p) in wanted for p in module.parameters())]
    inner = {id(child) for module in modules for child in module.modules() if child is not module}
    return [root for root in modules if id(root) not in inner and _has_modes(root)]


def _has_modes(root: torch.nn.Module) -> bool:
    for module in root.modules():
        if isinstance(module, DROPOUT) and module.p > 0.0:
            return True
        if isinstance(module, torch.nn.RNNBase | torch.nn.MultiheadAttention) and module.dropout > 0.0:
            return True
        if isinstance(module, BATCH_NORM) and module.track_running_stats:
            return True
        if not type(module).__module__.startswith("torch.") and _reads_mode(module):
            return True
    return False


def _reads_mode(module: torch.nn.Module) -> bool:
    """Whether its forward() uses self.training, as for torch.nn.functional.dropout."""
    forward = getattr(type(module), "forward", None)
    code = getattr(getattr(forward, "torchtriage_original", forward), "__code__", None)
    return code is not None and "training" in code.co_names
