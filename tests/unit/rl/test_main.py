"""How a training process ends: its exit code, its last message, and the effect of Ctrl-C."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from torchtriage.errors import TriageError
from torchtriage.rl import main as module
from torchtriage.rl import trainer
from torchtriage.rl.config import TrainConfig


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in module.SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Fails:
    """A trainer that fails in its first step."""

    def __init__(self, config: TrainConfig, **_: Any) -> None:
        pass

    def train(self) -> Any:
        raise TriageError("environment 3 gave numbers that are not finite")


def run(config: TrainConfig) -> int:
    return module.main(["run", config.to_json()])


def test_a_training_that_cannot_continue_exits_with_1_and_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trainer, "Trainer", Fails)
    assert run(TrainConfig()) == 1
    assert capsys.readouterr().err == "torchtriage: environment 3 gave numbers that are not finite\n"


def test_a_training_that_cannot_begin_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gymnasium")
    assert run(TrainConfig(env="CartPol-v1")) == 2
    assert "CartPole-v1" in capsys.readouterr().err


def test_the_first_ctrl_c_stops_after_the_update_and_the_second_at_once() -> None:
    stop = module.Stop()
    assert not stop()
    os.kill(os.getpid(), signal.SIGINT)
    assert stop()
    assert stop.number == signal.SIGINT
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)


def test_every_seed_is_a_process_with_separate_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[TrainConfig] = []

    class Child:
        returncode = 0

        def __init__(self, words: list[str]) -> None:
            started.append(TrainConfig.from_json(words[-1]))
            self.returncode = 3 if started[-1].seed == 6 else 0

        def poll(self) -> int:
            return self.returncode

    monkeypatch.setattr(module.subprocess, "Popen", Child)
    assert run(TrainConfig(seed=5, seeds=3, jobs=2, checkpoint="kept", jsonl="a.jsonl")) == 3
    assert [(one.seed, one.seeds, one.checkpoint, one.jsonl) for one in started] == [
        (seed, 1, f"kept/seed-{seed}", f"a.jsonl.seed-{seed}") for seed in (5, 6, 7)
    ]
