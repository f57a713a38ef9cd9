"""The environments tap: what gymnasium's environments return to the program, one entry per step."""

import functools
import threading
from collections.abc import Callable
from typing import Any

from torchtriage.capture.torch_private.base import Undo, module, never_compile
from torchtriage.errors import pass_on_signals

BASES = (("gymnasium.core", "Env"), ("gymnasium.vector.vector_env", "VectorEnv"))   # the classes, by module
MAX_STEPS = 1 << 15     # between two losses; the entries of later ones are dropped


class EnvironmentLog:
    """The steps since they were last taken; only those of the outermost environment, as the program sees them."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, Any, Any, Any]] = []
        self.num_dropped = 0
        self.inside = 0         # the thread in a step of an environment

    def add(self, environment: Any, result: Any) -> None:
        if type(result) is not tuple or len(result) != 5:
            return
        if len(self.steps) >= MAX_STEPS:
            self.num_dropped += 1
            return
        _, reward, terminated, truncated, _ = result
        self.steps.append((id(environment), _kept(reward), _kept(terminated), _kept(truncated)))

    def take(self) -> list[tuple[int, Any, Any, Any]]:
        steps, self.steps = self.steps, []
        if self.num_dropped:        # a rollout without its end has the wrong size
            steps, self.num_dropped = [], 0
        return steps


def _kept(value: Any) -> Any:
    """A value that the program cannot change later."""
    return value.copy() if getattr(value, "ndim", 0) else value


# A function of a class may be pickled by value, with its globals: the log is reached through the module.
log: EnvironmentLog | None = None


def note_step(environment: Any, result: Any) -> None:
    if log is not None:
        try:
            log.add(environment, result)
        except Exception as error:      # a missed observation is better than a failed step
            pass_on_signals(error)
            log.num_dropped += 1


def enter() -> bool:
    """Whether this is a step of the outermost environment, of one thread."""
    if log is None or log.inside:
        return False
    log.inside = threading.get_ident()
    return True


def leave() -> None:
    if log is not None:
        log.inside = 0


def arm(new_log: EnvironmentLog, base: Any) -> Undo | None:
    """Log the steps of every class derived from a base class of gymnasium, those that exist and those to come."""
    global log
    if "__init_subclass__" in base.__dict__:
        return None
    log = new_log
    for existing in _subclasses(base):
        _wrap(existing)

    def wrap_new(cls: Any, **kwargs: Any) -> None:
        super(base, cls).__init_subclass__(**kwargs)
        _wrap(cls)

    base.__init_subclass__ = classmethod(wrap_new)  # type: ignore[arg-type]

    def undo() -> None:
        global log
        log = None
        if "__init_subclass__" in base.__dict__:
            del base.__init_subclass__

    return undo


def _subclasses(base: type) -> list[type]:
    found = [base]
    for cls in found:
        found += cls.__subclasses__()
    return found[1:]


def _wrap(cls: type) -> None:
    original = cls.__dict__.get("step")
    if callable(original) and not hasattr(original, "torchtriage_original"):
        cls.step = _logged(original)  # type: ignore[attr-defined]


def _logged(original: Callable[..., Any]) -> Callable[..., Any]:
    from torchtriage.capture.taps import environments

    compiler = module("torch.compiler")

    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (compiler is not None and compiler.is_compiling()) or not environments.enter():
            return original(self, *args, **kwargs)
        try:
            result = original(self, *args, **kwargs)
        finally:
            environments.leave()
        environments.note_step(self, result)
        return result

    step.torchtriage_original = original  # type: ignore[attr-defined]
    return never_compile(step)
