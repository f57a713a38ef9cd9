"""The learning rules as a whole: live anomalies and series together, marks on the timeline, limits, speed."""

import dataclasses
import math
import random
import re
import time
from array import array
from pathlib import Path

import pytest

from tests.unit.diagnosis.learning_samples import a_training, found, noise
from tests.unit.samples import a_process, a_recording
from torchtriage.diagnosis.diagnose import diagnose
from torchtriage.diagnosis.history.build import history
from torchtriage.diagnosis.learning import limits as learning_limits
from torchtriage.diagnosis.learning.finding import RULES
from torchtriage.diagnosis.learning.limits import DEFAULT, LearningLimits, limits_for, limits_from
from torchtriage.diagnosis.learning.replay import breaches
from torchtriage.diagnosis.learning.rules.tensors import TENSOR_QUANTITIES, float32
from torchtriage.diagnosis.learning.watch import QUANTITIES, is_quantity
from torchtriage.findings import catalogue
from torchtriage.findings.history import MomentKind
from torchtriage.findings.model import SampledValue, Severity
from torchtriage.recording.events import Anomaly, from_payload, to_payload
from torchtriage.recording.recording import Series

EXTREME = Anomaly(time=104.0, step=7, code="TT608", subject="ppo/kl", value=0.9, threshold=0.5, text="KL divergence 0.9 in one update")


def test_an_anomaly_that_was_seen_live_is_told_without_a_series() -> None:
    finding = found(a_training(EXTREME))["TT608"]
    assert (finding.title, finding.steps, finding.severity) == ("KL divergence 0.9 in one update (step 7)", (7,), Severity.P2)
    assert finding.evidence.values == (SampledValue(text="0.9", number=0.9, step=7),)


def test_what_the_series_shows_too_is_counted_once() -> None:
    training = a_training(EXTREME, ppo__kl=[0.01] * 6 + [0.9, 0.7])
    assert [breach.step for breach in breaches(training)] == [7, 8]
    assert found(training)["TT608"].evidence.num_events == 2


def test_an_anomaly_of_a_tensor_and_of_the_whole_are_told_as_one() -> None:
    whole = Anomaly(step=4, code="TT402", subject="grad_norm", value=math.nan, threshold=math.inf, text="the gradient norm is NaN")
    tensor = Anomaly(step=4, code="TT402", subject="fc", value=math.nan, threshold=math.inf, text="2 NaN in the gradient of fc")
    assert found(a_training(whole, tensor))["TT402"].title == "2 NaN in the gradient of fc (step 4)"


def test_a_series_with_a_step_that_is_no_number_does_not_stop_the_report() -> None:
    odd = {name: Series(name=name, steps=[1.0, math.nan, 3.0], values=[1.0, 1.0, math.nan]) for name in ("loss", "grad_norm/a")}
    assert found(a_process(series=odd))["TT401"].steps == (3,)


def test_an_anomaly_of_a_later_version_is_passed_over() -> None:
    assert found(a_training(Anomaly(step=1, code="TT699", text="new"), Anomaly(step=1, code="TT101", text="odd"))) == {}


def test_an_anomaly_survives_the_recording_nan_included() -> None:
    event = Anomaly(time=3.0, step=7, code="TT601", subject="ppo/kl", value=math.nan, threshold=math.inf, text="kl is NaN")
    back = from_payload("anomaly", to_payload(event), time=3.0, step=7)
    assert isinstance(back, Anomaly)
    assert (back.code, back.threshold, back.text, math.isnan(back.value)) == ("TT601", math.inf, "kl is NaN", True)


def test_an_anomaly_is_a_mark_on_the_timeline_that_leads_to_its_finding() -> None:
    recording = a_recording(a_training(EXTREME, facts={"start": 100.0}))
    [finding] = [f for f in diagnose(recording) if f.code == "TT608"]
    [moment] = history(recording, diagnose(recording)).moments
    assert (moment.kind, moment.time, moment.step, moment.label) == (MomentKind.ANOMALY, 4.0, 7, "TT608 ppo/kl")
    assert (moment.fingerprint, moment.detail) == (finding.fingerprint, EXTREME.text)


def test_a_mark_of_what_is_told_under_another_finding_leads_there() -> None:
    low = Anomaly(time=101.0, step=3, code="TT607", subject="ppo/entropy", value=0.2, threshold=0.3, text="normalised entropy 0.2")
    gone = Anomaly(time=102.0, step=9, code="TT606", subject="ppo/entropy", value=0.05, threshold=0.1, text="normalised entropy 0.05")
    recording = a_recording(a_training(low, gone, facts={"start": 100.0}))
    [finding] = [f for f in diagnose(recording) if f.code.startswith("TT6")]
    assert {moment.fingerprint for moment in history(recording, diagnose(recording)).moments} == {finding.fingerprint}


def test_ranks_with_the_same_problem_give_one_finding() -> None:
    ranks = [a_training(loss=[1.0, math.nan], facts={"rank": rank}) for rank in (0, 1)]
    [finding] = diagnose(a_recording(*ranks, origin="watch"))
    assert (finding.code, finding.ranks) == ("TT401", (0, 1))


def test_values_and_steps_are_no_part_of_a_fingerprint() -> None:
    marks = {found(a_training(loss=losses))["TT401"].fingerprint for losses in ([1.0, math.nan], [1.0, 2.0, math.inf])}
    assert len(marks) == 1


