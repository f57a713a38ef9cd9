"""The examples on the page of a learning rule: Before gives the finding of the rule, After does not."""

import pytest

from tests.integration.test_rule_pages import LEARNING, examples
from tests.learning_probe import probed
from torchtriage.diagnosis.diagnose import diagnose
from torchtriage.findings import catalogue
from torchtriage.recording.recording import Recording

pytestmark = pytest.mark.thorough

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("code", "which", "source"), examples(of_learning=True), ids=lambda value: value if len(value) < 8 else "",
)
def test_the_example_on_the_page_shows_the_rule(
    code: str, which: str, source: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    with probed(monkeypatch) as probe:
        exec(compile(source, f"<{code} {which}>", "exec"), {"__name__": f"example_{code}"})
    findings = diagnose(Recording(processes=(probe.process,), origin="watch"))
    assert (code in {finding.code for finding in findings}) is (which == "Before"), [f.title for f in findings]


def test_every_learning_rule_has_an_example_that_runs() -> None:
    learning_codes = {code for code in catalogue.codes() if code.startswith(LEARNING)}
    needs_ranks = {"TT445"}     # benchmarks/replicas.py runs such programs
    assert {code for code, _, _ in examples(of_learning=True)} == learning_codes - needs_ranks
