"""Events of a training: typed and complete, scores by the formulas; no failure stops the training."""

import dataclasses
import json
import logging
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from torchtriage.telemetry import (
    AnomalyDetector,
    LayerGradientStats,
    TelemetryConfig,
    TelemetryEvent,
    TelemetryLevel,
    VectorizedEmitter,
    aggregate_layer_gradient_health,
    check_performance_degradation,
    layer_score,
)
from torchtriage.telemetry.ppo import emitter as emitters
from torchtriage.telemetry.ppo.emitter import trend_of


def emitter(**settings: Any) -> tuple[VectorizedEmitter, list[TelemetryEvent]]:
    sent: list[TelemetryEvent] = []
    return VectorizedEmitter(sent.append, clock=lambda: 5.0, **settings), sent


def layer(**values: Any) -> LayerGradientStats:
    zeros = {field.name: 0 for field in dataclasses.fields(LayerGradientStats)}
    return LayerGradientStats(**(zeros | {"layer_name": "fc", "param_count": 100} | values))


def model_with_gradient(*values: float) -> nn.Module:
    model = nn.Linear(len(values), 1, bias=False)
    model.weight.grad = torch.tensor([values])
    return model


def debug() -> TelemetryConfig:
    return TelemetryConfig(level=TelemetryLevel.DEBUG)


# Scores

@pytest.mark.parametrize(
    ("zeros", "large", "score"),
    [
        (0.0, 0.0, 1.0),
        (0.3, 0.05, 1.0),
        (0.31, 0.0, 0.7),
        (0.51, 0.0, 0.5),
        (0.0, 0.06, 0.5),
        (0.0, 0.11, 0.1),
        (0.51, 0.11, 0.1),
        (0.9, 0.0, 0.5),
        (0.91, 0.0, 0.0),
        (0.91, 0.2, 0.0),
    ],
)
def test_layer_is_scored_by_its_zeros_and_large_values(zeros: float, large: float, score: float) -> None:
    assert layer_score(layer(zero_fraction=zeros, large_fraction=large)) == score
    assert layer_score(layer(zero_fraction=zeros, large_fraction=large, nan_count=1)) == 0.0
    assert layer_score(layer(zero_fraction=zeros, large_fraction=large, inf_count=1)) == 0.0


def test_health_of_all_layers_names_the_sick_ones() -> None:
    health = aggregate_layer_gradient_health(
        [
            layer(layer_name="good"),
            layer(layer_name="dead", zero_fraction=0.95),
            layer(layer_name="wild", large_fraction=0.2),
            layer(layer_name="broken", nan_count=2, inf_count=1),
        ]
    )
    assert (health.dead_layers, health.exploding_layers, health.nan_count, health.inf_count) == (
        ("dead",),
        ("wild", "broken"),
        2,
        1,
    )
    assert health.layer_scores == {"good": 1.0, "dead": 0.0, "wild": 0.1, "broken": 0.0}
    assert health.score == pytest.approx(1.1 / 4)
    assert aggregate_layer_gradient_health([]).score == 1.0


@pytest.mark.parametrize(
    ("current", "rolling", "progress", "drop"),
    [
        (45.0, 50.0, 0.1, 0.1),
        (45.1, 50.0, 0.5, None),
        (30.0, 50.0, 0.5, 0.4),
        (30.0, 50.0, 0.09, None),
        (60.0, 50.0, 0.5, None),
        (0.0, 0.0, 0.5, None),
        (-5.0, -1.0, 0.5, None),
        (math.nan, 50.0, 0.5, None),
        (10.0, math.inf, 0.5, None),
    ],
)
def test_drop_counts_from_a_tenth_and_not_at_the_start(
    current: float, rolling: float, progress: float, drop: float | None
) -> None:
    assert check_performance_degradation(current, rolling, progress) == pytest.approx(drop)


@pytest.mark.parametrize(
    ("change", "trend"),
    [
        (0.0, "plateau"),
        (0.49, "plateau"),
        (-0.49, "plateau"),
        (0.5, None),
        (2.0, None),
        (-2.0, None),
        (2.01, "improvement"),
        (-2.01, "degradation"),
    ],
)
def test_a_trend_is_a_plateau_or_a_clear_change(change: float, trend: str | None) -> None:
    assert trend_of(change) == trend


# Events

