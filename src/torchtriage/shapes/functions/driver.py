"""The program of `torchtriage shapes module.py::function`: calls one compiled function with inputs of several sizes."""

import argparse
import importlib.util
import inspect
import random
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from torchtriage.errors import CommandError

REFUSED = 64            # exit status: the request cannot be run, and stderr says why
DEFAULT_REPEAT = 10     # calls per size
MAX_LISTED = 12
_SIZE = re.compile(r"(\d+)(?:x(\d+))?")


def parse_sizes(text: str) -> list[int]:
    """`16,32,57x4`: each size, four times as often with x4."""
    sizes: list[int] = []
    for word in text.split(","):
        match = _SIZE.fullmatch(word.strip())
        if match is None:
            size = word.strip() or "an empty entry"
            raise CommandError(f"--sizes {text}: {size} is not a size; give numbers such as 16,32,57x4 (57 four times)")
        sizes += [int(match[1])] * int(match[2] or 1)
    if not sizes:
        raise CommandError(f"--sizes {text} contains no size; give numbers such as 16,32,57x4")
    return sizes


def shuffled(sizes: Sequence[int], repeat: int) -> list[int]:
    """Every size `repeat` times, in the same random order in every run."""
    order = list(sizes) * repeat
    random.Random(0).shuffle(order)
    return order


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="torchtriage shapes")
    for name in ("path", "function", "sizes", "inputs", "repeat"):
        parser.add_argument(name)
    args = parser.parse_args(words)
    try:
        module = _load(Path(args.path))
        function, maker = _function(module, args.function), _maker(module, args.function, args.inputs)
    except CommandError as error:
        print(f"torchtriage: {error}", file=sys.stderr)
        sys.exit(REFUSED)
    call(compiled(function), maker, shuffled(parse_sizes(args.sizes), int(args.repeat)))


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under torch.compile, unless it is already compiled."""
    import torch

    from torchtriage.capture.torch_private import dynamo as torch_private

    return function if torch_private.compiled_from(function) is not None else torch.compile(function)


def call(function: Callable[..., Any], maker: Callable[[int], Any], sizes: Sequence[int]) -> None:
    """Inputs are made beforehand, so that nothing else runs between the calls."""
    inputs_by_size = {size: maker(size) for size in dict.fromkeys(sizes)}
    for size in sizes:
        inputs = inputs_by_size[size]
        if isinstance(inputs, dict):
            function(**inputs)
        else:
            function(*(inputs if isinstance(inputs, tuple | list) else (inputs,)))


def _load(path: Path) -> ModuleType:
    sys.path.insert(0, str(path.parent.absolute()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise CommandError(f"{path} is not a Python file; give one such as model.py::forward")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _function(module: ModuleType, name: str) -> Callable[..., Any]:
    function: Any = module
    for part in name.split("."):
        function = getattr(function, part, None)
    if not callable(function):
        raise CommandError(f"{module.__file__} has no function {name}; it has: {_function_names(module)}")
    return function  # type: ignore[no-any-return]  # its return type is the user's


def _maker(module: ModuleType, function: str, name: str) -> Callable[[int], Any]:
    """The function with the given name, else FUNCTION_inputs, else make_inputs."""
    names = [name] if name else [f"{function.replace('.', '_')}_inputs", "make_inputs"]
    for candidate in names:
        maker: Any = getattr(module, candidate, None)
        if callable(maker):
            return maker  # type: ignore[no-any-return]  # its return type is the user's
    raise CommandError(
        f"{module.__file__} has no {' or '.join(names)} that makes the inputs for a size; write one, maker(size) -> "
        f"a tuple of arguments or a dict, or name it with --inputs; it has: {_function_names(module)}"
    )


def _function_names(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if inspect.isroutine(value) and not name.startswith("_")]
    return ", ".join(names[:MAX_LISTED]) or "no function"


if __name__ == "__main__":
    main()
