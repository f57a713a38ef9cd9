"""Monitor: what it records is what happened, whatever the training does; and it never gets in the way."""

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


class Kept:
    """A sink that remembers."""

    name = "kept"

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


def test_a_step_is_recorded_as_it_was() -> None:
    model, kept = net(), Kept()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, opt, groups={"first": model[0], "last": "2"}, sinks=[kept]) as monitor:
        loss = backward(model)
        before = [p.detach().clone() for p in model.parameters()]
        grads = [p.grad.clone() for p in model.parameters()]
        monitor.after_backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        opt.step()
        monitor.step({"lr": 0.1, "ppo/kl": torch.tensor(0.02)})
        changes = [b - p.detach() for b, p in zip(before, model.parameters(), strict=True)]
    row = kept.rows[1]
    assert row["loss"] == pytest.approx(loss.item())
    assert row["grad_norm"] == pytest.approx(norm(grads), rel=1e-6)
    assert row["grad_norm_after_clip"] == pytest.approx(0.01, rel=1e-3)
    assert row["grad_norm/group:first"] == pytest.approx(norm(grads[:2]), rel=1e-6)
    assert row["grad_norm/2.weight"] == pytest.approx(norm(grads[2:3]), rel=1e-6)
    assert row["weight_norm/0.bias"] == pytest.approx(norm(before[1:2]), rel=1e-6)
    assert row["update_ratio/last"] == pytest.approx(norm(changes[2:]) / norm([p.detach() for p in model[2].parameters()]), rel=1e-3)
    assert row["lr"] == 0.1
    assert row["ppo/kl"] == pytest.approx(0.02)
    assert monitor.facts()["telemetry"]["gradients"] == "before clipping"


def test_unclipped_gradients_have_no_second_norm() -> None:
    model, kept = net(), Kept()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, opt, sinks=[kept]) as monitor:
        backward(model)
        monitor.after_backward()
        opt.step()
        monitor.step()
    assert "grad_norm" in kept.rows[1]
    assert "grad_norm_after_clip" not in kept.rows[1]
    assert "loss" not in kept.rows[1]


def test_accumulated_gradients_count_once_and_their_losses_add_up() -> None:
    model, kept = net(), Kept()
    with Monitor(model, sinks=[kept]) as monitor:
        first = backward(model, 0.5)
        monitor.after_backward(first)
        second = backward(model, 0.5)
        monitor.after_backward(second)
        total = norm(p.grad for p in model.parameters())
        monitor.step()
    assert kept.rows[1]["grad_norm"] == pytest.approx(total, rel=1e-6)
    assert kept.rows[1]["loss"] == pytest.approx(first.item() + second.item())


def test_without_after_backward_gradients_are_those_that_the_optimizer_used() -> None:
    model, kept = net(), Kept()
    with Monitor(model, sinks=[kept]) as monitor:
        backward(model)
        monitor.step()
    assert kept.rows[1]["grad_norm"] > 0
    assert monitor.facts()["telemetry"]["gradients"] == "as the optimizer used them"


@pytest.mark.parametrize("unscales", [True, False])
def test_under_a_scaler_statistics_are_of_unscaled_gradients(unscales: bool) -> None:
    model, kept = net(), Kept()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    truth = {}
    with Monitor(model, opt, sinks=[kept], scaler=scaler) as monitor:
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
    assert [kept.rows[step]["grad_norm"] for step in (1, 2, 4)] == pytest.approx([truth[step] for step in (1, 2, 4)], rel=1e-6)
    assert kept.rows[3]["grad_norm"] == math.inf
    assert [kept.rows[step]["scaler/skipped_total"] for step in range(1, 5)] == [0, 0, 1, 1]
    assert [kept.rows[step]["scaler/scale"] for step in range(1, 5)] == [256, 256, 256, 128]


