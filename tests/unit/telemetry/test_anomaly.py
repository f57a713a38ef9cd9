"""AnomalyDetector applies the learning rules to live values."""

import copy
import json
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.diagnosis.learning.samples import of_series
from torchtriage.diagnosis.learning.replay import breaches
from torchtriage.telemetry.anomaly import AnomalyDetector, AnomalyReport

NAN, INF = math.nan, math.inf


def types(report: AnomalyReport) -> list[str]:
    return report.anomaly_types


def test_without_input_nothing_is_checked() -> None:
    report = AnomalyDetector().check_all()
    assert (report.has_anomaly, report.anomaly_types, report.details, report.codes) == (False, [], {}, [])


@pytest.mark.parametrize(("most", "least", "expected"), [
    (1.2, 0.8, []), (5.0, 0.1, []), (5.1, 0.8, ["ratio_explosion"]), (1.2, 0.05, ["ratio_collapse"]),
    (9.0, 0.01, ["ratio_explosion", "ratio_collapse"]),
    (NAN, 0.01, ["ratio_nan_inf"]), (9.0, INF, ["ratio_nan_inf"]),
])
def test_ratios_out_of_range_are_anomalies(most: float, least: float, expected: list[str]) -> None:
    assert types(AnomalyDetector().check_ratios(most, least)) == expected


def test_value_loss_is_judged_and_explained_variance_is_a_diagnostic() -> None:
    detector = AnomalyDetector()
    report = detector.check_value_function(-0.3, 20, 100)
    assert not report.has_anomaly
    assert report.diagnostics == ("explained variance -0.3 is below -0.2, the minimum expected in the early phase",)
    assert types(detector.check_value_function(-0.3, 20, 100, value_loss=5.1)) == ["value_collapse"]
    assert types(detector.check_value_function(bellman_error=5.1)) == ["value_collapse"]


@pytest.mark.parametrize(
    ("episode", "variance", "is_noted"),
    [
        (5, -0.4, False),
        (5, -0.6, True),
        (15, -0.3, True),
        (50, -0.1, True),
        (50, 0.05, False),
        (75, 0.05, True),
        (100, 0.2, False),
    ],
)
def test_expected_explained_variance_grows_with_the_phase(episode: int, variance: float, is_noted: bool) -> None:
    assert bool(AnomalyDetector().check_value_function(variance, episode, 100).diagnostics) is is_noted


@pytest.mark.parametrize(("episode", "total"), [(0, 100), (-1, 100), (1, 0), (5, None), (None, 5)])
def test_impossible_episode_counts_are_refused(episode: Any, total: Any) -> None:
    with pytest.raises(ValueError, match="must be given together and be above 0, got"):
        AnomalyDetector().check_value_function(0.1, episode, total)


def test_nan_explained_variance_is_ignored() -> None:
    report = AnomalyDetector().check_all(explained_variance=NAN, value_loss=0.5, current_episode=50, total_episodes=100)
    assert (report.has_anomaly, report.diagnostics) == (False, ())


def test_numerical_stability_by_place() -> None:
    detector = AnomalyDetector()
    assert not detector.check_numerical_stability(False, False).has_anomaly
    assert detector.check_numerical_stability(True, False).codes == ["TT402"]
    assert detector.check_numerical_stability(False, True, where="weights").codes == ["TT403"]
    assert types(detector.check_numerical_stability(True, True, where="loss")) == ["numerical_instability"]
    with pytest.raises(ValueError, match="where must be one of loss, gradients, weights, got 'bias'"):
        detector.check_numerical_stability(True, True, where="bias")


def test_entropy_collapse_needs_three_updates_and_ends_well_above_the_limit() -> None:
    detector = AnomalyDetector()
    results = [
        types(detector.check_entropy_collapse(entropy)) for entropy in (0.05, 0.05, 0.05, 0.14, 0.16, 0.44, 0.46)
    ]
    assert results == [[], [], ["entropy_collapse"], ["entropy_collapse"], ["entropy_low"], ["entropy_low"], []]


def test_each_head_has_its_own_streak() -> None:
    detector = AnomalyDetector()
    for _ in range(2):
        assert not detector.check_entropy_collapse({"op": 0.05, "slot": 0.9}).has_anomaly
    assert not detector.check_entropy_collapse({"op": 0.9, "slot": 0.05}).has_anomaly


