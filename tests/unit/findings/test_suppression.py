"""Comments in the source that accept a finding."""

import pytest

from torchtriage.findings.suppression import suppression_in


@pytest.mark.parametrize(("line", "codes", "reason"), [
    ("print(x)  # torchtriage: ignore[TT101] wanted here", ("TT101",), "wanted here"),
    ("x = y.item()  #torchtriage:ignore[TT104, TT222]", ("TT104", "TT222"), ""),
])
def test_a_comment_names_codes_and_a_reason(line: str, codes: tuple[str, ...], reason: str) -> None:
    found = suppression_in(line)
    assert found is not None
    assert (found.codes, found.reason) == (codes, reason)


@pytest.mark.parametrize("line", ["print(x)", "# torchtriage: ignore everything", "# torchtriage: ignore[]", ""])
def test_other_lines_suppress_nothing(line: str) -> None:
    found = suppression_in(line)
    assert found is None or not found.codes