def test_frozen_shared_and_unused_parameters() -> None:
    model, kept = net(), Kept()
    model[0].bias.requires_grad_(False)
    model.add_module("tied", torch.nn.Linear(8, 1))
    model.tied.weight = model[2].weight
    model.tied.bias.requires_grad_(False)
    model.register_parameter("unused", torch.nn.Parameter(torch.ones(3)))
    with Monitor(model, sinks=[kept]) as monitor:
        model[2](torch.tanh(model[0](torch.randn(2, 4)))).sum().backward()
        monitor.after_backward()
        monitor.step()
    names = {name.removeprefix("grad_norm/") for name in kept.rows[1] if name.startswith("grad_norm/")}
    assert names == {"0.weight", "2.weight", "2.bias"}
    assert kept.rows[1]["weight_norm/unused"] == pytest.approx(math.sqrt(3))


def test_parameters_that_come_go_and_move_are_followed_and_said_once() -> None:
    model, kept = net(), Kept()
    with Monitor(model, sinks=[kept]) as monitor:
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
    assert "weight_norm/0.extra" not in kept.rows[1]
    assert "weight_norm/0.extra" in kept.rows[2]
    assert "weight_norm/2.weight" not in kept.rows[3]
    assert set(kept.rows) == {1, 2, 3, 4}


def test_a_model_that_moves_to_a_device_without_data_is_said_and_training_goes_on() -> None:
    model, kept = net(), Kept()
    with Monitor(model, sinks=[kept]) as monitor:
        backward(model)
        monitor.after_backward()
        monitor.step()
        model.to("meta")
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        with pytest.warns(RuntimeWarning) as told:
            monitor.after_backward()
        monitor.step()
    texts = " ".join(str(w.message) for w in told)
    assert "the model moved from cpu to meta" in texts
    assert "no statistics of 0.weight and 3 more: it has no data" in texts
    assert len(told) == 2
    assert list(kept.rows) == [1]


def test_one_layer_that_moves_is_left_out_at_once_and_said_when_weights_are_next_taken() -> None:
    model, kept = net(), Kept()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    config = TelemetryConfig(normal_interval=1, overhead_budget=1.0)
    with Monitor(model, sinks=[kept], config=config) as monitor, warnings.catch_warnings(record=True) as told:
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
    first = kept.rows[DENSE_UPDATES + 2]
    assert "grad_norm/0.weight" in first
    assert "grad_norm/2.weight" not in first
    assert set(kept.rows) == set(range(1, DENSE_UPDATES + config.weight_track_interval + 3))
    texts = " ".join(str(w.message) for w in told)
    assert "no statistics of 2.weight and 1 more: it has no data" in texts
    assert "the model moved from cpu to meta" in texts
    assert "disabled" not in texts


def test_bad_input_is_said_once_with_what_to_do() -> None:
    with pytest.warns(RuntimeWarning, match="Tanh has no trained parameter"):
        monitor = Monitor(torch.nn.Tanh(), sinks=[])
    monitor.after_backward(torch.tensor(1.0))
    monitor.step()
    monitor = Monitor(net(), sinks=[])
    with pytest.warns(RuntimeWarning, match=r"no parameter has a gradient; call after_backward\(\) after loss.backward\(\)"):
        monitor.after_backward(torch.tensor(1.0))
    monitor.step()
    with pytest.raises(ValueError, match="level must be one of OFF, MINIMAL, NORMAL, DEBUG, got 'loud'"):
        Monitor(net(), level="loud", sinks=[])
    with pytest.raises(ValueError, match="group 'head' has no trained parameter of the model"):
        Monitor(net(), groups={"head": torch.nn.Linear(1, 1)}, sinks=[])


