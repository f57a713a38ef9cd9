"""Shared by the tests of launch/."""

import pytest

from torchtriage import errors


@pytest.fixture
def stderr(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> pytest.CaptureFixture[str]:
    """Captures descriptor 2, as if the process had started with it.

    pytest opens another file for each phase of a test: the file that this fixture could note is gone in the test.
    """
    monkeypatch.setattr(errors, "_stderr", lambda: (0, 0))
    monkeypatch.setattr(errors, "_stderr_at_start", (0, 0))
    return capfd
