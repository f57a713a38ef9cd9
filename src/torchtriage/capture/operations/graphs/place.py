"""Where an operation of a graph comes from: its name, source line, module."""

import re
from typing import Any

from torchtriage.capture.torch_private.base import is_torch_file

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def describe(node: Any) -> dict[str, Any]:
    """Name, source line of the program, line within torch if that is deeper, and module of a node."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if not is_torch_file(frame[0]) and "site-packages" not in frame[0]]
    path, line, function = (own or frames or [("", "", "")])[-1]
    module_path, module = _module(node)
    return {
        "name": operation_name(node), "path": path, "line": int(line) if line else None, "function": function,
        "module": module, "module_path": module_path,
    }


def operation_name(node: Any) -> str:
    """Such as torch.nn.functional.layer_norm, Tensor.add_ or operator.mul."""
    if node.op == "call_method":
        return f"Tensor.{node.target}"
    if node.op == "call_module":
        return str(node.target)
    name = getattr(node.target, "__name__", None) or str(node.target)
    home = getattr(node.target, "__module__", None) or ""
    home = {"_operator": "operator", "torch._C._nn": "torch.nn.functional", "torch._VariableFunctions": "torch"}.get(
        home, home)
    if not home and str(node.target).startswith("<built-in method"):
        home = "torch"
    return f"{home}.{name}" if home else str(name)


def _module(node: Any) -> tuple[str, str]:
    """(the path of the innermost module of the program, its class), such as ("layers.1", "Block")."""
    found = "", ""
    for path, kind in (node.meta.get("nn_module_stack") or {}).values():
        home = getattr(kind, "__module__", "")
        if not home.startswith("torch."):
            found = _module_path(str(path)), getattr(kind, "__qualname__", str(kind))
    return found


def _module_path(path: str) -> str:
    """L['self']._modules['layers'][0].mlp becomes layers.0.mlp."""
    path = re.sub(r"\._modules\['([^']+)'\]|\[['\"]?([^'\"\]]+)['\"]?\]", lambda m: f".{m[1] or m[2]}", path)
    parts = [part for part in path.split(".") if part not in ("L", "self", "fn", "_modules", "")]
    return ".".join(parts)
