"""The setting of a proof goes through an environment variable and is checked."""

import pytest

from torchtriage.capture.proof.numbers_file import is_recorded
from torchtriage.capture.proof.setting import ProofSetting, parse_setting


def test_a_setting_is_read_as_it_was_written() -> None:
    setting = ProofSetting(seed=3, steps=5, eager=True, draws="step", rounding=2, paused="/tmp/p")
    assert parse_setting(setting.to_json()) == setting
    assert parse_setting(ProofSetting().to_json()) == ProofSetting()


@pytest.mark.parametrize(("text", "problem"), [
    ("{", "not JSON"), ("[]", "must be a JSON object"), ('{"sed": 1}', '"sed" is not a field'),
    ('{"steps": "3"}', '"steps" must be of type int'), ('{"eager": 1}', '"eager" must be of type bool'),
])
def test_a_setting_that_cannot_be_read_names_the_problem(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_setting(text)


def test_the_first_steps_are_all_recorded_and_later_ones_more_rarely() -> None:
    assert all(map(is_recorded, range(1, 65)))
    assert sum(map(is_recorded, range(65, 129))) == 32
    assert sum(map(is_recorded, range(1, 10_001))) < 400
