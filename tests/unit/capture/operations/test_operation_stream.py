"""What is recorded of each operation."""

from typing import Any

import torch

from torchtriage.capture.operations.operation_stream import Places, recording_mode


def test_memory_that_an_operation_overwrites_is_not_its_input() -> None:
    rows: list[dict[str, Any]] = []
    with recording_mode(rows.append, Places()):
        torch.empty(3).uniform_()
        torch.empty(3).copy_(torch.ones(3))
        torch.ones(3).mul_(2)
    assert [(row["name"], len(row["inputs"]), len(row["outputs"])) for row in rows if row["name"] != "aten.ones"] == [
        ("aten.uniform_", 0, 1), ("aten.copy_", 1, 1), ("aten.mul_.Tensor", 1, 1)]
