"""Findings of the learning rules in general: series and live anomalies, folding, fingerprints, speed."""

import math
import random
import time
from array import array
from pathlib import Path

from tests.unit.diagnosis.learning.samples import a_training, findings_of, noise
from tests.unit.samples import a_process, a_recording
from torchtriage.diagnosis.diagnose import diagnose
from torchtriage.diagnosis.history.build import history
from torchtriage.diagnosis.learning import contracts, policy_contracts, replicas
from torchtriage.diagnosis.learning.finding import RULES
from torchtriage.diagnosis.learning.replay import breaches
from torchtriage.diagnosis.learning.rules.tensors import TENSOR_QUANTITIES
from torchtriage.diagnosis.learning.watch import QUANTITIES, is_quantity
from torchtriage.findings import catalogue
from torchtriage.findings.history import MomentKind
from torchtriage.findings.model import SampledValue, Severity
from torchtriage.recording.events import Anomaly, from_payload, to_payload
from torchtriage.recording.recording import Series

EXTREME = Anomaly(
    time=104.0, step=7, code="TT608", subject="ppo/kl", value=0.9, threshold=0.5,
    text="KL divergence 0.9 in one update",
)
LEARNING_CODES = [code for code in catalogue.codes() if code.startswith(("TT4", "TT5", "TT6"))]


# Healthy trainings

def test_a_recording_without_telemetry_has_no_finding() -> None:
    assert findings_of(a_training(step_seconds=[0.1] * 50)) == {}


def test_a_healthy_training_has_no_finding() -> None:
    training = a_training(
        loss=[2.0 * 0.99**step + value for step, value in enumerate(noise(400, 0.3, 0.1))],
        grad_norm=noise(400, 0.8, 0.5), grad_norm_after_clip=[min(1.0, norm) for norm in noise(400, 0.8, 0.5)],
        update_ratio__all=[1e-3] * 400, grad_norm__a=noise(400, seed=1), grad_norm__b=noise(400, 0.01, seed=2),
        weight_norm__a=[5 + 0.001 * step for step in range(400)], grad_nan__a=[0.0] * 400,
        grad_zero_fraction__a=[0.3] * 400, grad_health=[1.0] * 400,
    )
    assert findings_of(training) == {}


def test_noise_alone_gives_no_finding_in_a_hundred_runs() -> None:
    for seed in range(100):
        losses = [3.0 * 0.995**step + value for step, value in enumerate(noise(300, 0.5, 0.2, seed))]
        assert findings_of(a_training(loss=losses, grad_norm=noise(300, 0.5, 0.5, seed + 1000))) == {}


def test_a_million_points_of_a_healthy_run_are_read_quickly() -> None:
    draw = random.Random(0)
    steps = array("f", range(0, 4000, 2))
    ranges = {
        "grad_norm": (0.1, 0.9), "weight_norm": (1.0, 9.0), "grad_nan": (0, 0), "grad_inf": (0, 0),
        "grad_zero_fraction": (0.1, 0.2),
    }
    series = {}
    for tensor in range(100):
        for quantity, (low, high) in ranges.items():
            name = f"{quantity}/layers.{tensor}.weight"
            values = array("f", (draw.uniform(low, high) for _ in steps))
            series[name] = Series(name=name, steps=steps, values=values)
    for name in ("loss", "grad_norm", "ppo/kl"):
        values = array("f", sorted((draw.uniform(0.01, 0.05) for _ in steps), reverse=True))
        series[name] = Series(name=name, steps=steps, values=values)
    process = a_process(series=series)
    start = time.process_time()
    assert findings_of(process) == {}
    assert time.process_time() - start < 3.0        # about 0.2 s on an idle machine


# Live anomalies

def test_a_live_anomaly_is_reported_without_a_series() -> None:
    finding = findings_of(a_training(EXTREME))["TT608"]
    assert (finding.title, finding.severity) == ("KL divergence 0.9 in one update (step 7)", Severity.P2)
    assert finding.steps == (7,)
    assert finding.evidence.values == (SampledValue(text="0.9", number=0.9, step=7),)


def test_a_live_anomaly_that_the_series_shows_too_is_counted_once() -> None:
    training = a_training(EXTREME, ppo__kl=[0.01] * 6 + [0.9, 0.7])
    assert [breach.step for breach in breaches(training)] == [7, 8]
    finding = findings_of(training)["TT608"]
    assert finding.evidence.num_events == 2
    assert finding.title == "KL divergence 0.9 in one update (step 7; twice in steps 7 to 8)"


def test_anomalies_of_a_tensor_and_of_the_total_are_one_finding() -> None:
    total = Anomaly(
        step=4, code="TT402", subject="grad_norm", value=math.nan, threshold=math.inf, text="the gradient norm is NaN",
    )
    tensor = Anomaly(
        step=4, code="TT402", subject="fc", value=math.nan, threshold=math.inf, text="2 NaN in the gradient of fc",
    )
    assert findings_of(a_training(total, tensor))["TT402"].title == "2 NaN in the gradient of fc (step 4)"


