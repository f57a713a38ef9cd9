"""Each example gives its findings on this torch, and none of them when cured."""

import functools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.programs import command, write

EXAMPLES = Path(__file__).parents[2] / "examples"
EXPECTED = {
    "stack_over_layers": {"TT104"},
    "device_migration": {"TT212"},
    "tuple_keys": {"TT216"},
    "growing_cache": {"TT202", "TT301"},
    "print_and_branch": {"TT101", "TT103"},
    "lr_schedule": {"TT205"},
    "ragged_last_batch": {"TT203"},
    "layer_index": {"TT207", "TT301"},
    "flex_decode": {"TT301"},
}

QUICK = ("print_and_branch", "growing_cache")

ALL_CURED = """
    import runpy
    import sys
    import torch

    paths, sys.argv[1:] = sys.argv[1:], ["--cured"]
    for path in paths:
        runpy.run_path(path, run_name="__main__")
        torch._dynamo.reset()
"""


@pytest.fixture(scope="module")
def report_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict]:
    """The report of an example; each is run once."""
    return functools.cache(lambda name: report_in(tmp_path_factory.mktemp(name), example(name)))


@pytest.fixture(scope="module")
def cured(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The report of all examples, cured, one after the other."""
    folder = tmp_path_factory.mktemp("cured")
    report = report_in(folder, str(write(folder, ALL_CURED)), *map(example, EXPECTED))
    assert report["totals"]["compiles"] >= len(EXPECTED)
    return report


def example(name: str) -> str:
    return str(EXAMPLES / f"{name}.py")


def report_in(folder: Path, *words: str) -> dict:
    done = command(folder, "run", "-o", "x.triage", "-q", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(command(folder, "report", "x.triage", "--format", "json", "--events").stdout)


@pytest.mark.parametrize("name", [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.thorough) for name in EXPECTED
])
def test_a_sick_example_gives_its_findings(name: str, report_of: Callable[[str], dict]) -> None:
    report = report_of(name)
    found = {f["code"]: f for f in report["findings"]}
    assert set(found) >= EXPECTED[name]
    for code in EXPECTED[name]:
        finding = found[code]
        assert finding["path"].endswith(f"{name}.py")
        assert finding["line"]
        assert finding["cause"]
        assert finding["fix"]["text"]
        assert finding["cost"]["kind"] in ("observed", "not measured")
        assert finding["owner"]["kind"] == "you"


@pytest.mark.thorough
@pytest.mark.parametrize("name", EXPECTED)
def test_a_cured_example_has_none_of_them(name: str, cured: dict) -> None:
    assert not {f["code"] for f in cured["findings"] if f["path"].endswith(f"{name}.py")} & (EXPECTED[name] | {"TT217"})


@pytest.mark.thorough
def test_a_stack_over_layers_recompiles_per_layer_count_and_breaks_at_tolist(report_of: Callable[[str], dict]) -> None:
    report = report_of("stack_over_layers")
    assert {e["line"] for e in report["events"]["graph_breaks"]} == {18}
    assert sum(e["function"] == "telemetry_in_the_graph" for e in report["events"]["recompiles"]) == 4


@pytest.mark.thorough
def test_a_device_change_recompiles_and_does_not_break(report_of: Callable[[str], dict]) -> None:
    totals = report_of("device_migration")["totals"]
    assert totals["graph_breaks"] == 0
    assert totals["recompiles"] >= 1


@pytest.mark.thorough
def test_tuple_keys_recompile_once_per_key_and_do_not_break(report_of: Callable[[str], dict]) -> None:
    totals = report_of("tuple_keys")["totals"]
    assert totals["graph_breaks"] == 0
    assert totals["recompiles"] == 5    # six pairs