def test_entropy_that_is_not_normalised_is_refused_with_a_remedy() -> None:
    with pytest.raises(
        ValueError, match=r"ppo/entropy must be normalised to 0\.\.1, got 1\.4; divide it by the logarithm"
    ):
        AnomalyDetector().check_entropy_collapse(1.4)


@pytest.mark.parametrize(
    ("kl", "expected"), [(0.1, []), (0.2, ["kl_spike"]), (0.6, ["kl_extreme"]), (NAN, ["numerical_instability"])]
)
def test_kl(kl: float, expected: list[str]) -> None:
    assert types(AnomalyDetector().check_kl_divergence(kl)) == expected


def test_drift_of_the_tracker_is_judged() -> None:
    detector = AnomalyDetector()
    assert types(detector.check_gradient_drift(0.6, 0.7)) == ["gradient_norm_drift", "gradient_health_drift"]
    assert not detector.check_gradient_drift(0.5, 0.1).has_anomaly


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"lstm/has_nan": 1.0, "lstm/has_inf": 1.0}, ["lstm_nan", "lstm_inf"]),
        ({"lstm/h_rms_max": 11.0}, ["lstm_h_explosion"]),
        ({"lstm/c_rms_max": 11.0}, ["lstm_c_explosion"]),
        ({"lstm/h_rms": 1e-7}, ["lstm_h_vanishing"]),
        ({"lstm/c_rms": 0.0, "lstm/c_rms_max": 0.5}, ["lstm_c_vanishing"]),
        ({"lstm/h_rms": 0.3, "lstm/h_rms_max": 9.9}, []),
    ],
)
def test_recurrent_state(values: dict[str, float], expected: list[str]) -> None:
    assert types(AnomalyDetector().check_lstm_health(values)) == expected


def test_metrics_of_compute_lstm_health_are_accepted() -> None:
    torch = pytest.importorskip("torch")
    from torchtriage.telemetry.ppo.lstm_health import compute_lstm_health

    state = (torch.full((1, 2, 3), 0.2), torch.full((1, 2, 3), 30.0))
    assert types(AnomalyDetector().check_lstm_health(compute_lstm_health(state))) == ["lstm_c_explosion"]


def test_check_all_runs_every_check_whose_inputs_are_given() -> None:
    detector = AnomalyDetector()
    everything: dict[str, Any] = {
        "max_ratio": 9.0,
        "min_ratio": 0.01,
        "value_loss": 9.0,
        "has_nan": True,
        "has_inf": False,
        "entropy": 0.01,
        "kl": 0.9,
        "norm_drift": 0.9,
        "health_drift": 0.9,
        "lstm": {"lstm/h_rms_max": 99.0, "lstm/c_rms": 0.0},
        "metrics": {"loss": NAN, "ppo/advantage_std": 0.0},
        "tensors": {"fc": {"grad_norm": 1.0, "grad_nan": 3.0}},
    }
    for _ in range(3):
        report = detector.check_all(**everything)
    assert set(report.anomaly_types) == {
        "ratio_explosion",
        "ratio_collapse",
        "value_collapse",
        "numerical_instability",
        "entropy_collapse",
        "kl_extreme",
        "gradient_norm_drift",
        "gradient_health_drift",
        "lstm_h_explosion",
        "lstm_c_vanishing",
        "advantages_flat",
    }
    # The loss, the flag and the tensor: all texts, not the last.
    assert len(report.details["numerical_instability"]) == 3


def test_continuing_anomaly_starts_once_and_again_after_its_end() -> None:
    detector = AnomalyDetector()
    starts = [len(detector.check_kl_divergence(kl, step=step).started) for step, kl in enumerate((0.6, 0.7, 0.01, 0.6))]
    assert starts == [1, 0, 0, 1]
    detector.check_ratios(9.0, 0.5)
    assert not detector.check_kl_divergence(0.6).started     # a check of something else ended nothing


def test_starting_anomaly_is_an_event_for_the_recording() -> None:
    [event] = AnomalyDetector().check_kl_divergence(0.6, step=12).events(time=5.0, rank=1)
    assert (event.code, event.step, event.rank, event.subject, event.value, event.threshold) == (
        "TT608",
        12,
        1,
        "ppo/kl",
        0.6,
        0.5,
    )
    assert event.text == "KL divergence 0.6 in one update"


