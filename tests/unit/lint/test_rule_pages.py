"""The example on the page of a rule that lint also finds: Before gives the code, After does not."""

import re

import pytest

from tests.unit.lint.linted import findings
from torchtriage.findings import catalogue

BLOCK = re.compile(r"(Before|After):\s*\n+```python[^\n]*\n(.*?)```", re.S)
NOT_VISIBLE = {
    "TT203": "the example needs the number of rows of a tensor",
    "TT308": "the example has a backend that raises; lint sees fullgraph=True with a graph break",
}


@pytest.mark.parametrize("code", sorted(catalogue.ALSO_FOUND_BY_LINT - set(NOT_VISIBLE)))
def test_the_example_is_found_and_its_cure_is_clean(code: str) -> None:
    example = dict(BLOCK.findall(catalogue.rule(code).section("Example")))
    assert code in {finding.code for finding in findings(example["Before"])}
    assert code not in {finding.code for finding in findings(example["After"])}


@pytest.mark.parametrize("code", sorted(set(catalogue.codes()) - catalogue.ALSO_FOUND_BY_LINT))
def test_a_rule_that_is_not_listed_is_not_found_in_its_example(code: str) -> None:
    if code.startswith("TT7"):
        pytest.skip("found by lint alone")
    example = dict(BLOCK.findall(catalogue.rule(code).section("Example")))
    assert code not in {finding.code for finding in findings(example.get("Before", ""))}
