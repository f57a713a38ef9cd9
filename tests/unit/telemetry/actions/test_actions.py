"""A Monitor stops, skips, profiles or calls a function only on request, and exactly where it says."""

import copy
import math
from pathlib import Path

import pytest
import torch

from torchtriage.errors import TriageError
from torchtriage.recording.events import Anomaly
from torchtriage.telemetry import Monitor, ProfileSteps, StopTraining, TrainingStoppedError
from torchtriage.telemetry.actions import step_skipper

BAD_STEP = 30      # beyond the first updates, which are all sampled


def train(
    steps: int, optimizer: type[torch.optim.Optimizer] = torch.optim.SGD, bad: int = BAD_STEP, **options,
) -> tuple[torch.nn.Module, Monitor]:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    stepper = optimizer(model.parameters(), lr=0.01)
    with Monitor(model, stepper, sinks=(), **options) as monitor:
        for step in range(1, steps + 1):
            loss = model(torch.randn(8, 4)).pow(2).mean() * (math.nan if step == bad else 1.0)
            loss.backward()
            monitor.after_backward(loss)
            stepper.step()
            monitor.step()
            stepper.zero_grad()
    return model, monitor


def test_a_function_is_called_with_the_anomaly_in_the_step_of_a_bad_loss() -> None:
    seen: list[Anomaly] = []
    train(BAD_STEP, on_anomaly=seen.append)
    assert [(a.code, a.subject, a.step) for a in seen][:1] == [("TT401", "loss", BAD_STEP)]


def test_a_training_stops_in_the_step_of_a_bad_loss_and_says_why() -> None:
    with pytest.raises(TrainingStoppedError, match=f"TT401, the loss is NaN in step {BAD_STEP}; see"):
        train(BAD_STEP + 5, on_anomaly=StopTraining())


def test_a_training_continues_after_an_anomaly_of_another_code() -> None:
    assert train(BAD_STEP + 5, on_anomaly=[StopTraining(codes=("TT6",))])[1].num_skipped == 0


def test_an_error_of_a_function_reaches_the_training() -> None:
    def fail(anomaly: Anomaly) -> None:
        raise KeyError(anomaly.code)

    with pytest.raises(KeyError, match="TT401"):
        train(BAD_STEP + 5, on_anomaly=fail)


@pytest.mark.parametrize("steps_after", [2, 6])
def test_the_steps_after_an_anomaly_are_profiled_once(steps_after: int, tmp_path: Path) -> None:
    train(BAD_STEP + steps_after, on_anomaly=ProfileSteps(tmp_path, steps=2))
    assert len(list(tmp_path.glob("*.pt.trace.json.gz"))) == 1


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TriageError, match="must be a function of one Anomaly"):
        train(1, on_anomaly=["stop"])


@pytest.mark.parametrize("on_device", [False, True], ids=["withheld", "undone"])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad])
@pytest.mark.parametrize("bad", [1, 4])
def test_a_bad_step_changes_neither_weights_nor_state(
    optimizer: type[torch.optim.Optimizer], bad: int, on_device: bool, monkeypatch: pytest.MonkeyPatch,
) -> None:
    if on_device:
        monkeypatch.setattr(step_skipper, "is_read_without_waiting", lambda tensor: False)
    torch.manual_seed(0)
    expected = torch.nn.Linear(4, 1)
    healthy = optimizer(expected.parameters(), lr=0.01)
    for step in range(1, 7):
        loss = expected(torch.randn(8, 4)).pow(2).mean()
        if step != bad:
            loss.backward()
            healthy.step()
            healthy.zero_grad()
    model, monitor = train(6, optimizer, bad, skip_non_finite=True)
    torch.testing.assert_close(model.weight, expected.weight, rtol=0, atol=0)
    assert monitor.num_skipped == 1


def test_gradients_of_a_skipped_step_are_still_there_afterwards() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weights = copy.deepcopy(model.state_dict())
    with Monitor(model, optimizer, sinks=(), skip_non_finite=True):
        (model(torch.ones(1, 2)) * math.inf).sum().backward()
        optimizer.step()
    assert model.weight.grad is not None
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize(("optimizer", "error"), [
    (lambda p: torch.optim.LBFGS(p), "LBFGS computes them inside"), (lambda p: None, "needs the optimizer"),
])
def test_an_optimizer_whose_steps_cannot_be_skipped_is_refused(optimizer, error: str) -> None:
    model = torch.nn.Linear(2, 1)
    with pytest.raises(TriageError, match=error):
        Monitor(model, optimizer(model.parameters()), sinks=(), skip_non_finite=True)


def test_a_step_with_a_closure_is_not_skipped_and_a_warning_says_so() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    warning = pytest.warns(RuntimeWarning, match="steps are no longer skipped: step.. was given a closure")
    with Monitor(model, optimizer, sinks=(), skip_non_finite=True), warning:
        optimizer.step(lambda: model(torch.ones(1, 2)).sum())
