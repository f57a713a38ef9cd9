"""The callbacks for training frameworks, with the real packages; one that is not installed skips its tests."""

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
NAN_FROM = 12       # the forward pass from which the loss is NaN


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A regression that may fail; its parameters are NaN from then on."""

    def __init__(self, nan_from: int | None = None) -> None:
        super().__init__()
        self.body, self.head = torch.nn.Linear(4, 16), torch.nn.Linear(16, 1)
        self.nan_from, self.num = nan_from, 0

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        self.num += 1
        out = self.head(torch.tanh(self.body(x)))
        loss = (out - labels).pow(2).mean()
        return {"loss": loss * float("nan") if self.nan_from is not None and self.num >= self.nan_from else loss}


class Data(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
    def __len__(self) -> int:
        return 160

    def __getitem__(self, at: int) -> dict[str, Any]:
        x = torch.sin(torch.arange(4.0) * (at + 1))
        return {"x": x, "labels": x.sum().reshape(1)}


@pytest.fixture(autouse=True)
def seed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def warnings_of(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.WARNING, logger="torchtriage")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "torchtriage"]


@pytest.mark.parametrize("name", ["lightning", "transformers", "stable_baselines3", "accelerate"])
def test_a_missing_package_is_named_with_its_command(name: str) -> None:
    program = (
        "import sys, torchtriage\n"
        f"assert {name!r} not in sys.modules\n"
        f"sys.modules.update({{{name!r}: None, 'pytorch_lightning': None}})\n"
        f"try: import torchtriage.integrations.{name}\n"
        "except torchtriage.errors.TriageError as error: print(error)\n"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=600)
    assert f"install it with: pip install {name.replace('_', '-')}\n" in out.stdout


# Transformers, whose import alone takes seconds

def trained_by_transformers(nan_from: int | None, with_trainer: bool = True) -> Any:
    transformers = pytest.importorskip("transformers")
    from torchtriage.integrations.transformers import TriageCallback

    args = transformers.TrainingArguments(
        "out", max_steps=24, per_device_train_batch_size=8, learning_rate=1e-2, logging_steps=4, report_to="none",
        use_cpu=True, save_strategy="no", disable_tqdm=True,
    )
    trainer = transformers.Trainer(Net(nan_from), args, train_dataset=Data())
    trainer.add_callback(TriageCallback(trainer if with_trainer else None))
    trainer.train()
    return trainer


@pytest.mark.thorough
def test_a_finding_is_in_the_log_of_transformers(warnings_of: Any) -> None:
    trainer = trained_by_transformers(NAN_FROM)
    assert any("torchtriage/TT402" in row for row in trainer.state.log_history)
    assert any("NaN" in warning and "torchtriage explain" in warning for warning in warnings_of())


@pytest.mark.thorough
def test_a_healthy_training_with_transformers_has_no_warning(warnings_of: Any) -> None:
    trainer = trained_by_transformers(None)
    assert not any(name.startswith("torchtriage/") for row in trainer.state.log_history for name in row)
    assert warnings_of() == []


# Stable-Baselines3

def learned(learning_rate: float) -> dict[str, list[Any]]:
    """The numbers that its logger received."""
    pytest.importorskip("stable_baselines3")
    from stable_baselines3 import PPO
    from stable_baselines3.common.logger import KVWriter, Logger

    from torchtriage.integrations.stable_baselines3 import TriageCallback

    class Rows(KVWriter):  # type: ignore[misc, unused-ignore]
        rows: list[dict[str, Any]]

        def __init__(self) -> None:
            self.rows = []

        def write(self, key_values: Any, key_excluded: Any, step: int = 0) -> None:
            self.rows.append(dict(key_values))

    written = Rows()
    model = PPO(
        "MlpPolicy", "CartPole-v1", learning_rate=learning_rate, n_steps=128, batch_size=64, n_epochs=4, seed=0,
        device="cpu",
    )
    model.set_logger(Logger(None, [written]))
    model.learn(1024, callback=TriageCallback())
    seen: dict[str, list[Any]] = {}
    for row in written.rows:
        for name, value in row.items():
            seen.setdefault(name, []).append(value)
    return seen


def test_a_finding_is_in_the_log_of_stable_baselines3(warnings_of: Any) -> None:
    numbers = learned(learning_rate=1.0)
    assert [name for name in numbers if name.startswith("torchtriage/")]
    assert warnings_of()


def test_a_healthy_training_with_stable_baselines3_has_no_warning(warnings_of: Any) -> None:
    numbers = learned(learning_rate=3e-4)
    assert not [name for name in numbers if name.startswith("torchtriage/")]
    assert warnings_of() == []


# Accelerate

@pytest.mark.parametrize("nan_from", [None, NAN_FROM])
def test_a_finding_is_passed_to_the_tracker_of_accelerate(nan_from: int | None, warnings_of: Any) -> None:
    accelerate = pytest.importorskip("accelerate")
    from torchtriage.integrations.accelerate import triage

    class Rows(accelerate.tracking.GeneralTracker):  # type: ignore[misc, name-defined]
        name, requires_logging_directory, tracker = "rows", False, None

        def __init__(self) -> None:
            super().__init__()
            self.rows: list[dict[str, Any]] = []

        def store_init_configuration(self, values: Any) -> None: ...

        def log(self, values: Any, step: int | None = None, **kwargs: Any) -> None:
            self.rows.append(values)

    rows = Rows()
    accelerator = accelerate.Accelerator(cpu=True, log_with=rows)
    accelerator.init_trackers("test")
    model = Net(nan_from)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.Adam(model.parameters(), lr=1e-2), torch.utils.data.DataLoader(Data(), batch_size=8))
    with triage(accelerator, model, optimizer):
        for batch in loader:
            optimizer.zero_grad()
            accelerator.backward(model(**batch)["loss"])
            optimizer.step()
    assert any("torchtriage/TT402" in row for row in rows.rows) == (nan_from is not None)
    assert bool(warnings_of()) == (nan_from is not None)


# Lightning

def trained_by_lightning(nan_from: int | None) -> list[dict[str, float]]:
    """The metrics that its logger received."""
    pytest.importorskip("lightning")
    import lightning
    from lightning.pytorch.loggers.logger import Logger

    from torchtriage.integrations.lightning import TriageCallback

    class Rows(Logger):  # type: ignore[misc, unused-ignore]
        name, version = "rows", 0

        def __init__(self) -> None:
            super().__init__()
            self.rows: list[dict[str, float]] = []

        def log_hyperparams(self, *args: Any, **kwargs: Any) -> None: ...

        def log_metrics(self, metrics: Any, step: int | None = None) -> None:
            self.rows.append(dict(metrics))

    class Module(lightning.LightningModule):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net(nan_from)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = self.net(**batch)["loss"]
            self.log("train_loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=1e-2)

    rows = Rows()
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=rows, callbacks=[TriageCallback()], enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, accumulate_grad_batches=2, gradient_clip_val=1.0,
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(Data(), batch_size=8))
    return rows.rows


@pytest.mark.thorough
def test_a_finding_is_in_the_log_of_lightning(warnings_of: Any) -> None:
    rows = trained_by_lightning(NAN_FROM)
    assert any("torchtriage/TT401" in row for row in rows)
    assert warnings_of()


@pytest.mark.thorough
def test_a_healthy_training_with_lightning_has_no_warning(warnings_of: Any) -> None:
    rows = trained_by_lightning(None)
    assert not any(name.startswith("torchtriage/") for row in rows for name in row)
    assert warnings_of() == []
