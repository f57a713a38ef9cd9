"""Calls of recurrent modules: the size of the state that each took and returned.   B rows of a batch.

`forward` of a class is replaced only in short windows, and never once the program has called torch.compile.
"""

import functools
import types
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from torchtriage.errors import pass_on_signals
from torchtriage.telemetry.sampling.sampler import is_busy, is_profiled

OF_TORCH = (torch.nn.RNNBase, torch.nn.RNNCellBase)
MAX_CALLS = 4096        # of a window
MAX_MODULES = 64        # written by the user, of which it is not known whether they are recurrent

State = tuple[Any, Any, Any]    # (the hidden state passed in, the new one, the new cell state)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StateCall:
    """One call. The sizes are norms per row; None where there was no such state."""

    module: int                 # its id
    position: int               # steps of environments since the last backward pass
    given_B: Any                # of the hidden state that was passed in
    hidden_B: Any               # of the new hidden state
    cell_B: Any                 # of the new cell state
    num_units: int              # numbers per row of the hidden state
    is_one_step: bool           # not a sequence, and nothing but an input and a state was passed in


class StateCalls:
    """Notes the calls of recurrent modules while it is open."""

    def __init__(self, position: Callable[[], int]) -> None:
        self._position = position
        self._modules: dict[int, weakref.ref[torch.nn.Module]] = {}
        self._unproven: set[int] = set()        # written by the user, and not yet seen to return a state
        self._replaced: list[tuple[Any, Any]] = []
        self._owners: dict[int, Any] = {}       # the class that defines the forward of a module
        self._calls: list[StateCall] = []
        self._latest: dict[int, State] = {}     # of the calls since then; its sizes are only measured when taken
        self.wants_rollouts = True              # every call between steps of environments

    @property
    def has_modules(self) -> bool:
        return any(ref() is not None for ref in self._modules.values())

    def follow(self, modules: Iterable[torch.nn.Module]) -> None:
        """Choose the modules that are recurrent, or may be: their forward may return (h, c)."""
        for module in modules:
            is_own = not isinstance(module, OF_TORCH)
            if is_own and not (len(self._unproven) < MAX_MODULES and _may_be_cell(module)):
                continue
            self._modules[id(module)] = weakref.ref(module)
            if is_own:
                self._unproven.add(id(module))

    def name(self, key: int) -> str:
        module = self._modules[key]() if key in self._modules else None
        return type(module).__name__ if module is not None else "recurrent module"

    def open(self) -> None:
        if self._replaced:
            return
        for ref in self._modules.values():
            module = ref()
            if module is None or "forward" in module.__dict__:
                continue
            owner: Any = next(base for base in type(module).__mro__ if "forward" in base.__dict__)
            original = owner.__dict__["forward"]
            self._owners[id(module)] = owner
            if isinstance(original, types.FunctionType) and not hasattr(original, "torchtriage_original"):
                owner.forward = _noting(original, functools.partial(self._note, owner))
                self._replaced.append((owner, original))

    def close(self) -> None:
        for owner, original in self._replaced:
            if getattr(owner.__dict__.get("forward"), "torchtriage_original", None) is original:
                owner.forward = original
        self._replaced = []
        self._owners = {}

    def take(self) -> list[StateCall]:
        """The calls since they were last taken."""
        calls, self._calls = self._calls, []
        latest, self._latest = self._latest, {}
        calls += [_call(key, 0, state, is_one_step=False) for key, state in latest.items()]
        return calls

    def forget_unproven(self) -> None:
        """Leave the modules of the user that were called, or may have been, and returned no state."""
        for key in self._unproven:
            del self._modules[key]
        self._unproven.clear()

    def _note(
        self, owner: Any, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any,
    ) -> None:
        key = id(module)
        is_outermost = self._owners.get(key) is owner       # not super().forward()
        if key not in self._modules or not is_outermost or len(self._calls) >= MAX_CALLS or is_busy() or is_profiled():
            return
        if torch.compiler.is_compiling() or torch.jit.is_tracing():
            return
        is_own = not isinstance(module, OF_TORCH)
        state = _own_state(args, output) if is_own else _state(module, args, kwargs, output)
        if state is None or not isinstance(state[1], torch.Tensor) or not state[1].numel():
            return
        self._unproven.discard(key)
        position = self._position() if self.wants_rollouts else 0
        if position:
            self._calls.append(_call(key, position, state, is_one_step=_is_one_step(module, args, kwargs)))
        else:
            self._latest[key] = state


