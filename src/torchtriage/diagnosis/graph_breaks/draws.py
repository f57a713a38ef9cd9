"""The torch code that draws what a call of numpy.random or random draws."""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass

from torchtriage.diagnosis.graph_breaks.values import number_use, path_to
from torchtriage.diagnosis.statement import Statement, called_name, code, fits

# What to say if the call itself cannot be read; the first pattern that fits its name decides.
_FORMS = (
    (r"normal|randn|gauss", "torch.randn(size) * std + mean"),
    (r"uniform", "torch.rand(size) * (high - low) + low"),
    (r"choice|sample", "torch.tensor(items)[torch.randint(len(items), (1,))]"),
    (r"randint|randrange|integers", "torch.randint(low, high, size)"),
    (r"permutation|shuffle", "torch.randperm(n)"),
    (r"beta", "torch.distributions.Beta(a, b).sample()"),
    (r"poisson|binomial|exponential|gamma", "torch.distributions, or torch.poisson and torch.bernoulli"),
    (r"", "torch.rand(size)"),
)
_CONVERSIONS = frozenset({"from_numpy", "as_tensor", "tensor", "float", "float32", "FloatTensor"})
_CASTS = frozenset({"float", "astype", "item"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """The call that draws, its positional and named arguments as code, and whether it is Python's random."""

    call: ast.Call
    of_python: bool

    def argument(self, position: int, *names: str) -> str:
        """The code of an argument; empty if it is not given."""
        named = [keyword.value for keyword in self.call.keywords if keyword.arg in names]
        given = named or self.call.args[position:position + 1]
        return code(given[0]) if given else ""

    def size(self, position: int) -> str:
        return "()" if self.of_python else self.argument(position, "size") or "()"


def drawn(statement: Statement | None, name: str, called: str) -> str:
    """`torch.rand(()) * 0.2 + 0.9` instead of `random.uniform(0.9, 1.1)`; a form if the call cannot be read."""
    form = next(form for pattern, form in _FORMS if re.search(pattern, name))
    draw = _draw(statement, name, called)
    make = _BY_NAME.get(name)
    if draw is None or make is None or any(isinstance(a, ast.Starred) for a in draw.call.args):
        return f"draw with {form}"
    replaced, torch_code = _converted(statement, draw.call) if statement else draw.call, make(draw)
    if not torch_code or not fits(torch_code, code(replaced)):
        return f"draw with {form}"
    return f"`{torch_code}` instead of `{code(replaced)}`"


def draw_use(statement: Statement | None, name: str, called: str) -> str:
    """How the function uses the number: as an index, a size or a test; empty if in any other way, or not known."""
    draw = _draw(statement, name, called)
    return number_use(statement, _converted(statement, draw.call)) if statement and draw else ""


def _draw(statement: Statement | None, name: str, called: str) -> Draw | None:
    calls = statement.calls(name) if statement is not None else []
    if len(calls) != 1:
        return None
    of_python = bool(re.match(r"random\.", code(calls[0].func)) or re.search(r"\bRandom\.", called))
    return Draw(call=calls[0], of_python=of_python)


def _converted(statement: Statement, call: ast.Call) -> ast.expr:
    """The call with what turns its result into a float tensor, as torch draws one: `torch.from_numpy(...).float()`."""
    outer: ast.expr = call
    for node in reversed(path_to(statement.node, call)[:-1]):
        is_conversion = isinstance(node, ast.Call) and called_name(node) in _CONVERSIONS and node.args[:1] == [outer]
        is_cast = isinstance(node, ast.Attribute) and node.value is outer and node.attr in _CASTS
        is_cast_call = isinstance(node, ast.Call) and node.func is outer and outer is not call
        if not (is_conversion or is_cast or is_cast_call):
            break
        assert isinstance(node, ast.expr)
        outer = node
    return call if isinstance(outer, ast.Attribute) else outer


def _scaled(draw: str, scale: str, shift: str) -> str:
    text = f"{draw} * {scale}" if scale not in ("", "1", "1.0") else draw
    return f"{text} + {shift}" if shift not in ("", "0", "0.0") else text


def _in_product(value: str) -> str:
    return value if re.fullmatch(r"[\w.]+", value) else f"({value})"


def _normal(draw: Draw) -> str:
    shift, scale = draw.argument(0, "loc", "mu"), draw.argument(1, "scale", "sigma")
    return _scaled(f"torch.randn({draw.size(2)})", _in_product(scale) if scale else "", shift)


def _uniform(draw: Draw) -> str:
    low, high = draw.argument(0, "low", "a") or "0", draw.argument(1, "high", "b") or "1"
    width = _in_product(high) if low in ("0", "0.0") else f"({high} - {_in_product(low)})"
    return _scaled(f"torch.rand({draw.size(2)})", width, low)


def _integers(draw: Draw) -> str:
    low, high = draw.argument(0, "low", "a", "start"), draw.argument(1, "high", "b", "stop")
    if (draw.of_python and draw.argument(2, "step")) or draw.argument(4, "endpoint"):
        return ""
    if draw.of_python and called_name(draw.call) == "randint":
        high = str(int(high) + 1) if high.isdigit() else f"{high} + 1"       # random.randint includes its upper limit
    bounds = f"{low}, {high}" if high else low
    return f"torch.randint({bounds}, {draw.size(2)})"


def _of_size(function: str) -> Callable[[Draw], str]:
    return lambda draw: f"{function}({draw.size(0)})"


def _of_dimensions(function: str) -> Callable[[Draw], str]:
    return lambda draw: f"{function}({', '.join(map(code, draw.call.args)) or '()'})"


_BY_NAME: dict[str, Callable[[Draw], str]] = {
    "normal": _normal, "gauss": _normal, "normalvariate": _normal, "uniform": _uniform,
    "randint": _integers, "randrange": _integers, "integers": _integers,
    "random": _of_size("torch.rand"), "random_sample": _of_size("torch.rand"), "rand": _of_dimensions("torch.rand"),
    "standard_normal": _of_size("torch.randn"), "randn": _of_dimensions("torch.randn"),
}
