"""Shared by the tests of launch/."""

import pytest

from torchtriage import errors


@pytest.fixture
def stderr(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> pytest.CaptureFixture[str]:
    """Captures descriptor 2, as if the process had started with it."""
    monkeypatch.setattr(errors, "_stderr_at_start", errors._stderr())
    return capfd