def _call(key: int, position: int, state: State, is_one_step: bool) -> StateCall:
    given, hidden, cell = state
    hidden_B = _row_norms(hidden)
    return StateCall(
        module=key, position=position, given_B=_row_norms(given), hidden_B=hidden_B, cell_B=_row_norms(cell),
        num_units=hidden.numel() // hidden_B.numel(), is_one_step=is_one_step,
    )


def _may_be_cell(module: torch.nn.Module) -> bool:
    """Whether a module is written by the user, has weights, and contains no recurrent module of torch."""
    if type(module).__module__.partition(".")[0] == "torch":
        return False
    has_weights = next(module.parameters(), None) is not None
    return has_weights and not any(isinstance(one, OF_TORCH) for one in module.modules())


def _noting(original: types.FunctionType, note: Callable[..., None]) -> Callable[..., Any]:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = original(self, *args, **kwargs)
        try:
            note(self, args, kwargs, output)
        except Exception as error:      # a missed observation is better than a failed step
            pass_on_signals(error)
        return output

    # TorchScript finds the source through __wrapped__, and its names in the globals of the function.
    noting = types.FunctionType(
        forward.__code__, original.__globals__, original.__name__, closure=forward.__closure__)
    functools.update_wrapper(noting, original)
    noting.torchtriage_original = original  # type: ignore[attr-defined]
    return noting


def _state(module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> State:
    """The states of a recurrent module of torch."""
    given = args[1] if len(args) > 1 else kwargs.get("hx")
    new = output[1] if isinstance(module, torch.nn.RNNBase) else output
    has_cell = isinstance(module, torch.nn.LSTM | torch.nn.LSTMCell)
    return (given[0] if given is not None else None, *new) if has_cell else (given, new, None)


def _own_state(args: Any, output: Any) -> State | None:
    """The states of a module that takes and returns h and c, of equal shapes; None for any other call."""
    if not isinstance(output, tuple) or len(output) != 2:
        return None
    if isinstance(output[1], tuple):        # (output, (h, c))
        output = output[1]
    given = [one for arg in args for one in (arg if isinstance(arg, tuple | list) else (arg,))][1:3]
    states = [*output, *given]
    if len(states) != 4 or not all(isinstance(one, torch.Tensor) and one.is_floating_point() for one in states):
        return None
    return (given[0], *output) if len({one.shape for one in states}) == 1 else None


def _is_one_step(module: torch.nn.Module, args: Any, kwargs: Any) -> bool:
    if not isinstance(module, OF_TORCH):        # it may reset the state by itself if something else is passed in
        num_tensors = sum(len(arg) if isinstance(arg, tuple | list) else 1 for arg in args)
        return num_tensors == 3 and not kwargs
    if isinstance(module, torch.nn.RNNCellBase):
        return True
    inputs = args[0] if args else kwargs.get("input")
    return isinstance(inputs, torch.Tensor) and inputs.dim() == 3 and inputs.shape[int(module.batch_first)] == 1


def _row_norms(state: Any) -> Any:
    """Of [layers, batch, hidden], [batch, hidden] or [batch, channels, height, width]."""
    if not isinstance(state, torch.Tensor):
        return None
    state = state.detach()
    if state.dim() < 2:
        return torch.linalg.vector_norm(state, dtype=torch.float32).reshape(1)
    rows = state.movedim(1 if state.dim() == 3 else 0, 0).flatten(1)
    return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float32)