def test_points_of_a_series_that_was_thinned_out_on_its_own_are_joined_by_step() -> None:
    series = {
        "ppo/value_loss": Series(name="ppo/value_loss", steps=array("f", [1, 5, 6, 7, 9]), values=array("f", [1, 9, 9, 9, 1])),
        "ppo/explained_variance": Series(name="ppo/explained_variance", steps=array("f", [1, 9]), values=array("f", [0.9, 0.9])),
    }
    assert found(a_process(series=series))["TT605"].steps == (5, 6, 7)


def test_a_million_points_of_a_healthy_run_are_read_quickly() -> None:
    draw = random.Random(0)
    steps = array("f", range(0, 4000, 2))
    series = {}
    for tensor in range(100):
        for quantity, low, high in (("grad_norm", 0.1, 0.9), ("weight_norm", 1.0, 9.0), ("grad_nan", 0, 0), ("grad_inf", 0, 0),
                                    ("grad_zero_fraction", 0.1, 0.2)):
            name = f"{quantity}/layers.{tensor}.weight"
            series[name] = Series(name=name, steps=steps, values=array("f", (draw.uniform(low, high) for _ in steps)))
    for name in ("loss", "grad_norm", "ppo/kl"):
        series[name] = Series(name=name, steps=steps, values=array("f", sorted((draw.uniform(0.01, 0.05) for _ in steps), reverse=True)))
    process = a_process(series=series)
    start = time.perf_counter()
    assert found(process) == {}
    assert time.perf_counter() - start < 3.0        # about 0.2 s on an idle machine


# Limits

def test_the_limits_that_a_run_was_watched_with_decide_its_report() -> None:
    assert found(a_training(ppo__kl=[0.01, 0.6], facts={"learning_limits": {"kl_extreme": 1.0}})) == {}


@pytest.mark.parametrize("told", [
    None, "odd", {"no_such_limit": 3}, {"kl_extreme": "high"}, {"window": 1}, {"window": 2.5}, {"window": True},
])
def test_limits_that_make_no_sense_are_left_out(told: object) -> None:
    assert limits_from(a_process(learning_limits=told).learning.learning_limits) == DEFAULT


def test_changed_limits_come_back() -> None:
    changed = limits_for(kl_extreme=1.0, window=30)
    assert changed.changed() == {"kl_extreme": 1.0, "window": 30}
    assert limits_from(changed.changed()) == changed


def test_a_wrong_name_or_preset_is_refused_with_what_there_is() -> None:
    with pytest.raises(TypeError, match="no limit named 'kl_extrem'; did you mean 'kl_extreme'"):
        limits_for(kl_extrem=1.0)
    with pytest.raises(ValueError, match="one of default, sagemaker, got 'strict'"):
        limits_for("strict")
    with pytest.raises(ValueError, match="window must be at least 2 observations, got 1"):
        LearningLimits(window=1)


def test_the_preset_has_the_numbers_of_sagemaker_debugger() -> None:
    preset = learning_limits.SAGEMAKER
    assert (preset.vanishing_norm, preset.update_ratio_min, preset.update_ratio_max) == (1e-7, 1e-8, 10.0)
    assert (preset.unchanged_patience, preset.unchanged_rtol, preset.loss_block) == (3, 1e-5, 10)
    facts = {"learning_limits": preset.changed()}
    assert list(found(a_training(grad_norm__a=[1.0] * 9, weight_norm__a=[2.0 + 1e-6 * s for s in range(9)], facts=facts))) == ["TT416"]


def test_every_limit_is_read_by_a_rule() -> None:
    folder = Path(learning_limits.__file__).parent / "rules"
    rules = "".join(path.read_text() for path in folder.glob("*.py"))
    names = [field.name for field in dataclasses.fields(LearningLimits)]
    assert [name for name in names if not re.search(rf"\blimits\.{name}\b", rules)] == []


def test_every_learning_rule_of_the_catalogue_exists() -> None:
    assert sorted(RULES) == [code for code in catalogue.codes() if code.startswith(("TT4", "TT5", "TT6"))]


def test_every_quantity_is_explained_with_its_rule() -> None:
    page = (Path(__file__).parents[4] / "docs" / "metrics.md").read_text()
    assert [name for name in (*QUANTITIES, *(f"{name}/NAME" for name in TENSOR_QUANTITIES)) if f"`{name}`" not in page] == []
    assert [code for code in catalogue.codes() if code.startswith(("TT4", "TT5", "TT6")) and code not in page] == []


def test_quantities_are_known_by_name() -> None:
    assert all(map(is_quantity, ("loss", "ppo/entropy/op", "update_ratio/actor", "lstm/has_nan")))
    assert not any(map(is_quantity, ("step_seconds", "grad_norm/fc.weight", "ppo/return")))


@pytest.mark.parametrize(("value", "kept"), [(0.1, 0.10000000149011612), (1e300, math.inf), (0.0, 0.0)])
def test_a_number_is_rounded_as_a_recording_rounds_it(value: float, kept: float) -> None:
    assert float32(value) == kept


def test_noise_alone_gives_nothing_in_a_hundred_runs() -> None:
    for seed in range(100):
        losses = [3.0 * 0.995**step + value for step, value in enumerate(noise(300, 0.5, 0.2, seed))]
        assert found(a_training(loss=losses, grad_norm=noise(300, 0.5, 0.5, seed + 1000))) == {}