def test_limits_are_fields_of_the_one_table() -> None:
    assert AnomalyDetector().limits.ratio_max == 5.0
    assert types(AnomalyDetector(ratio_max=4.0).check_ratios(4.5, 1.0)) == ["ratio_explosion"]
    assert AnomalyDetector(preset="sagemaker").limits.update_ratio_max == 10.0
    with pytest.raises(TypeError, match="did you mean 'ratio_max'"):
        AnomalyDetector(ratio_maxx=4.0)


def test_metrics_that_no_rule_reads_are_ignored() -> None:
    assert not AnomalyDetector().check_metrics({"rollout/ep_rew_mean": NAN, "lr": 0.0}).has_anomaly


# The same verdicts, live and from the recording

NAMES = (
    "loss",
    "grad_norm",
    "grad_norm_after_clip",
    "update_ratio/all",
    "scaler/skipped_total",
    "lstm/h_rms",
    "lstm/c_rms_max",
    "ppo/ratio_max",
    "ppo/ratio_min",
    "ppo/kl",
    "ppo/entropy",
    "ppo/value_loss",
    "ppo/explained_variance",
    "ppo/clip_fraction",
    "ppo/updates_skipped_total",
)
TENSORS = ("grad_norm", "weight_norm", "grad_nan", "grad_zero_fraction", "grad_large_fraction")


def a_wild_training(seed: int, num_steps: int) -> list[tuple[dict[str, float], dict[str, dict[str, float]]]]:
    """Values that pass their limits often, with gaps, NaN and Inf, all exact in float32."""
    draw = random.Random(seed)

    def value() -> float:
        return draw.choice([0.0, 0.0625, 0.25, 0.5, 1.0, 1.0, 1.0, 4.0, 64.0, 2.0**-30, NAN, INF])

    return [
        (
            {name: value() for name in NAMES if draw.random() < 0.9},
            {
                tensor: {name: value() for name in TENSORS if name == "grad_norm" or draw.random() < 0.95}
                for tensor in ("fc", "out")
            },
        )
        for _ in range(num_steps)
    ]


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), num_steps=st.integers(1, 120))
def test_live_and_replayed_rules_fire_at_the_same_steps(seed: int, num_steps: int) -> None:
    detector = AnomalyDetector(warmup=5, loss_block=10, unchanged_patience=3, skip_warmup=3)
    live: set[tuple[str, str, int | None]] = set()
    points: dict[str, list[tuple[int, float]]] = {}
    for step, (row, tensors) in enumerate(a_wild_training(seed, num_steps), start=1):
        whole = {"ppo/kl": 0.0, **row}      # a policy from the first step on
        report = detector.check_all(metrics=whole, tensors=tensors, step=step)
        live |= {(*breach.key, breach.step) for breach in report.breaches}
        for name, value in [
            *whole.items(),
            *((f"{name}/{t}", v) for t, of in tensors.items() for name, v in of.items()),
        ]:
            points.setdefault(name, []).append((step, value))
    process = of_series(points, facts={"learning_limits": detector.limits.changed()})
    skipped = {
        step
        for (_, before), (step, now) in zip(
            [(0, 0.0), *points.get("scaler/skipped_total", [])], points.get("scaler/skipped_total", []), strict=False
        )
        if now > before
    }
    recorded = {(*breach.key, breach.step) for breach in breaches(process)}
    # What GradScaler skipped is known afterwards only; the norms of all tensors are held beside each other as last
    # seen.
    differ = {
        key for key in live ^ recorded if key[0] not in ("TT405", "TT407") and not (key[0] == "TT402" and skipped)
    }
    assert differ == set()


def test_live_and_replayed_rules_agree_on_norms_of_all_tensors() -> None:
    detector = AnomalyDetector()
    rows = [{"a": 5.0, "b": 0.001 if step > 4 else 1.0, "c": 1e-9 if step % 20 > 9 else 1.0} for step in range(60)]
    live = set()
    for step, norms in enumerate(rows):
        report = detector.check_tensors({name: {"grad_norm": norm} for name, norm in norms.items()}, step=step)
        live |= {(*breach.key, breach.step) for breach in report.breaches}
    process = of_series(
        {f"grad_norm/{name}": [(step, norms[name]) for step, norms in enumerate(rows)] for name in "abc"}
    )
    assert {(*breach.key, breach.step) for breach in breaches(process)} == live
    assert {key[0] for key in live} == {"TT405", "TT407"}


