"""A finding is frozen, and its defaults claim nothing."""

import dataclasses

import pytest

from tests.unit.samples import a_finding
from torchtriage.findings.model import NOT_MEASURED, Category, CostKind, Location, Owner, OwnerKind, Severity


def test_p0_is_the_worst() -> None:
    assert min(Severity) is Severity.P0
    assert sorted(Severity) == [Severity.P0, Severity.P1, Severity.P2, Severity.P3, Severity.P4]


def test_there_are_twelve_categories() -> None:
    assert {str(c) for c in Category} == {
        "correctness bug", "race condition / concurrency", "memory leak / resource", "performance bottleneck",
        "numerical stability", "torch.compile compatibility", "dead code / unwired", "API design / contract",
        "test coverage gap", "documentation / naming", "defensive programming", "legacy code",
    }


def test_an_unmeasured_cost_has_no_number() -> None:
    assert (NOT_MEASURED.seconds, NOT_MEASURED.share, NOT_MEASURED.ms_per_step) == (None, None, None)
    assert NOT_MEASURED.kind is CostKind.NOT_MEASURED


@pytest.mark.parametrize(("place", "text"), [
    (Location(path="a.py", line=3, function="f"), "a.py:3"),
    (Location(path="a.py"), "a.py"),
    (Location(path="unknown", line=None), "unknown"),
])
def test_a_location_is_path_and_line(place: Location, text: str) -> None:
    assert str(place) == text


@pytest.mark.parametrize(("owner", "text"), [
    (Owner(kind=OwnerKind.YOU), "you"),
    (Owner(kind=OwnerKind.TORCH), "torch"),
    (Owner(kind=OwnerKind.LIBRARY, name="transformers", version="4.57"), "transformers 4.57"),
    (Owner(kind=OwnerKind.LIBRARY, name="transformers"), "transformers"),
])
def test_an_owner_names_the_library_and_its_version(owner: Owner, text: str) -> None:
    assert str(owner) == text


def test_a_finding_is_frozen_and_changes_by_copy() -> None:
    original = a_finding()
    changed = original.with_(severity=Severity.P1)
    assert (original.severity, changed.severity, changed.code) == (Severity.P3, Severity.P1, original.code)
    with pytest.raises(dataclasses.FrozenInstanceError):
        original.severity = Severity.P0  # type: ignore[misc]


def test_changing_a_field_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(TypeError):
        a_finding().with_(serverity=Severity.P1)
