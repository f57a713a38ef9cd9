"""These tests do without torch: what reaches into Dynamo is left out."""

import pytest

from torchtriage.capture import piece_timer, torch_private


@pytest.fixture(autouse=True)
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "frame_callback_swap", lambda: lambda callback: callback)
    for module in (torch_private, piece_timer):
        monkeypatch.setattr(module, "never_compile", lambda function: function)
