"""The code that a fix offers, by the statement that breaks; executable options compute the same as the original."""

import textwrap

import pytest
import torch

from torchtriage.diagnosis.graph_breaks.branches import branch_options
from torchtriage.diagnosis.graph_breaks.draws import draw_use, drawn
from torchtriage.diagnosis.graph_breaks.values import mask_options, read_options, selection_of_arguments
from torchtriage.diagnosis.statement import Statement, statement_at
from torchtriage.recording.recording import Process, Source


def statement(source: str, marked: str) -> Statement:
    """The statement at the first line of the source that holds the marked text."""
    lines = textwrap.dedent(source).strip("\n").split("\n")
    line = next(number for number, text in enumerate(lines, start=1) if marked in text)
    window = Source(first_line=1, lines=tuple(lines))
    at = statement_at(Process(events=(), sources={("f.py", line): window}), "f.py", line)
    assert at is not None
    return at


def in_function(body: str) -> str:
    return "def f(self, x, done, loss):\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")


@pytest.mark.parametrize(("body", "marked", "option"), [
    ("if torch.isnan(x).any():\n    raise ValueError('not finite')", "if",
     "`torch._assert_async(~torch.isnan(x).any(), 'not finite')`"),
    ("if not torch.isfinite(loss):\n    raise RuntimeError(f'loss is {loss}')", "if",
     "`torch._assert_async(torch.isfinite(loss), 'loss is')`"),
    ("if self.strict and x.max() > 1:\n    raise ValueError", "if",
     "`if self.strict: torch._assert_async(~(x.max() > 1))`"),
    ("assert (x >= 0).all(), 'negative'", "assert", "`torch._assert_async((x >= 0).all(), 'negative')`"),
    ("assert not x.isnan().any()", "assert", "`torch._assert_async(~x.isnan().any())`"),
    ("assert torch.allclose(x, loss)", "assert", "`torch._assert_async(torch.isclose(x, loss).all())`"),
    ("if loss.item() > 3 and x.sum() > 0:\n    x = x * 2", "if",
     "`x = torch.where((loss > 3) & (x.sum() > 0), x * 2, x)`"),
    ("if done is not None and done.any():\n    x = x + 1", "if",
     "`if done is not None: x = torch.where(done.any(), x + 1, x)`"),
    ("if isinstance(done, torch.Tensor) and done.all():\n    return x\nreturn -x", "if",
     "`if isinstance(done, torch.Tensor): return torch.where(done.all(), x, -x)`"),
    ("if x.sum() > 0:\n    y = x\nelse:\n    y = -x", "if", "`y = torch.where(x.sum() > 0, x, -x)`"),
    ("if x.norm() > 5:\n    x /= x.norm()", "if", "`x = torch.where(x.norm() > 5, x / x.norm(), x)`"),
    ("if x.sum() > 0:\n    return x\nreturn -x", "if", "`return torch.where(x.sum() > 0, x, -x)`"),
    ("y = x if x.mean() > 0 else 0.0", "y =", "`torch.where(x.mean() > 0, x, 0.0)`"),
    ("if x.sum() < 0:\n    y = -x\nelif x.sum() < 9:\n    y = x\nelse:\n    y = x / 2", "if",
     "`y = torch.where(x.sum() < 0, -x, torch.where(x.sum() < 9, x, x / 2))`"),
    ("if loss < self.best:\n    self.best = loss.detach()", "if",
     "`self.best = torch.where(loss < self.best, loss.detach(), self.best)`"),
    ("if loss < self.best:\n    self.waited = 0", "if", "after the compiled call"),
    ("if x.sum() > 0:\n    y = x[:, 1:].mean()\nelse:\n    y = torch.stack([x, x]).mean()", "if",
     "`y = torch.where(x.sum() > 0, x[:, 1:].mean(), torch.stack([x, x]).mean())`"),
    ("if done.sum() < 9:\n    x = x[:, :3]", "if", "keep the full size and mask"),
    ("if done.sum() < 9:\n    x = x.unsqueeze(0)", "if", "keep the full size and mask"),
    ("if not done.any():\n    return None\nreturn x", "if", "return the tensor `~done.any()` from f and decide on it"),
    ("if done.any():\n    y = x[..., :1] * x\nelse:\n    y = x", "if", "torch.where over both outcomes of the branch"),
    ("while loss > 1:\n    loss = loss / 2", "while", "compile the body of the loop instead of f"),
    ("for _ in range(9):\n    x = x + 1\n    if done.all():\n        break", "if", "compile the body of the loop"),
    ("if x.max() > 1:\n    self.clipped.append(x)", "if", "after the compiled call"),
])
def test_branch_option_is_the_code_to_write(body: str, marked: str, option: str) -> None:
    assert option in branch_options(statement(in_function(body), marked), "f.py:2")[0]


