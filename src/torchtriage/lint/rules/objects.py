"""TT108, TT111, TT112, TT113, TT115, TT117, TT120: objects that the compiler leaves alone or cannot represent."""

import ast
from collections.abc import Iterator

from torchtriage.lint.reach.model import Reached
from torchtriage.lint.rules.hazard import Hazard, calls, hazard_rule, is_conditional, is_set, names_of, quote
from torchtriage.lint.rules.places import last_part
from torchtriage.lint.types.torch_calls import RECURRENT
from torchtriage.lint.types.values import (
    ContainerValue,
    DisabledValue,
    LibraryObject,
    MethodValue,
    TensorValue,
    options,
)

_BREAKS = frozenset({"torch._dynamo.graph_break"})
# Context managers that send the function to eager, on torch 2.9 to 2.13.
_UNSUPPORTED_CONTEXTS = frozenset({
    "torch.random.fork_rng", "torch.autograd.detect_anomaly", "torch.autograd.set_detect_anomaly",
    "torch.autograd.graph.saved_tensors_hooks", "torch.autograd.graph.save_on_cpu",
    "torch.autograd.set_multithreading_enabled", "torch.autograd.profiler.emit_itt", "torch.backends.cudnn.flags",
    "torch.backends.mkldnn.flags", "decimal.localcontext", "numpy.errstate", "contextlib.redirect_stdout",
    "contextlib.redirect_stderr", "torch.device",
})
_LOCKS = ("threading.Lock", "threading.RLock", "threading.Condition", "threading.Semaphore", "multiprocessing.Lock")
_ITERATORS = frozenset({"zip", "map", "filter", "iter", "enumerate", "reversed", "items", "values", "keys"})
_STORAGE = frozenset({"untyped_storage", "storage"})


@hazard_rule
def recurrent_modules(reached: Reached) -> Iterator[Hazard]:
    """nn.LSTM, nn.GRU or nn.RNN in compiled code."""
    if is_set(reached, "allow_rnn"):
        return
    for call in calls(reached):
        for called in options(reached.value(call.func)):
            if isinstance(called, LibraryObject) and called.name in RECURRENT:
                yield Hazard(
                    code="TT117",
                    node=call,
                    subject=quote(reached, call),
                    cause=f"{called.name} is not traced by default",
                    fix=f"keep {quote(reached, call.func)} out of the compiled function, or "
                    "torch._dynamo.config.allow_rnn = True; tracing it is slow to compile",
                )


@hazard_rule
def disabled_calls(reached: Reached) -> Iterator[Hazard]:
    """A call of a function that is marked with torch.compiler.disable."""
    for call in calls(reached):
        if any(isinstance(called, DisabledValue) for called in options(reached.value(call.func))):
            yield Hazard(
                code="TT108",
                node=call,
                subject=quote(reached, call),
                may=is_conditional(reached, call),
                cause="the function is marked with torch.compiler.disable, so the graph is cut at its call",
                fix="if the break is not wanted, remove torch.compiler.disable; if it is, call it first or last in the "
                "compiled function",
            )
        elif names_of(reached.value(call.func)) & _BREAKS:
            yield Hazard(
                code="TT120",
                node=call,
                subject=quote(reached, call),
                cause="the graph is cut on request",
                fix=f"remove {quote(reached, call)} if it is not needed any more",
            )


@hazard_rule
def iterators(reached: Reached) -> Iterator[Hazard]:
    """next() of an iterator that was made outside the compiled function."""
    spec = reached.function.node.args
    names = {parameter.arg for parameter in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}
    for call in calls(reached):
        if "builtins.next" not in names_of(reached.value(call.func)) or not call.args:
            continue
        drawn = call.args[0]
        is_own = isinstance(drawn, ast.Attribute) and isinstance(drawn.value, ast.Name) and drawn.value.id == "self"
        if (isinstance(drawn, ast.Name) and drawn.id in names) or is_own:
            value = reached.value(drawn)
            sure = isinstance(value, ContainerValue) and value.kind in ("iter", "iterator", "generator")
            yield Hazard(
                code="TT113",
                node=call,
                subject=quote(reached, call),
                may=not sure,
                cause="an iterator that was made outside cannot be drawn from inside the graph",
                fix=f"call {quote(reached, call)} before the compiled call and pass the value in",
            )


