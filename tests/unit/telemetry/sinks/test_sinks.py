"""Each sink with the package it is made for."""

import contextlib
import io
import json
import math
import sqlite3
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from torchtriage.errors import TriageError
from torchtriage.recording.events import Anomaly, StepSkipped
from torchtriage.telemetry.observation import Observation
from torchtriage.telemetry.sinks import Sink, make_sink
from torchtriage.telemetry.sinks.jsonl import JsonlSink
from torchtriage.telemetry.sinks.stdout import StdoutSink
from torchtriage.telemetry.statistics.columns import NUM_STATS, Stat

ANOMALY = Anomaly(code="TT402", subject="fc.weight", step=2, value=math.nan, text="1 NaN in the gradient of fc.weight")


def observation(step: int, loss: float) -> Observation:
    table = np.zeros((1, NUM_STATS))
    table[0, [Stat.NORM, Stat.NUM_ZERO, Stat.NUM_ELEMENTS]] = 3.0, 1, 4
    return Observation(
        step=step, time=1e9 + step, values={"loss": loss, "grad_norm": 3.0}, names=("fc.weight",), grad_PS=table,
        histograms={"grad_exponents/fc.weight": [0] * 63 + [4]},
    )


def feed(sink: Sink) -> None:
    sink.write(observation(1, 0.5))
    sink.write(observation(2, math.nan))
    sink.event(ANOMALY)
    sink.event(StepSkipped(step=2, optimizer="SGD", total=1))
    sink.close()


def test_jsonl_has_one_strict_json_line_per_observation(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run.jsonl"
    feed(JsonlSink(path))
    rows = [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]
    assert rows[0]["loss"] == 0.5
    assert rows[0]["grad_norm/fc.weight"] == 3.0
    assert rows[0]["grad_zero_fraction/fc.weight"] == 0.25
    assert sum(rows[0]["grad_exponents/fc.weight"]) == 4
    assert rows[1]["loss"] == "nan"
    assert (rows[2]["event"], rows[2]["code"]) == ("anomaly", "TT402")
    assert rows[3]["event"] == "step_skipped"


def test_jsonl_appends_to_an_existing_file(tmp_path: Path) -> None:
    for _ in range(2):
        feed(JsonlSink(tmp_path / "run.jsonl"))
    assert len((tmp_path / "run.jsonl").read_text().splitlines()) == 8


def test_stdout_is_a_table_with_anomalies_between_rows() -> None:
    text = io.StringIO()
    feed(StdoutSink(text))
    lines = text.getvalue().splitlines()
    assert lines[0].split() == ["step", "loss", "grad", "norm", "clipped", "to", "weight", "norm", "update"]
    assert lines[1].split() == ["1", "0.5", "3"]
    assert lines[2].split() == ["2", "nan", "3"]
    assert lines[3].split(maxsplit=2) == ["2", "TT402", "1 NaN in the gradient of fc.weight"]


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    feed(make_sink(f"tensorboard:{tmp_path}"))
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    assert [(e.step, e.value) for e in read.Scalars("grad_norm/fc.weight")] == [(1, 3.0), (2, 3.0)]
    assert math.isnan(read.Scalars("loss")[1].value)
    assert read.Tags()["histograms"] == ["grad_exponents/fc.weight"]
    assert read.Histograms("grad_exponents/fc.weight")[0].histogram_value.num == 4


def test_wandb_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    from torchtriage.telemetry.sinks.wandb import WandbSink

    feed(WandbSink(project="test", mode="offline", dir=str(tmp_path)))
    (log,) = tmp_path.rglob("run-*.wandb")
    until = time.monotonic() + 120.0
    while b"anomaly/TT402" not in log.read_bytes() and time.monotonic() < until:
        time.sleep(0.1)     # another process writes the file
    assert all(name in log.read_bytes() for name in (b"grad_norm/fc.weight", b"torchtriage/step", b"anomaly/TT402"))


def test_trackio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))        # read when the package is imported
    pytest.importorskip("trackio")
    feed(make_sink("trackio:torchtriage-test"))
    with contextlib.closing(sqlite3.connect(tmp_path / "torchtriage-test.db")) as store:
        rows = [
            (step, json.loads(metrics))
            for step, metrics in store.execute("SELECT step, metrics FROM metrics ORDER BY id")
        ]
    assert [(step, row.get("grad_norm/fc.weight")) for step, row in rows] == [(1, 3.0), (2, 3.0), (2, None)]
    assert "anomaly/TT402" in rows[2][1]


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio"])
def test_missing_package_is_reported_with_a_remedy(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(TriageError, match=rf"the {name} sink needs {name}.*pip install 'torchtriage\[{name}\]'"):
        make_sink(f"{name}:{tmp_path}")
