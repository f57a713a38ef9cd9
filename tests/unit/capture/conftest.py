"""These tests do without torch: what reaches into Dynamo is left out."""

import pytest

from torchtriage.capture import call_sizes, piece_timer, torch_private, torch_private_shapes


@pytest.fixture(autouse=True)
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "frame_callback_swap", lambda: lambda callback: callback)
    for module in (torch_private, torch_private_shapes, piece_timer, call_sizes):
        monkeypatch.setattr(module, "never_compile", lambda function: function)