@pytest.mark.parametrize("body", [
    "if x.sum() > 0:\n    return None\nreturn x", "if x.sum() > 0:\n    return x, 1\nreturn x, 2",
    "if x.sum() > 0:\n    y = 'high'\nelse:\n    y = 'low'", "if x.sum() > 0:\n    x = x[:, :int(done.sum())]",
    "if x.sum() > 0:\n    n = float(x.max())\nelse:\n    n = 1.0",
    "if done is not None and done.any():\n    y = x\nelse:\n    y = -x",
])
def test_values_that_are_not_tensors_are_not_selected_with_where(body: str) -> None:
    assert not any("torch.where" in option for option in branch_options(statement(in_function(body), "if"), "f.py:2"))


@pytest.mark.parametrize(("body", "marked", "option"), [
    ("return x * loss.mean().item()", "item", "`loss.mean().detach()` instead of `loss.mean().item()`"),
    ("scale = float(loss)\nreturn x * scale", "float", "`loss.detach()` instead of `float(loss)`"),
    ("self.losses.append(loss.item())\nreturn x", "item", "call .item() on it outside f"),
    ("return x, {'loss': loss.item()}", "item", "call .item() on it outside f"),
    ("return x[done.argmax().item()]", "item", "`x.index_select(0, done.argmax())[0]` instead of `x[done.argmax()."),
    ("best = int(done.argmax())\nreturn x[best]", "int", "index with .index_select(0, done.argmax().long())[0]"),
    ("h = self.table[ids[-1]]\nreturn h", "table", "`self.table.index_select(0, ids[-1])[0]` instead of "),
    ("out.append(x[i])", "append", "`x.index_select(0, i)[0]` instead of `x[i]`"),
    ("return sorted(x, key=lambda part: float(part.sum()))", "sorted", "before the compiled call and pass its result"),
    ("return min(x, key=lambda part: part.item())", "min", "`torch.stack(list(x)).min()` instead of"),
    ("top = np.max(x.numpy())\nreturn x / float(top)", "float", "compute `top` with torch instead of NumPy"),
    ("return x[:int(done.sum())]", "int", "before the compiled call and pass it as an argument"),
    ("n = int(done.sum())\nreturn x[:n]", "int", "before the compiled call and pass it as an argument"),
    ("for value in x.tolist():\n    loss = loss + value", "for", "`for value in x.unbind():`"),
    ("for i, n in enumerate(done.tolist()):\n    loss = loss + n", "for", "`for i, n in enumerate(done.unbind()):`"),
    ("for i, n in enumerate(done.tolist()):\n    out.append(x[i, :n])", "for", "mask by position instead of slicing"),
    ("for n in done.tolist():\n    x = self.layers[n](x)", "for", "compile the body of the loop"),
    ("h = x.abs()\nn = int(h.sum())\nreturn x[:n]", "int", "keep the full size and mask with torch.where"),
    ("return x[:int(self.score(x).sum())]", "int", "keep the full size and mask with torch.where"),
    ("k = int(x.max().item() > 0) + 1\nreturn x * k", "k =", "`(x.max().detach() > 0).long()` instead of `int("),
    ("return x * float(np.mean(x == loss))", "float", "compute `np.mean(x == loss)` with torch instead of NumPy, and"),
    ("return x * float(loss.detach())", "float", "`loss.detach()` instead of `float(loss.detach())`"),
])
def test_read_option_fits_the_use_of_the_number(body: str, marked: str, option: str) -> None:
    assert option in read_options(statement(in_function(body), marked), "f.py:2")[0]


@pytest.mark.parametrize("body", ["y = x[0] + loss", "y = x[i] + loss[j]", "y = x[1:n]"])
def test_without_a_single_index_that_may_be_a_tensor_nothing_is_offered(body: str) -> None:
    assert read_options(statement(in_function(body), "y ="), "f.py:2") == []


@pytest.mark.parametrize(("body", "option"), [
    ("return x[done].mean()", "`torch.where(done, x, 0).sum() / done.sum()`"),
    ("return x[x > 0].sum()", "`torch.where((x > 0), x, 0).sum()`"),
    ("x[done] = loss", "`x = torch.where(done, loss, x)`"),
    ("x[done] *= 2", "`x = torch.where(done, x * 2, x)`"),
])
def test_mask_option_keeps_the_full_size(body: str, option: str) -> None:
    assert option in mask_options(statement(in_function(body), "x["), "f.py:2")[0]


@pytest.mark.parametrize(("body", "selected"), [
    ("y, z = done.nonzero(as_tuple=True)", "done.nonzero(as_tuple=True)"),
    ("y = torch.unique(x)", "torch.unique(x)"),
    ("x = x + 1\ny = torch.unique(x)", ""),
    ("y = self.score(x).nonzero()", ""),
])
def test_a_selection_of_arguments_can_be_made_by_the_caller(body: str, selected: str) -> None:
    assert selection_of_arguments(statement(in_function(body), "y")) == selected