def test_every_event_arrives_typed_and_fits_json() -> None:
    emit, sent = emitter()
    emit.on_epoch_completed(
        3, env_id=1, train_loss=0.5, val_accuracy=71.0, slots={"r0c1": {"alpha": 0.3, "stage": "TRAINING"}}
    )
    emit.after_backward(model_with_gradient(3.0, 4.0))
    emit.on_ppo_update(7, {"policy_loss": 0.1}, seconds=0.2)
    emit.on_batch_completed(2, 70.0, progress=0.5, episodes=64, reward=1.5)
    emit.on_analytics_snapshot("last_action", {"action": "GROW", "value": 0.4}, env_id=2)
    emit.on_counterfactual_matrix(["a", "b"], {(True, True): 71.0, (False, True): 69.0}, env_id=0)
    emit.on_anomaly(AnomalyDetector().check_ratios(9.0, 0.5, step=7))
    assert [event.kind for event in sent] == [
        "epoch_completed",
        "ppo_update_completed",
        "batch_completed",
        "analytics_snapshot",
        "counterfactual_matrix_computed",
        "anomaly_detected",
    ]
    assert all(dataclasses.is_dataclass(event) and event.time == 5.0 for event in sent)
    rows = [json.loads(json.dumps(event.to_dict())) for event in sent]
    assert rows[0]["slots"] == {"r0c1": {"alpha": 0.3, "stage": "TRAINING"}}
    assert (rows[1]["gradients"]["gradient_norm"], rows[1]["metrics"]) == (5.0, {"policy_loss": 0.1})
    assert rows[4]["configurations"][1] == {"enabled": [False, True], "accuracy": 69.0}
    assert (rows[5]["code"], rows[5]["type"], rows[5]["value"], rows[5]["step"]) == ("TT602", "ratio_explosion", 9.0, 7)
    assert (emit.num_sent, emit.num_lost, emit.trouble) == (6, 0, "")


def test_event_keeps_its_values_when_the_program_changes_them() -> None:
    emit, sent = emitter()
    metrics = {"kl": 0.1}
    emit.on_ppo_update(0, metrics)
    metrics["kl"] = 9.0
    assert sent[0].to_dict()["metrics"] == {"kl": 0.1}


def test_each_anomaly_is_sent_when_it_begins() -> None:
    emit, sent = emitter()
    detector = AnomalyDetector()
    for kl in (0.9, 0.9, 0.01, 0.9):
        emit.on_anomaly(detector.check_all(kl=kl, max_ratio=9.0))
    assert [event.to_dict()["type"] for event in sent] == ["ratio_explosion", "kl_extreme", "kl_extreme"]


def test_ablations_that_do_not_match_the_slots_are_refused() -> None:
    emit, _ = emitter()
    with pytest.raises(ValueError, match="for each of the 2 slots"):
        emit.on_ablations(["a", "b"], {(True,): 1.0})


def test_gradients_are_those_of_the_worst_minibatch_before_clipping() -> None:
    emit, sent = emitter(config=debug())
    for values in ((1.0, 1.0), (300.0, 400.0), (2.0, 0.0)):
        model = model_with_gradient(*values)
        emit.after_backward(model)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    emit.on_ppo_update(0, {})
    emit.on_ppo_update(1, {})
    first, second = (event.to_dict() for event in sent)
    assert (first["gradients"]["gradient_norm"], first["gradients"]["num_exploding"]) == (500.0, 1)
    assert first["layers"]["exploding_layers"] == ("weight",)
    assert (second["gradients"], second["layers"]) == (None, None)


def test_a_nan_gradient_is_worse_than_any_other() -> None:
    emit, sent = emitter()
    for value in (1.0, math.nan, 1e30):
        emit.after_backward(model_with_gradient(value))
    emit.on_ppo_update(0, {})
    assert math.isnan(sent[0].to_dict()["gradients"]["gradient_norm"])


def test_pending_gradients_do_not_accumulate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emitters, "MAX_PENDING", 4)
    emit, sent = emitter()
    for norm in (9.0, 1.0, 2.0, 3.0, 4.0, 5.0):
        emit.after_backward(model_with_gradient(norm))
        assert len(emit._pending) < 4
    emit.on_ppo_update(0, {})
    assert sent[0].to_dict()["gradients"]["gradient_norm"] == 9.0


@pytest.mark.parametrize(
    ("config", "events", "gradients", "layers"),
    [
        (TelemetryConfig(level=TelemetryLevel.OFF), 0, False, False),
        (TelemetryConfig(level=TelemetryLevel.MINIMAL), 1, True, False),
        (debug(), 1, True, True),
        (TelemetryConfig(level=TelemetryLevel.DEBUG, per_layer_gradients=False), 1, True, False),
        (None, 1, True, False),
    ],
    ids=["off", "minimal", "debug", "debug without layers", "no config"],
)
def test_level_decides_what_is_collected(
    config: TelemetryConfig | None, events: int, gradients: bool, layers: bool
) -> None:
    emit, sent = emitter(config=config)
    emit.after_backward(model_with_gradient(1.0))
    emit.on_ppo_update(0, {})
    assert len(sent) == events
    for event in sent:
        row = event.to_dict()
        assert (row["gradients"] is not None, row["layers"] is not None) == (gradients, layers)


# Batches

def run_batches(emit: VectorizedEmitter, accuracies: list[float], first: int = 0) -> None:
    for batch, accuracy in enumerate(accuracies, first):
        emit.on_batch_completed(batch, accuracy, progress=0.5)


def of_kind(sent: list[TelemetryEvent], kind: str) -> list[dict[str, Any]]:
    return [event.to_dict() for event in sent if event.kind == kind]


