"""These tests run without torch, so every call into Dynamo is replaced."""

import pytest

from torchtriage.capture.policy import call_sizes
from torchtriage.capture.taps import piece_timer
from torchtriage.capture.torch_private import base as torch_private
from torchtriage.capture.torch_private import shapes as torch_private_shapes
from torchtriage.capture.torch_private import training as torch_private_training


@pytest.fixture(autouse=True)
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "frame_callback_swap", lambda: lambda callback: callback)
    for module in (torch_private, torch_private_shapes, torch_private_training, piece_timer, call_sizes):
        monkeypatch.setattr(module, "never_compile", lambda function: function)