def test_an_anomaly_of_a_later_version_is_ignored() -> None:
    later, other = Anomaly(step=1, code="TT699", text="new"), Anomaly(step=1, code="TT101", text="odd")
    assert findings_of(a_training(later, other)) == {}


def test_an_anomaly_survives_the_recording_including_nan() -> None:
    event = Anomaly(
        time=3.0, step=7, code="TT601", subject="ppo/kl", value=math.nan, threshold=math.inf, text="kl is NaN",
    )
    restored = from_payload("anomaly", to_payload(event), time=3.0, step=7)
    assert isinstance(restored, Anomaly)
    assert (restored.code, restored.threshold, restored.text) == ("TT601", math.inf, "kl is NaN")
    assert math.isnan(restored.value)


def test_an_anomaly_is_a_moment_of_the_timeline_that_links_to_its_finding() -> None:
    recording = a_recording(a_training(EXTREME, facts={"start": 100.0}))
    [finding] = [f for f in diagnose(recording) if f.code == "TT608"]
    [moment] = history(recording, diagnose(recording)).moments
    assert (moment.kind, moment.time, moment.step, moment.label) == (MomentKind.ANOMALY, 4.0, 7, "TT608 ppo/kl")
    assert (moment.fingerprint, moment.detail) == (finding.fingerprint, EXTREME.text)


def test_the_moment_of_a_folded_anomaly_links_to_the_finding_it_is_folded_into() -> None:
    low = Anomaly(
        time=101.0, step=3, code="TT607", subject="ppo/entropy", value=0.2, threshold=0.3,
        text="normalised entropy 0.2",
    )
    collapsed = Anomaly(
        time=102.0, step=9, code="TT606", subject="ppo/entropy", value=0.05, threshold=0.1,
        text="normalised entropy 0.05",
    )
    recording = a_recording(a_training(low, collapsed, facts={"start": 100.0}))
    [finding] = [f for f in diagnose(recording) if f.code.startswith("TT6")]
    moments = history(recording, diagnose(recording)).moments
    assert {moment.fingerprint for moment in moments} == {finding.fingerprint}


# Series

def test_a_series_with_a_nan_step_does_not_stop_the_report() -> None:
    series = {}
    for name in ("loss", "grad_norm/a"):
        series[name] = Series(name=name, steps=[1.0, math.nan, 3.0], values=[1.0, 1.0, math.nan])
    assert findings_of(a_process(series=series))["TT401"].steps == (3,)


def test_series_that_were_downsampled_to_different_steps_are_joined_by_step() -> None:
    points = {
        "ppo/value_loss": ([1, 5, 6, 7, 9], [1, 9, 9, 9, 1]), "ppo/explained_variance": ([1, 9], [0.9, 0.9]),
    }
    series = {}
    for name, (steps, values) in points.items():
        series[name] = Series(name=name, steps=array("f", steps), values=array("f", values))
    assert findings_of(a_process(series=series))["TT605"].steps == (5, 6, 7)


# Findings

def test_ranks_with_the_same_problem_give_one_finding() -> None:
    ranks = [a_training(loss=[1.0, math.nan], facts={"rank": rank}) for rank in (0, 1)]
    [finding] = diagnose(a_recording(*ranks, origin="watch"))
    assert (finding.code, finding.ranks) == ("TT401", (0, 1))


def test_values_and_steps_are_not_part_of_a_fingerprint() -> None:
    fingerprints = set()
    for losses in ([1.0, math.nan], [1.0, 2.0, math.inf]):
        fingerprints.add(findings_of(a_training(loss=losses))["TT401"].fingerprint)
    assert len(fingerprints) == 1


# The set of rules

def test_every_learning_rule_of_the_catalogue_exists() -> None:
    assert sorted([*RULES, *contracts.TEXTS, *policy_contracts.TEXTS, replicas.CODE]) == LEARNING_CODES


def test_every_quantity_and_every_rule_is_explained_in_the_docs() -> None:
    page = (Path(__file__).parents[4] / "docs" / "metrics.md").read_text()
    names = [*QUANTITIES, *(f"{name}/NAME" for name in TENSOR_QUANTITIES)]
    assert [name for name in names if f"`{name}`" not in page] == []
    assert [code for code in LEARNING_CODES if code not in page] == []


def test_quantities_are_recognized_by_name() -> None:
    assert all(map(is_quantity, ("loss", "ppo/entropy/op", "update_ratio/actor", "lstm/has_nan")))
    assert not any(map(is_quantity, ("step_seconds", "grad_norm/fc.weight", "ppo/return")))