def test_drop_below_the_rolling_mean_is_sent() -> None:
    emit, sent = emitter()
    run_batches(emit, [50.0] * 12 + [40.0])
    drops = of_kind(sent, "performance_degradation")
    assert [(drop["batch"], drop["rolling_accuracy"], drop["drop"]) for drop in drops] == [
        (12, 50.0, pytest.approx(0.2))
    ]


def test_rolling_mean_covers_the_last_ten_batches() -> None:
    emit, sent = emitter()
    run_batches(emit, [10.0] * 10 + [50.0] * 10 + [60.0])
    assert [batch["rolling_accuracy"] for batch in of_kind(sent, "batch_completed")][::10] == [None, 10.0, 50.0]


@pytest.mark.parametrize(
    ("second", "trend"), [(50.2, ["plateau"]), (51.0, []), (53.0, ["improvement"]), (47.5, ["degradation"])]
)
def test_trend_is_sent_after_every_ten_batches(second: float, trend: list[str]) -> None:
    emit, sent = emitter()
    run_batches(emit, [50.0] * 10 + [second] * 10)
    assert [(row["trend"], row["batch"], row["num_batches"]) for row in of_kind(sent, "trend")] == [
        (word, 19, 10) for word in trend
    ]


def test_non_finite_batch_is_sent_and_left_out_of_the_mean() -> None:
    emit, sent = emitter()
    run_batches(emit, [50.0, math.nan, 50.0])
    batches = of_kind(sent, "batch_completed")
    assert math.isnan(batches[1]["accuracy"])
    assert batches[2]["rolling_accuracy"] == 50.0


@given(st.lists(st.floats(0, 100), max_size=45), st.integers(0, 45))
def test_resumed_emitter_sends_the_same_events(accuracies: list[float], cut: int) -> None:
    uninterrupted, sent = emitter()
    run_batches(uninterrupted, accuracies)
    first, before = emitter()
    run_batches(first, accuracies[:cut])
    second, after = emitter()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    run_batches(second, accuracies[cut:], first=min(cut, len(accuracies)))
    assert before + after == sent


@pytest.mark.parametrize(("change", "message"), [
    ({"version": 0}, "state of version 1, found 0"), ({"accuracies": [1.0, math.nan]}, "expects the finite accuracies"),
    ({"num_batches": 9}, "expects the finite accuracies"), ({"num_batches": "2"}, "expects num_batches to be int"),
])
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(change: dict[str, Any], message: str) -> None:
    emit, _ = emitter()
    run_batches(emit, [1.0, 2.0])
    state = emit.state_dict()
    with pytest.raises(ValueError, match=message):
        emit.load_state_dict(state | change)
    assert emit.state_dict() == state


# What goes wrong

def test_failing_sink_stops_nothing_and_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def sink(event: TelemetryEvent) -> None:
        if event.to_dict()["update"] != 2:
            raise OSError("disk full")

    with caplog.at_level(logging.WARNING), VectorizedEmitter(sink) as emit:
        for update in range(4):
            emit.on_ppo_update(update, {})
    assert (emit.num_sent, emit.num_lost) == (1, 3)
    first, last = caplog.records
    assert "disk full" in first.getMessage()
    assert first.exc_info is not None
    assert first.exc_info[0] is OSError
    assert "raise OSError" in caplog.text       # the traceback
    assert last.getMessage() == "3 of 4 events were lost, the sink failed (OSError)"


def test_the_user_can_still_interrupt() -> None:
    def sink(event: TelemetryEvent) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        VectorizedEmitter(sink).on_ppo_update(0, {})


def test_unreadable_gradient_stops_nothing_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    emit, sent = emitter()
    model = nn.Module()
    model.phase = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    model.phase.grad = torch.ones(2, dtype=torch.complex64)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            emit.after_backward(model)
        emit.on_ppo_update(0, {"loss": 1.0})
    assert sent[0].to_dict()["gradients"] is None
    assert emit.trouble == "gradients were not collected 3 times (TriageError)"
    assert len(caplog.records) == 1
    assert "the gradient of phase" in caplog.text
    assert "Traceback" in caplog.text


def test_error_in_the_program_is_not_swallowed() -> None:
    emit, _ = emitter()
    with pytest.raises(TypeError):
        emit.after_backward(None)       # type: ignore[arg-type]


def test_example_of_the_docs_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[4] / "docs" / "internals" / "review-findings.md").read_text()
    example = re.search(r"```python\n(.*?)```", text, re.S)
    assert example
    actor, critic = nn.Linear(4, 2), nn.Linear(4, 1)
    model = nn.ModuleList([actor, critic])
    loss = actor(torch.ones(8, 4)).square().mean() + critic(torch.ones(8, 4)).mean()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    exec(
        example[1],
        {
            "torch": torch,
            "actor": actor,
            "critic": critic,
            "model": model,
            "loss": loss,
            "optimizer": optimizer,
            "update": 3,
        },
    )
    assert "PPOUpdateCompleted(" in capsys.readouterr().out
