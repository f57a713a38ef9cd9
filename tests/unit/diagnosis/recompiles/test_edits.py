"""Which values an edit may turn into a tensor."""

import ast

import pytest

from torchtriage.diagnosis.recompiles.edits import _holds_numbers


@pytest.mark.parametrize(("text", "expected"), [
    ("[0.1, 0.2, -3]", True),
    ("[0.99 - 0.04 * i for i in range(steps)]", True),
    ("[math.exp(-i / 3) for i in range(10)]", True),
    ("[]", False),
    ("[torch.ones(3), torch.zeros(3)]", False),
    ("[nn.Linear(i, i) for i in range(3)]", False),
    ("[scale * i for i in range(3)]", False),
    ("[x for x in values]", False),
    ("['a', 'b']", False),
    ("self.other", False),
])
def test_a_list_becomes_a_tensor_if_it_is_seen_to_hold_numbers(text: str, expected: bool) -> None:
    assert _holds_numbers(ast.parse(text, mode="eval").body) is expected
