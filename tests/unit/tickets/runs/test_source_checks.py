"""A verification box is judged from the source, with the line that shows it."""

from pathlib import Path

import pytest

from tests.unit.tickets.runs.trees import MENDED, NORMALIZATION, SICK, STATE, TELEMETRY, write_tree
from tests.unit.tickets.samples import TICKETS, seed
from torchtriage.tickets.runs.call_graph import Project
from torchtriage.tickets.runs.source_checks import fact_for

FUNCTION = "collect_per_layer_gradients"


def facts(root: Path) -> dict[str, str]:
    """What the source says about each box of the seed tickets: the reason of those that hold."""
    holding = {}
    for name in TICKETS:
        for box in seed(name).ticket.verification:
            fact = fact_for(box.text, seed(name).ticket, Project(root))
            if fact is not None and fact.holds:
                holding[box.text] = fact.reason
    return holding


def test_the_mended_tree_holds_seven_of_the_nine_boxes_each_with_its_line(tmp_path: Path) -> None:
    assert facts(write_tree(tmp_path, MENDED)) == {
        "Add docstring warning about torch.compile": f"the docstring of {FUNCTION} warns at {TELEMETRY}:9",
        "Optionally add @torch.compiler.disable decorator":
            f"{FUNCTION} is decorated with torch.compiler.disable at {TELEMETRY}:5",
        "Verify debug code is not in compiled paths":
            f"{FUNCTION} is decorated with torch.compiler.disable at {TELEMETRY}:5",
        "Add warnings.warn for device migration":
            f"RunningMeanStd.update calls warnings.warn at {NORMALIZATION}:16; "
            f"RunningMeanStd.normalize calls warnings.warn at {NORMALIZATION}:10",
        "Test that warning appears when expected":
            "test_the_stats_say_that_they_move at tests/test_all.py:5 names RunningMeanStd and expects a warning",
        "Either flatten keys or ensure access is outside compiled regions":
            f"the keys of cf_pair_accums are int at {STATE}:8",
        "Add test for torch.compile compatibility":
            "test_the_state_compiles at tests/test_all.py:10 names ParallelEnvState and calls torch.compile",
    }


def test_the_sick_tree_holds_none(tmp_path: Path) -> None:
    assert facts(write_tree(tmp_path, SICK)) == {}


def test_an_empty_tree_decides_nothing(tmp_path: Path) -> None:
    assert facts(tmp_path) == {}
    fact = fact_for("Add warnings.warn for device migration", seed("B5-PT-06").ticket, Project(tmp_path))
    assert fact is not None
    assert fact.holds is None


@pytest.mark.parametrize("text", [
    "Remove @torch.compiler.disable decorator", "Test that no warning appears", "No functional change",
    "Profile with TORCH_LOGS=graph_breaks to detect issues", "Add test for overflow of the counter",
])
def test_a_box_that_asks_for_something_else_has_no_rule(tmp_path: Path, text: str) -> None:
    project = Project(write_tree(tmp_path, MENDED))
    assert all(fact_for(text, seed(name).ticket, project) is None for name in TICKETS)


def test_every_function_of_the_ticket_has_to_warn(tmp_path: Path) -> None:
    silent = MENDED[NORMALIZATION].replace("        self._follow(x)\n", "        self.mean = x\n")
    project = Project(write_tree(tmp_path, {**MENDED, NORMALIZATION: silent}))
    fact = fact_for("Add warnings.warn for device migration", seed("B5-PT-06").ticket, project)
    assert fact is not None
    assert (fact.holds, fact.reason) == (
        False, f"RunningMeanStd.update at {NORMALIZATION}:5 does not call warnings.warn about device",
    )


def test_source_outside_the_project_is_read_too(tmp_path: Path) -> None:
    outside = write_tree(tmp_path / "outside", MENDED)
    (tmp_path / "project").mkdir()
    project = Project(tmp_path / "project", [outside / "src", outside / TELEMETRY])
    fact = fact_for("Add @torch.compiler.disable decorator", seed("B7-PT-07").ticket, project)
    assert fact is not None
    assert fact.holds