def test_what_is_no_number_is_left_out_by_name_and_the_rest_is_recorded() -> None:
    model, kept = net(), Kept()
    with Monitor(model, sinks=[kept]) as monitor:
        backward(model)
        with pytest.warns(RuntimeWarning, match=r"the loss is not recorded: it is a tensor of torch.float32 of shape \(3,\)"):
            monitor.after_backward(torch.ones(3))
        with pytest.warns(RuntimeWarning) as told:
            monitor.step({"name": "run 7", "returns": torch.ones(2), "kl": 0.5, "count": 3})
    assert [str(w.message).partition(": ")[2] for w in told] == [
        "the metric 'name' is not recorded: it is a str; give a number, or a tensor of one element",
        "the metric 'returns' is not recorded: it is a tensor of torch.float32 of shape (2,); give its mean, or an element",
    ]
    assert (kept.rows[1]["kl"], kept.rows[1]["count"]) == (0.5, 3.0)
    assert kept.rows[1]["grad_norm"] > 0
    assert "loss" not in kept.rows[1]


@pytest.mark.parametrize(("change", "words"), [
    ({"version": 0}, "Monitor expects a state of version 1, found 0; take it from Monitor.state_dict"),
    ({"step": "a"}, "expects step to be int, found 'a'"),
    ({"config": {"version": 1}}, "TelemetryConfig expects a state with update_count"),
    ({"detector": {"version": 9}}, "AnomalyDetector expects a state of version 1, found 9"),
    (None, "Monitor expects a state of version 1, found a NoneType"),
])
def test_a_state_that_does_not_fit_is_refused_whole(change: Any, words: str) -> None:
    with Monitor(net(), sinks=[]) as monitor, Monitor(net(), sinks=[]) as other:
        other.config.advance(1.0, 2.0)
        before = monitor.state_dict()
        with pytest.raises(ValueError, match=words):
            monitor.load_state_dict(None if change is None else other.state_dict() | change)  # type: ignore[arg-type]
        assert monitor.state_dict() == before


def test_a_failure_of_its_own_turns_it_off_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    model = net()
    monitor = Monitor(model, sinks=[])
    backward(model)
    monkeypatch.setattr(type(monitor._watched.track), "take_gradients", lambda *args: 1 / 0)
    with pytest.warns(RuntimeWarning, match=r"disabled for the rest of this run after an internal error \(ZeroDivisionError"):
        monitor.after_backward()
    monitor.after_backward()
    monitor.step()


def test_a_nan_loss_is_an_anomaly_and_escalates() -> None:
    model, kept = net(), Kept()
    config = TelemetryConfig(overhead_budget=1.0)
    with Monitor(model, sinks=[kept], config=config) as monitor:
        backward(model)
        monitor.after_backward(torch.tensor(math.nan))
        monitor.step()
        monitor.writer.flush()
        assert config.is_escalated
        backward(model)
        monitor.after_backward(torch.tensor(1.0))
        monitor.step()
    assert [event.code for event in kept.events] == ["TT401"]
    assert "grad_std/0.weight" not in kept.rows[1]
    assert "grad_std/0.weight" in kept.rows[2]


def test_levels() -> None:
    for level, has_weights in (("minimal", False), (TelemetryLevel.NORMAL, True)):
        model, kept = net(), Kept()
        with Monitor(model, sinks=[kept], level=level) as monitor:
            backward(model)
            monitor.after_backward()
            monitor.step()
        assert ("weight_norm" in kept.rows[1]) is has_weights
    kept = Kept()
    with Monitor(net(), sinks=[kept], level="off") as monitor:
        monitor.after_backward(torch.tensor(1.0))
        monitor.step()
    assert not kept.rows


@pytest.mark.parametrize("level", ["normal", "debug"])
def test_what_is_small_or_large_is_counted_where_it_is_asked_for(level: str) -> None:
    model, kept = net(), Kept()
    with Monitor(model, sinks=[kept], level=level) as monitor:
        for _ in range(3):
            model[0].weight.grad = torch.tensor([0.0, 1e-9, 100.0, 1.0]).repeat(8, 1)
            monitor.after_backward()
            monitor.step()
    for row in kept.rows.values():
        found = [row.get(f"grad_{name}_fraction/0.weight") for name in ("zero", "small", "large")]
        assert found == ([0.25, 0.5, 0.25] if level == "debug" else [0.25, None, None])