def sick(name: str, step: int) -> float:
    """Of a long training that is sick in its second half; the noise repeats, and no two neighbours are equal."""
    noise, ill = 1.0 + 0.1 * math.sin(1.7 * step), step > 1500
    return {
        "loss": math.nan if step == 2000 else 2.0 * noise * 0.999**step,
        "grad_norm": noise * (60.0 if step == 1700 else 1.0),
        "update_ratio/all": 0.5 if ill else 1e-3,
        "ppo/kl": 0.9 if step == 1800 else 0.01 * noise,
        "ppo/entropy": 0.05 if ill else 0.6 * noise,
        "ppo/ratio_max": 9.0 if ill and step % 3 == 0 else 1.2,
        "lstm/c_rms_max": 20.0 if ill else 2.0 * noise,
        "scaler/skipped_total": 0.0,
        "grad_norm/dead": 0.0 if ill else noise,
        "grad_norm/fc": noise,
        "weight_norm/fc": 3.0 if ill else 3.0 + 0.001 * step,
        "grad_zero_fraction/fc": 0.95 if ill else 0.2,
    }[name]


SICK = (
    "loss",
    "grad_norm",
    "update_ratio/all",
    "ppo/kl",
    "ppo/entropy",
    "ppo/ratio_max",
    "lstm/c_rms_max",
    "scaler/skipped_total",
    "grad_norm/dead",
    "grad_norm/fc",
    "weight_norm/fc",
    "grad_zero_fraction/fc",
)


def test_down_sampled_recording_gives_the_codes_of_the_live_rules() -> None:
    np = pytest.importorskip("numpy")
    from torchtriage.telemetry.sinks.curves import CurveBuckets

    detector, curves, live = AnomalyDetector(), CurveBuckets(len(SICK), max_buckets=128), set()
    for step in range(3000):
        values = [sick(name, step) for name in SICK]
        curves.add([step], np.array([values]), np.ones((1, len(SICK)), dtype=bool))
        named = dict(zip(SICK, values, strict=True))
        tensors = {t: {n.split("/")[0]: v for n, v in named.items() if n.endswith(f"/{t}")} for t in ("dead", "fc")}
        live |= set(detector.check_all(metrics=named, tensors=tensors, step=step).codes)
    series = {name: list(zip(*points, strict=True)) for name, points in zip(SICK, curves.points(), strict=True)}
    assert max(map(len, series.values())) < 400
    assert {breach.code for breach in breaches(of_series(series))} == live
    assert live == {"TT401", "TT404", "TT406", "TT408", "TT416", "TT417", "TT502", "TT602", "TT606", "TT608"}


# Checkpoints

@settings(max_examples=30)
@given(seed=st.integers(0, 1000), cut=st.integers(1, 60))
def test_saved_detector_continues_exactly(seed: int, cut: int) -> None:
    training = a_wild_training(seed, 70)
    whole, first = AnomalyDetector(warmup=5, loss_block=10), AnomalyDetector(warmup=5, loss_block=10)
    resumed = AnomalyDetector(warmup=5, loss_block=10)
    for step, (row, tensors) in enumerate(training):
        if step == cut:
            resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
        now = resumed if step >= cut else first
        reports = [detector.check_all(metrics=row, tensors=tensors, step=step) for detector in (whole, now)]
        assert repr(reports[0]) == repr(reports[1])      # NaN is not equal to itself, but prints alike
    assert repr(whole.state_dict()) == repr(resumed.state_dict())


def test_a_saved_state_is_a_copy() -> None:
    detector = AnomalyDetector()
    detector.check_metrics({"loss": 1.0, "ppo/entropy": 0.05})
    state = detector.state_dict()
    before = copy.deepcopy(state)
    detector.check_metrics({"loss": 2.0, "ppo/entropy": 0.05})
    assert state == before


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({}, "expects a state of version 1, found none"),
        ({"version": 9}, "expects a state of version 1, found 9"),
        ({"version": 1}, "expects a state with memory, is_policy, open"),
        (
            {"version": 1, "memory": {}, "is_policy": False, "open": []},
            "a state of version 1 with windows, .* was expected",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(state: dict[str, Any], words: str) -> None:
    detector = AnomalyDetector()
    detector.check_metrics({"loss": 1.0})
    before = detector.state_dict()
    with pytest.raises(ValueError, match=words):
        detector.load_state_dict(state)
    assert detector.state_dict() == before
