"""A watched block leaves the log of a test as it is."""

import logging

import pytest

from torchtriage.capture.taps.trace import LOGGER_NAME
from torchtriage.integrations.watch import watch

pytest.importorskip("torch")


def test_trace_records_stay_out_of_the_log_of_a_test(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger(LOGGER_NAME)
    logger.addHandler(caplog.handler)
    try:
        with watch():
            logger.debug("a record of torch")
            logging.getLogger("mine").warning("a record of the test")
        logger.warning("after the block")
    finally:
        logger.removeHandler(caplog.handler)
    assert "a record of torch" not in caplog.text
    assert {"a record of the test", "after the block"} <= set(caplog.messages)
