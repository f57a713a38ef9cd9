"""No damaged input ends in a traceback or hangs; `make fuzz` reads many more of them."""

import pytest

from tests.fuzz.readers import READERS, read_damaged

NUM_INPUTS = 25     # per reader: all together take less than a minute


@pytest.mark.thorough
@pytest.mark.parametrize("name", READERS)
def test_damaged_input_is_read_or_refused(name: str) -> None:
    for seed in range(NUM_INPUTS):
        read_damaged(name, seed)
