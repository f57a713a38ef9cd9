"""`allow=[...]` excludes the findings that it names, and rejects items that no finding can match."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.samples import a_finding
from torchtriage.errors import CommandError
from torchtriage.findings import catalogue
from torchtriage.findings.model import Location
from torchtriage.integrations.pytest_allow import check_allow, is_allowed

FORWARD = Location(path="/app/pkg/model.py", line=14, function="Policy.forward")
IN_A_LIBRARY = Location(path="/venv/lib/site-packages/transformers/cache.py", line=3, function="update")


@pytest.mark.parametrize(
    ("item", "taken"),
    [
        ("TT101", True), ("tt101", True), ("TT1", True), ("TT102", False), ("TT2", False), ("print-in-graph", True),
        ("logging-in-graph", False), ("0123456789abcdef", True), ("fedcba9876543210", False), ("model.py", True),
        ("pkg/model.py", True), ("/app/pkg/model.py", True), ("odel.py", False), ("other/model.py", False),
        ("model.py::Policy.forward", True), ("model.py::forward", True), ("model.py::ward", False),
        ("model.py::Policy", False), ("app/", True), ("pkg/", True), ("pk/", False), ("transformers/", True),
        ("cache.py::update", True),
    ],
)
def test_an_item_allows_the_findings_that_it_names(item: str, taken: bool) -> None:
    finding = a_finding("TT101", location=FORWARD, raised_at=IN_A_LIBRARY)
    check_allow([item])
    assert is_allowed(finding, [item]) is taken
    assert is_allowed(finding, ["TT9", item]) is taken


@pytest.mark.parametrize(("item", "said"), [
    ("TT999", "did you mean"), ("TT9999", "did you mean"), ("print-in-grahp", "did you mean 'print-in-graph'?"),
    ("TT10l", "did you mean"), ("model.py::", "a function ('model.py::Policy.forward')"), ("", "it takes a code"),
    ("0123456789abcde", "it takes a code"), ("TT", "a prefix of codes ('TT1')"), ("/", "a folder ('transformers/')"),
])
def test_an_item_that_cannot_match_is_rejected_with_a_suggestion(item: str, said: str) -> None:
    with pytest.raises(CommandError) as refused:
        check_allow(["TT101", item])
    assert repr(item) in str(refused.value)
    assert said in str(refused.value)


@pytest.mark.parametrize("allow", ["TT101", None, 3, {"TT101": 1}, [101], [None]])
def test_allow_must_be_a_list_of_strings(allow: object) -> None:
    with pytest.raises(CommandError, match="allow"):
        check_allow(allow)


@given(st.sampled_from(catalogue.codes()), st.text(max_size=20))
@example(code="TT101", item="/")
def test_a_rejected_item_allows_nothing(code: str, item: str) -> None:
    finding = a_finding(code, slug=catalogue.rule(code).slug, location=FORWARD)
    try:
        check_allow([item])
    except CommandError:
        assert not is_allowed(finding, [item])