def test_activations_at_debug_and_never_of_a_compiled_model() -> None:
    config = TelemetryConfig(level=TelemetryLevel.DEBUG, activation_monitoring=True)
    torch._dynamo.utils.counters.clear()
    model, kept = net(), Kept()
    with Monitor(model, sinks=[kept], config=config) as monitor:
        for _ in range(3):
            backward(model)
            monitor.after_backward()
            monitor.step()
        assert not model[0]._forward_hooks or monitor._activations is not None
    assert kept.rows[2]["activation_norm/1"] > 0
    assert "activation_zero_fraction/0" in kept.rows[3]
    model = net()
    model.compile(backend="eager")
    with Monitor(model, sinks=[], config=TelemetryConfig(level=TelemetryLevel.DEBUG, activation_monitoring=True)) as monitor:
        model[0](torch.randn(1, 4)).sum().backward()
        monitor.after_backward()
        with pytest.warns(RuntimeWarning, match="no statistics of activations: the model is compiled"):
            monitor.step()
    assert not any(module._forward_hooks for module in model.modules())


def test_histograms_on_request_have_64_bins() -> None:
    model, kept = net(), Kept()
    with Monitor(model, sinks=[kept], histograms=True) as monitor:
        backward(model)
        monitor.after_backward()
        monitor.step()
    counts = kept.histograms["grad_exponents/0.weight"]
    assert len(counts) == 64
    assert sum(counts) == 32


def test_a_checkpoint_resumes_exactly() -> None:
    model = net()
    first, second = Kept(), Kept()
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


def test_it_makes_a_recording_of_its_own_and_refuses_to_overwrite_one(tmp_path: Path) -> None:
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
    with pytest.raises(Exception, match="holds a recording; name another one"):
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


def test_a_step_that_the_scaler_skips_is_an_event_also_if_it_is_the_last() -> None:
    model, kept = net(), Kept()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    config = TelemetryConfig(normal_interval=1000)      # none of the skipped steps is looked at
    with Monitor(model, opt, sinks=[kept], scaler=scaler, config=config) as monitor:
        for step in range(1, 41):
            scaler.scale(model(torch.ones(4, 4)).pow(2).mean()).backward()
            if step in (30, 40):
                model[0].weight.grad[0, 0] = math.inf
            monitor.after_backward()
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
            monitor.step()
    assert [(event.optimizer, event.step, event.total) for event in kept.events] == [("SGD", 30, 1), ("SGD", 40, 2)]
    assert monitor.facts()["telemetry"]["num_skipped_steps"] == 2


def test_the_type_that_autocast_computes_in_is_a_fact_and_the_rules_know_it() -> None:
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


def test_once_a_program_clips_steps_that_it_does_not_clip_are_told_too() -> None:
    """Else all that is known of clipping would be that it happened."""
    model, kept = net(), Kept()
    with Monitor(model, sinks=[kept]) as monitor:
        for step in range(1, 5):
            backward(model)
            monitor.after_backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3 if step == 2 else 1e9)
            monitor.step()
            model.zero_grad()
    assert ["grad_norm_after_clip" in kept.rows[step] for step in range(1, 5)] == [False, True, True, True]
    assert kept.rows[3]["grad_norm_after_clip"] == kept.rows[3]["grad_norm"]


def test_groups_that_are_added_to_the_optimizer_later_are_followed() -> None:
    model, kept = net(), Kept()
    opt = torch.optim.SGD(model[0].parameters(), lr=0.1)
    with Monitor(model, opt, sinks=[kept]) as monitor:
        for step in (1, 2):
            backward(model)
            monitor.after_backward()
            monitor.step()
            if step == 1:
                opt.add_param_group({"params": model[2].parameters(), "name": "head"})
    assert "grad_norm/group:head" not in kept.rows[1]
    assert "grad_norm/group:head" in kept.rows[2]
