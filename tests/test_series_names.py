"""The name of a recorded series is written once, in recording/series.py."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchtriage.recording import series

PACKAGE = Path(__file__).parent.parent / "src" / "torchtriage"
HOME = PACKAGE / "recording" / "series.py"
FOREIGN = PACKAGE / "capture" / "readers" / "scalar_names.py"     # the names in the logs of others
NAMES = frozenset(quantity.name for quantity in series.quantities())
PREFIXES = (
    series.SHARD, series.GROUP, series.PPO_PREFIX, series.LSTM_PREFIX, series.SCALER_PREFIX, series.GROWTH_PREFIX,
    series.MONITOR_PREFIX, *(f"{name}/" for name in NAMES),
)
# The same word with another meaning.
HOMONYMS = {
    "capture/taps/learning.py": {"loss"},           # the tap on backward
    "findings/tap_state.py": {"loss"},
    "capture/proof/operations.py": {"loss"},        # part of the names of operations
    "proof/judge_numbers.py": {"loss"},             # the kind of a compared number
    "proof/numbers/compare.py": {"loss"},
    "telemetry/monitor.py": {"loss"},               # a warning that is given once
    "rl/ppo/losses.py": {"loss"},                   # metrics of a minibatch
    "rl/ppo/metrics.py": {"loss", "grad_norm"},
    "rl/ppo/update.py": {"loss", "grad_norm"},
}


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of every string in a file that is not a docstring."""
    tree = ast.parse(path.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def is_series_name(text: str) -> bool:
    return text in NAMES or text.startswith(PREFIXES)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_series_name_is_a_literal(path: Path) -> None:
    if path in (HOME, FOREIGN):
        pytest.skip("the vocabulary itself, or that of others")
    homonyms = HOMONYMS.get(path.relative_to(PACKAGE).as_posix(), set())
    names = [(line, text) for line, text in literals(path) if is_series_name(text) and text not in homonyms]
    assert names == [], f"{path}: import these names from torchtriage.recording.series"


@pytest.mark.parametrize(
    "program", ['row["ppo/kl"]', 'f"grad_norm/{name}"', 'x = ("loss", 1)', 'name.startswith("lstm/")'],
)
def test_a_literal_is_recognised(program: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(program)
    assert any(is_series_name(text) for _, text in literals(path))


def test_every_homonym_is_still_used() -> None:
    for name, words in HOMONYMS.items():
        assert words <= {text for _, text in literals(PACKAGE / name)}
