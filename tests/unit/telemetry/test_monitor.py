"""Monitor records the true values, whatever the training does, and never disturbs it."""

import json
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from torchtriage.recording.reader import read_recording
from torchtriage.telemetry import Monitor, TelemetryConfig, TelemetryLevel
from torchtriage.telemetry.sampling.pace import DENSE_UPDATES
from torchtriage.telemetry.sinks.recording import RecordingSink


class MemorySink:
    """A sink that keeps its observations in memory."""

    name = "sink"

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, float]] = {}
        self.histograms: dict[str, Any] = {}
        self.events: list[Any] = []

    def write(self, observation: Any) -> None:
        self.rows[observation.step] = observation.flat()
        self.histograms.update(observation.histograms)

    def event(self, event: Any) -> None:
        self.events.append(event)

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    """Any warning that a test does not expect is an error."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def net() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def norm(tensors: Any) -> float:
    return math.sqrt(sum(t.double().pow(2).sum().item() for t in tensors))


def backward(model: torch.nn.Module, scale: float = 1.0) -> torch.Tensor:
    loss = model(torch.randn(16, 4)).pow(2).mean() * scale
    loss.backward()
    return loss


def test_step_is_recorded_with_its_true_statistics() -> None:
    model, sink = net(), MemorySink()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, opt, groups={"first": model[0], "last": "2"}, sinks=[sink]) as monitor:
        loss = backward(model)
        before = [p.detach().clone() for p in model.parameters()]
        grads = [p.grad.clone() for p in model.parameters()]
        monitor.after_backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        opt.step()
        monitor.step({"lr": 0.1, "ppo/kl": torch.tensor(0.02)})
        changes = [b - p.detach() for b, p in zip(before, model.parameters(), strict=True)]
    row = sink.rows[1]
    assert row["loss"] == pytest.approx(loss.item())
    assert row["grad_norm"] == pytest.approx(norm(grads), rel=1e-6)
    assert row["grad_norm_after_clip"] == pytest.approx(0.01, rel=1e-3)
    assert row["grad_norm/group:first"] == pytest.approx(norm(grads[:2]), rel=1e-6)
    assert row["grad_norm/2.weight"] == pytest.approx(norm(grads[2:3]), rel=1e-6)
    assert row["weight_norm/0.bias"] == pytest.approx(norm(before[1:2]), rel=1e-6)
    assert row["update_ratio/last"] == pytest.approx(
        norm(changes[2:]) / norm([p.detach() for p in model[2].parameters()]), rel=1e-3
    )
    assert row["lr"] == 0.1
    assert row["ppo/kl"] == pytest.approx(0.02)
    assert monitor.facts()["telemetry"]["gradients"] == "before clipping"


def test_unclipped_gradients_have_no_second_norm() -> None:
    model, sink = net(), MemorySink()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, opt, sinks=[sink]) as monitor:
        backward(model)
        monitor.after_backward()
        opt.step()
        monitor.step()
    assert "grad_norm" in sink.rows[1]
    assert "grad_norm_after_clip" not in sink.rows[1]
    assert "loss" not in sink.rows[1]


def test_accumulated_gradients_count_once_and_losses_add_up() -> None:
    model, sink = net(), MemorySink()
    with Monitor(model, sinks=[sink]) as monitor:
        first = backward(model, 0.5)
        monitor.after_backward(first)
        second = backward(model, 0.5)
        monitor.after_backward(second)
        total = norm(p.grad for p in model.parameters())
        monitor.step()
    assert sink.rows[1]["grad_norm"] == pytest.approx(total, rel=1e-6)
    assert sink.rows[1]["loss"] == pytest.approx(first.item() + second.item())


def test_without_after_backward_gradients_are_those_the_optimizer_used() -> None:
    model, sink = net(), MemorySink()
    with Monitor(model, sinks=[sink]) as monitor:
        backward(model)
        monitor.step()
    assert sink.rows[1]["grad_norm"] > 0
    assert monitor.facts()["telemetry"]["gradients"] == "as the optimizer used them"


@pytest.mark.parametrize("unscales", [True, False])
def test_with_a_scaler_statistics_describe_unscaled_gradients(unscales: bool) -> None:
    model, sink = net(), MemorySink()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    truth = {}
    with Monitor(model, opt, sinks=[sink], scaler=scaler) as monitor:
        for step in range(1, 5):
            scaler.scale(model(torch.ones(4, 4)).pow(2).mean()).backward()
            truth[step] = norm(p.grad for p in model.parameters()) / scaler.get_scale()
            if step == 3:
                model[0].weight.grad[0, 0] = math.inf
            if unscales:
                scaler.unscale_(opt)
            monitor.after_backward()
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
            monitor.step()
    assert [sink.rows[step]["grad_norm"] for step in (1, 2, 4)] == pytest.approx(
        [truth[step] for step in (1, 2, 4)], rel=1e-6
    )
    assert sink.rows[3]["grad_norm"] == math.inf
    assert [sink.rows[step]["scaler/skipped_total"] for step in range(1, 5)] == [0, 0, 1, 1]
    assert [sink.rows[step]["scaler/scale"] for step in range(1, 5)] == [256, 256, 256, 128]


def test_frozen_shared_and_unused_parameters() -> None:
    model, sink = net(), MemorySink()
    model[0].bias.requires_grad_(False)
    model.add_module("tied", torch.nn.Linear(8, 1))
    model.tied.weight = model[2].weight
    model.tied.bias.requires_grad_(False)
    model.register_parameter("unused", torch.nn.Parameter(torch.ones(3)))
    with Monitor(model, sinks=[sink]) as monitor:
        model[2](torch.tanh(model[0](torch.randn(2, 4)))).sum().backward()
        monitor.after_backward()
        monitor.step()
    names = {name.removeprefix("grad_norm/") for name in sink.rows[1] if name.startswith("grad_norm/")}
    assert names == {"0.weight", "2.weight", "2.bias"}
    assert sink.rows[1]["weight_norm/unused"] == pytest.approx(math.sqrt(3))


def test_added_removed_and_moved_parameters_are_followed_and_reported_once() -> None:
    model, sink = net(), MemorySink()
    with Monitor(model, sinks=[sink]) as monitor:
        def step() -> None:
            model.zero_grad()
            model[0](torch.randn(2, 4)).sum().backward()
            monitor.after_backward()
            monitor.step()

        step()
        model[0].register_parameter("extra", torch.nn.Parameter(torch.ones(2)))
        step()
        del model[2]
        with pytest.warns(RuntimeWarning, match=r"no longer trained or part of the model: 2\.weight and 1 more"):
            step()
        step()
    assert "weight_norm/0.extra" not in sink.rows[1]
    assert "weight_norm/0.extra" in sink.rows[2]
    assert "weight_norm/2.weight" not in sink.rows[3]
    assert set(sink.rows) == {1, 2, 3, 4}


def test_model_on_the_meta_device_is_reported_and_training_continues() -> None:
    model, sink = net(), MemorySink()
    with Monitor(model, sinks=[sink]) as monitor:
        backward(model)
        monitor.after_backward()
        monitor.step()
        model.to("meta")
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        with pytest.warns(RuntimeWarning) as warned:
            monitor.after_backward()
        monitor.step()
    texts = " ".join(str(w.message) for w in warned)
    assert "the model moved from cpu to meta" in texts
    assert "no statistics of 0.weight and 3 more: it has no data" in texts
    assert len(warned) == 2
    assert list(sink.rows) == [1]


def test_moved_layer_is_left_out_and_reported_at_the_next_weight_sample() -> None:
    model, sink = net(), MemorySink()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    config = TelemetryConfig(normal_interval=1, overhead_budget=1.0, auto_escalate=False)
    with Monitor(model, sinks=[sink], config=config) as monitor, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(DENSE_UPDATES + 1):
            backward(model)
            monitor.after_backward()
            monitor.step()
        model[2].to("meta")
        for _ in range(config.weight_track_interval + 1):
            optimizer.zero_grad()
            for p in model.parameters():
                p.grad = torch.ones_like(p)
            monitor.after_backward()
            monitor.step()
    first = sink.rows[DENSE_UPDATES + 2]
    assert "grad_norm/0.weight" in first
    assert "grad_norm/2.weight" not in first
    assert set(sink.rows) == set(range(1, DENSE_UPDATES + config.weight_track_interval + 3))
    texts = " ".join(str(w.message) for w in warned)
    assert "no statistics of 2.weight and 1 more: it has no data" in texts
    assert "the model moved from cpu to meta" in texts
    assert "disabled" not in texts


def test_bad_input_is_reported_once_with_a_remedy() -> None:
    with pytest.warns(RuntimeWarning, match="Tanh has no trained parameter"):
        monitor = Monitor(torch.nn.Tanh(), sinks=[])
    monitor.after_backward(torch.tensor(1.0))
    monitor.step()
    monitor = Monitor(net(), sinks=[])
    with pytest.warns(
        RuntimeWarning, match=r"no parameter has a gradient; call after_backward\(\) after loss.backward\(\)"
    ):
        monitor.after_backward(torch.tensor(1.0))
    monitor.step()
    with pytest.raises(ValueError, match="level must be one of OFF, MINIMAL, NORMAL, DEBUG, got 'loud'"):
        Monitor(net(), level="loud", sinks=[])
    with pytest.raises(ValueError, match="group 'head' has no trained parameter of the model"):
        Monitor(net(), groups={"head": torch.nn.Linear(1, 1)}, sinks=[])


def test_values_that_are_not_numbers_are_named_and_the_rest_is_recorded() -> None:
    model, sink = net(), MemorySink()
    with Monitor(model, sinks=[sink]) as monitor:
        backward(model)
        with pytest.warns(
            RuntimeWarning, match=r"the loss is not recorded: it is a torch.float32 tensor of shape \(3,\)"
        ):
            monitor.after_backward(torch.ones(3))
        with pytest.warns(RuntimeWarning) as warned:
            monitor.step({"name": "run 7", "returns": torch.ones(2), "kl": 0.5, "count": 3})
    assert [str(w.message).partition(": ")[2] for w in warned] == [
        "the metric 'name' is not recorded: it is a str; give a number, or a tensor with one element",
        "the metric 'returns' is not recorded: "
        "it is a torch.float32 tensor of shape (2,); give its mean, or an element",
    ]
    assert (sink.rows[1]["kl"], sink.rows[1]["count"]) == (0.5, 3.0)
    assert sink.rows[1]["grad_norm"] > 0
    assert "loss" not in sink.rows[1]


@pytest.mark.parametrize(("change", "words"), [
    ({"version": 0}, "Monitor expects a state of version 1, found 0; take it from Monitor.state_dict"),
    ({"step": "a"}, "expects step to be int, found 'a'"),
    ({"config": {"version": 1}}, "TelemetryConfig expects a state with update_count"),
    ({"detector": {"version": 9}}, "AnomalyDetector expects a state of version 1, found 9"),
    (None, "Monitor expects a state of version 1, found a NoneType"),
])
def test_state_that_does_not_fit_is_refused_and_changes_nothing(change: Any, words: str) -> None:
    with Monitor(net(), sinks=[]) as monitor, Monitor(net(), sinks=[]) as other:
        other.config.advance(1.0, 2.0)
        before = monitor.state_dict()
        with pytest.raises(ValueError, match=words):
            monitor.load_state_dict(None if change is None else other.state_dict() | change)  # type: ignore[arg-type]
        assert monitor.state_dict() == before


def test_internal_failure_disables_only_the_monitor(monkeypatch: pytest.MonkeyPatch) -> None:
    model = net()
    monitor = Monitor(model, sinks=[])
    backward(model)
    monkeypatch.setattr(type(monitor._watched.track), "take_gradients", lambda *args: 1 / 0)
    with pytest.warns(
        RuntimeWarning, match=r"disabled for the rest of this run after an internal error \(ZeroDivisionError"
    ):
        monitor.after_backward()
    monitor.after_backward()
    monitor.step()


def test_a_nan_loss_is_an_anomaly_and_escalates() -> None:
    model, sink = net(), MemorySink()
    config = TelemetryConfig(overhead_budget=1.0)
    with Monitor(model, sinks=[sink], config=config) as monitor:
        backward(model)
        monitor.after_backward(torch.tensor(math.nan))
        monitor.step()
        monitor.writer.flush()
        assert config.is_escalated
        backward(model)
        monitor.after_backward(torch.tensor(1.0))
        monitor.step()
    assert [event.code for event in sink.events] == ["TT401"]
    assert "grad_std/0.weight" not in sink.rows[1]
    assert "grad_std/0.weight" in sink.rows[2]


def test_levels() -> None:
    for level, has_weights in (("minimal", False), (TelemetryLevel.NORMAL, True)):
        model, sink = net(), MemorySink()
        with Monitor(model, sinks=[sink], level=level) as monitor:
            backward(model)
            monitor.after_backward()
            monitor.step()
        assert ("weight_norm" in sink.rows[1]) is has_weights
    sink = MemorySink()
    with Monitor(net(), sinks=[sink], level="off") as monitor:
        monitor.after_backward(torch.tensor(1.0))
        monitor.step()
    assert not sink.rows


@pytest.mark.parametrize("level", ["normal", "debug"])
def test_small_and_large_elements_are_counted_only_at_debug(level: str) -> None:
    model, sink = net(), MemorySink()
    with Monitor(model, sinks=[sink], level=level) as monitor:
        for _ in range(3):
            model[0].weight.grad = torch.tensor([0.0, 1e-9, 100.0, 1.0]).repeat(8, 1)
            monitor.after_backward()
            monitor.step()
    for row in sink.rows.values():
        found = [row.get(f"grad_{name}_fraction/0.weight") for name in ("zero", "small", "large")]
        assert found == ([0.25, 0.5, 0.25] if level == "debug" else [0.25, None, None])


def test_activations_at_debug_and_never_of_a_compiled_model() -> None:
    config = TelemetryConfig(level=TelemetryLevel.DEBUG, activation_monitoring=True)
    torch._dynamo.utils.counters.clear()
    model, sink = net(), MemorySink()
    with Monitor(model, sinks=[sink], config=config) as monitor:
        for _ in range(3):
            backward(model)
            monitor.after_backward()
            monitor.step()
        assert not model[0]._forward_hooks or monitor._activations is not None
    assert sink.rows[2]["activation_norm/1"] > 0
    assert "activation_zero_fraction/0" in sink.rows[3]
    model = net()
    model.compile(backend="eager")
    with Monitor(
        model, sinks=[], config=TelemetryConfig(level=TelemetryLevel.DEBUG, activation_monitoring=True)
    ) as monitor:
        model[0](torch.randn(1, 4)).sum().backward()
        monitor.after_backward()
        with pytest.warns(RuntimeWarning, match="no statistics of activations: the model is compiled"):
            monitor.step()
    assert not any(module._forward_hooks for module in model.modules())


def test_histograms_on_request_have_64_bins() -> None:
    model, sink = net(), MemorySink()
    with Monitor(model, sinks=[sink], histograms=True) as monitor:
        backward(model)
        monitor.after_backward()
        monitor.step()
    counts = sink.histograms["grad_exponents/0.weight"]
    assert len(counts) == 64
    assert sum(counts) == 32


def test_a_checkpoint_resumes_exactly() -> None:
    model = net()
    first, second = MemorySink(), MemorySink()
    with Monitor(model, sinks=[first]) as monitor:
        for _ in range(30):
            backward(model)
            monitor.after_backward(torch.tensor(1.0))
            monitor.step()
        monitor.writer.flush()
        state = json.loads(json.dumps(monitor.state_dict()))
    with Monitor(model, sinks=[second]) as resumed:
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        backward(model)
        resumed.after_backward(torch.tensor(1.0))
        resumed.step()
    assert list(second.rows) == [31]
    with pytest.raises(ValueError, match="Monitor expects a state of version 1, found none"):
        resumed.load_state_dict({"step": 3})


def test_it_makes_a_new_recording_and_refuses_to_overwrite_one(tmp_path: Path) -> None:
    model = net()
    folder = tmp_path / "own.triage"
    with Monitor(model, sinks=[RecordingSink(folder)]) as monitor:
        backward(model)
        monitor.after_backward(torch.tensor(2.0))
        monitor.step()
    (process,) = read_recording(folder).processes
    assert list(process.series["loss"].values) == [2.0]
    assert process.facts["telemetry"]["num_observed"] == 1
    assert process.facts["end"]
    with pytest.raises(Exception, match="already holds a recording; choose another"):
        RecordingSink(folder)


def test_inside_a_compiled_function_it_does_nothing_and_breaks_nothing() -> None:
    model = net()
    monitor = Monitor(model, sinks=[])

    @torch.compile(backend="eager", fullgraph=True)
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = model(x).sum()
        monitor.after_backward(y)
        monitor.step()
        return y

    forward(torch.randn(2, 4))
    assert monitor.state_dict()["step"] == 0


def test_step_skipped_by_the_scaler_is_an_event_even_if_it_is_the_last() -> None:
    model, sink = net(), MemorySink()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    config = TelemetryConfig(normal_interval=1000)      # none of the skipped steps is looked at
    with Monitor(model, opt, sinks=[sink], scaler=scaler, config=config) as monitor:
        for step in range(1, 41):
            scaler.scale(model(torch.ones(4, 4)).pow(2).mean()).backward()
            if step in (30, 40):
                model[0].weight.grad[0, 0] = math.inf
            monitor.after_backward()
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
            monitor.step()
    assert [(event.optimizer, event.step, event.total) for event in sink.events] == [("SGD", 30, 1), ("SGD", 40, 2)]
    assert monitor.facts()["telemetry"]["num_skipped_steps"] == 2


def test_autocast_type_is_a_fact_and_reaches_the_rules() -> None:
    model = net()
    with Monitor(model, sinks=[]) as monitor:
        backward_of = torch.nn.functional.mse_loss
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = backward_of(model(torch.ones(4, 4)), torch.zeros(4, 1))
        loss.backward()         # as is usual, where autocast is over
        monitor.after_backward(loss)
        monitor.step({"ppo/first_ratio_deviation": 0.01})       # in 16 bits that is rounding
        monitor.writer.flush()
        assert monitor.facts()["autocast_dtype"] == "bfloat16"
        assert monitor.facts()["telemetry"]["num_anomalies"] == 0
    with Monitor(model, sinks=[]) as monitor:
        monitor.after_backward(backward(model))
        monitor.step({"ppo/first_ratio_deviation": 0.01})
        monitor.writer.flush()
        assert "autocast_dtype" not in monitor.facts()
        assert monitor.facts()["telemetry"]["num_anomalies"] == 1


def test_once_a_program_clips_unclipped_steps_also_have_the_second_norm() -> None:
    """Else all that is known of clipping would be that it happened."""
    model, sink = net(), MemorySink()
    with Monitor(model, sinks=[sink]) as monitor:
        for step in range(1, 5):
            backward(model)
            monitor.after_backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3 if step == 2 else 1e9)
            monitor.step()
            model.zero_grad()
    assert ["grad_norm_after_clip" in sink.rows[step] for step in range(1, 5)] == [False, True, True, True]
    assert sink.rows[3]["grad_norm_after_clip"] == sink.rows[3]["grad_norm"]


def test_groups_added_to_the_optimizer_later_are_followed() -> None:
    model, sink = net(), MemorySink()
    opt = torch.optim.SGD(model[0].parameters(), lr=0.1)
    with Monitor(model, opt, sinks=[sink]) as monitor:
        for step in (1, 2):
            backward(model)
            monitor.after_backward()
            monitor.step()
            if step == 1:
                opt.add_param_group({"params": model[2].parameters(), "name": "head"})
    assert "grad_norm/group:head" not in sink.rows[1]
    assert "grad_norm/group:head" in sink.rows[2]