@hazard_rule
def loops_over_iterators(reached: Reached) -> Iterator[Hazard]:
    """A loop of the compiled function over an iterator that its caller made."""
    if len(reached.path) != 1:
        return
    passed = _iterator_parameters(reached)
    for loop in ast.walk(reached.function.node):
        iterated = loop.iter if isinstance(loop, (ast.For, ast.comprehension)) else None
        if isinstance(iterated, ast.Name) and iterated.id in passed:
            yield Hazard(
                code="TT113",
                node=iterated,
                subject=quote(reached, iterated),
                cause=f"`{passed[iterated.id]}` is an iterator, which cannot be drawn from inside the graph",
                fix=f"pass a list: list({passed[iterated.id]})",
            )


def _iterator_parameters(reached: Reached) -> dict[str, str]:
    """The parameters that every call gives an iterator, with the source of one."""
    function, given = reached.function, dict[str, list[str]]()
    for call in reached.site.calls:
        names = [p.arg for p in function.node.args.args][(1 if function.bound is not None else 0):]
        for name, argument in zip(names, call.node.args, strict=False):
            made_by = last_part(argument.func) if isinstance(argument, ast.Call) else ""
            if made_by in _ITERATORS or isinstance(argument, ast.GeneratorExp):
                given.setdefault(name, []).append(call.file.segment(argument))
    return {name: sources[0] for name, sources in given.items() if len(sources) == len(reached.site.calls)}


@hazard_rule
def context_managers(reached: Reached) -> Iterator[Hazard]:
    """A lock, or another context manager that the compiler does not enter, in compiled code."""
    for node in list(reached.values):
        parent = reached.file.parent(node)
        if not isinstance(parent, ast.withitem) or parent.context_expr is not node:
            continue
        called = getattr(node, "func", None)
        for name in sorted(names_of(reached.value(called)) & _UNSUPPORTED_CONTEXTS) if called is not None else ():
            yield Hazard(
                code="TT115",
                node=node,
                subject=f"`with {reached.file.segment(node)}`",
                cause=f"the compiler cannot enter {name}",
                fix=f"enter {quote(reached, node)} around the compiled call instead of inside it",
            )
        for value in options(reached.value(node)):
            if isinstance(value, LibraryObject) and value.name in _LOCKS:
                yield Hazard(
                    code="TT115",
                    node=node,
                    subject=f"`with {reached.file.segment(node)}`",
                    cause=f"the compiler cannot enter a {value.name}",
                    fix=f"take {quote(reached, node)} around the compiled call instead of inside it",
                )


@hazard_rule
def unsupported_objects(reached: Reached) -> Iterator[Hazard]:
    """A torch.Generator or the storage of a tensor in compiled code."""
    for call in calls(reached):
        called = reached.value(call.func)
        generator = next((k.value for k in call.keywords if k.arg == "generator"), None)
        value = reached.value(generator) if generator is not None else None
        if isinstance(value, LibraryObject) and value.name == "torch.Generator":
            yield Hazard(
                code="TT111",
                node=call,
                subject=quote(reached, call),
                cause="the compiler cannot represent a torch.Generator",
                fix="draw with the default generator, or draw before the compiled call and pass the tensor in",
            )
        if isinstance(called, MethodValue) and called.name in _STORAGE and isinstance(called.owner, TensorValue):
            yield Hazard(
                code="TT112",
                node=call,
                subject=quote(reached, call),
                may=not called.owner.sure,
                cause="the compiler does not model the storage of a tensor",
                fix=f"read {quote(reached, call)} outside the compiled function",
            )
