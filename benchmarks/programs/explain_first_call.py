"""Runs a script in eager mode, with torch._dynamo.explain on the first call of each compiled object.

python explain_first_call.py OUT.json script.py
"""

import json
import os
import runpy
import sys
from collections.abc import Callable
from typing import Any

import torch

found: dict[str, list[Any]] = {"breaks": [], "errors": []}


class Explained:
    """Stands for the compiled object: the first call is explained,
    every call runs as it would without torch.compile.
    """

    def __init__(self, target: Any) -> None:
        self.__dict__["target"] = target
        self.__dict__["is_new"] = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.__dict__["is_new"]:
            self.__dict__["is_new"] = False
            explain(self.target, args, kwargs)
        return self.target(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["target"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["target"], name, value)


def explain(target: Any, args: Any, kwargs: Any) -> None:
    try:
        output = torch._dynamo.explain(target)(*args, **kwargs)
    except Exception as error:  # what explain cannot do is a result too
        found["errors"].append(f"{type(error).__name__}: {str(error)[:200]}")
        return
    for reason in output.break_reasons:
        if reason.user_stack:
            place = reason.user_stack[-1]
            found["breaks"].append([place.filename, place.lineno])


def explain_instead(model: Any = None, **options: Any) -> Any:
    if model is None:
        decorate: Callable[[Any], Any] = Explained
        return decorate
    return Explained(model)


out, script = sys.argv[1], os.path.abspath(sys.argv[2])
sys.argv = [script]
sys.path[0] = os.path.dirname(script)
torch.compile = explain_instead
try:
    runpy.run_path(script, run_name="__main__")
except BaseException as error:
    found["errors"].append(f"the script ended with {type(error).__name__}: {str(error)[:200]}")
with open(out, "w") as file:
    json.dump(found, file)