@pytest.mark.parametrize(("body", "result"), [
    ("if x.sum() > 0:\n    y = x\nelse:\n    y = -x", "y"), ("if x.norm() > 5:\n    x /= x.norm()", "x"),
    ("if x.mean() > 0 and x.max() > 1:\n    x = x * 2", "x"), ("if not x.sum() > 0:\n    x = x + 1", "x"),
])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_branch_option_computes_the_same_as_the_original(body: str, result: str, sign: float) -> None:
    option = branch_options(statement(in_function(body), "if"), "f.py:2")[0].split("`")[1]
    values = []
    for code in (body, option):
        names = {"torch": torch, "x": sign * torch.tensor([3.0, 4.0, 5.0])}
        exec(code, names)
        values.append(names[result])
    assert torch.equal(*values)


@pytest.mark.parametrize(("body", "name", "called", "option"), [
    ("x = x * random.uniform(0.9, b)", "uniform", "Random.uniform", "`torch.rand(()) * (b - 0.9) + 0.9`"),
    ("x = x * rng.uniform(0, 3)", "uniform", "Generator.uniform", "`torch.rand(()) * 3` instead of `rng.uniform("),
    ("x = x + torch.from_numpy(rng.normal(size=x.shape)).float()", "normal", "Generator.normal",
     "`torch.randn(x.shape)` instead of `torch.from_numpy(rng.normal(size=x.shape)).float()`"),
    ("x = x + rng.normal(2, s, (3, 4))", "normal", "Generator.normal", "`torch.randn((3, 4)) * s + 2`"),
    ("x = x + random.gauss(0.0, 1.0)", "gauss", "Random.gauss", "`torch.randn(())` instead of `random.gauss("),
    ("x = x * random.randint(1, 6)", "randint", "Random.randint", "`torch.randint(1, 7, ())`"),
    ("x = x * rng.integers(5, size=(2,))", "integers", "Generator.integers", "`torch.randint(5, (2,))`"),
    ("x = x * np.random.rand(3, n)", "rand", "RandomState.rand", "`torch.rand(3, n)`"),
    ("x = x + rng.normal(*args)", "normal", "Generator.normal", "draw with torch.randn(size) * std + mean"),
])
def test_a_draw_keeps_its_size_and_limits(body: str, name: str, called: str, option: str) -> None:
    assert option in drawn(statement(in_function(body), "x ="), name, called)


def test_a_draw_that_is_used_as_a_size_stays_outside() -> None:
    at = statement(in_function("top = random.randint(0, 5)\nreturn x[top:top + 3]"), "top =")
    assert draw_use(at, "randint", "Random.randint") == "size"


def test_a_place_without_source_has_no_options() -> None:
    assert statement_at(Process(events=()), "f.py", 3) is None
    assert branch_options(None, "f.py:3") == read_options(None, "f.py:3") == mask_options(None, "f.py:3") == []


def test_a_source_window_that_cuts_a_block_is_read_from_one_line() -> None:
    window = Source(first_line=10, lines=("        else:", "    if done.all():", "        break"))
    at = statement_at(Process(events=(), sources={("f.py", 11): window}), "f.py", 11)
    assert at is not None
    assert at.function is None


@pytest.mark.parametrize(("body", "option"), [
    ("return math.exp(loss.item())", "`torch.exp(loss.detach())` instead of `math.exp(loss.item())`"),
    ("return math.sqrt(-loss.item())", "`torch.sqrt(-loss.detach())` instead of"),
    ("scale = x.std().item()\nif scale != scale:\n    x = x * 0\nreturn x / scale",
     "in place of the test `scale != scale`: on a tensor it breaks too"),
    ("return sorted(x, key=lambda t: t.item())[0]", "`torch.stack(list(x)).sort().values` instead of"),
    ("return sorted(x, key=lambda t: t.norm().item())[0]", "before the compiled call and pass its result"),
    ("return x[done] - x[i]\ni = done[0]", "`x.index_select(0, i)[0]` instead of `x[i]`"),
    ("return math.gamma(loss.item())", "outside the compiled function: it needs a Python number"),
    ("n = int(done.sum())\nk = min(3 * n, x.numel())\nreturn x.topk(k).values", "before the compiled call and pass it"),
    ("n = done.sum().item()\nmean = x.sum() / n\nreturn mean.topk(1)", "`done.sum().detach()` instead of"),
])
def test_a_number_is_read_by_what_becomes_of_it(body: str, option: str) -> None:
    assert option in read_options(statement(in_function(body), body.split("\n")[0]), "f.py:2")[0]
