"""A loop that ends early by a tensor becomes one that keeps finished results; statements that read the clock."""

import ast
import textwrap

import pytest

from torchtriage.diagnosis.graph_breaks.branches import tensor_test
from torchtriage.diagnosis.rewrites.loops import run_to_end, timed_statements
from torchtriage.diagnosis.statement import Statement, code

SOLVER = """
def solve(a, v, rounds):
    for i in range(rounds):
        w = a @ v
        w = w / w.norm()
        if (w - v).norm().item() < 0.1:
            break
        v = w
    return v
"""


def statement_in(source: str, marked: str) -> Statement:
    """The innermost statement that begins with a text, with its parents."""
    parents: list[ast.stmt] = []
    found: list[Statement] = []

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                if ast.unparse(child).startswith(marked):
                    found.append(Statement(node=child, parents=tuple(parents)))
                parents.append(child)
                visit(child)
                parents.pop()

    visit(ast.parse(textwrap.dedent(source)))
    return found[-1]


def test_what_a_finished_loop_returns_is_kept_and_what_it_only_computes_is_not() -> None:
    found = run_to_end(statement_in(SOLVER, "if"), tensor_test)
    assert found is not None
    _, before, replaced = found
    assert before == "done = torch.zeros((), dtype=torch.bool, device=v.device)"
    assert [new for _, new in replaced] == ["done = done | ((w - v).norm() < 0.1)", "v = torch.where(done, v, w)"]


def test_the_new_loop_gives_the_same_numbers() -> None:
    import torch

    statement = statement_in(SOLVER, "if")
    found = run_to_end(statement, tensor_test)
    assert found is not None
    assert statement.function is not None
    loop, before, replaced = found
    assert isinstance(loop, ast.For)
    new = {id(node): ast.parse(text).body[0] for node, text in replaced}
    loop.body = [new.get(id(node), node) for node in loop.body]
    statement.function.body.insert(0, ast.parse(before).body[0])
    results = []
    for source in (textwrap.dedent(SOLVER), ast.unparse(statement.function)):
        names: dict[str, object] = {"torch": torch}
        exec(source, names)
        torch.manual_seed(0)
        results.append([names["solve"](torch.randn(4, 4), torch.ones(4), 9) for _ in range(8)])  # type: ignore[operator]
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize(("old", "new"), [
    ("def solve(a, v, rounds):", "def solve(a, rounds):\n    v = 1"),        # a number, which where() would not keep
    ("def solve(a, v, rounds):", "def solve(a, rounds):\n    v = []"),
    ("w = a @ v", "w = a @ v + torch.randn(4)"),                 # more rounds draw more numbers
    ("        v = w\n", "        v = w\n        seen.append(v)\n"),
    ("        v = w\n", "        v = torch.cat([v, w])\n"),       # longer in each round
    ("        v = w\n", "        v = w[1:]\n"),
    ("        v = w\n", "        v = w\n        self.v = v\n"),
    ("    return v", "    return v, i"),                          # the round at which it ended
    ("            break", "            v = w\n            break"),
    ("    return v", "    else:\n        v = a\n    return v"),
    ("            break", "            return w"),
    ("    return v", "    return v, w"),                          # w is not a tensor before the loop
])
def test_a_loop_that_does_more_stays(old: str, new: str) -> None:
    assert old in SOLVER
    assert run_to_end(statement_in(SOLVER.replace(old, new), "if"), tensor_test) is None


def test_a_return_of_what_follows_the_loop_is_a_break() -> None:
    statement = statement_in(SOLVER.replace("            break", "            return v"), "if")
    assert run_to_end(statement, tensor_test) is not None


TIMED = """
def forward(self, x):
    started = time.time()
    y = self.net(x)
    self.times.append(time.time() - started)
    return y
"""


def test_the_statements_that_read_the_clock_are_found_with_those_that_use_it() -> None:
    timed = [code(node) for node in timed_statements(statement_in(TIMED, "started"))]
    assert timed == ["started = time.time()", "self.times.append(time.time() - started)"]


@pytest.mark.parametrize(("old", "new"), [
    ("return y", "return y, started"), ("y = self.net(x)", "y = self.net(x) * started"),
    ("return y", "if started > 5:\n        y = -y\n    return y"),
])
def test_a_time_that_is_needed_stays(old: str, new: str) -> None:
    assert not list(timed_statements(statement_in(TIMED.replace(old, new), "started")))
