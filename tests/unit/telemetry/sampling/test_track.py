"""Rows from a device, with tensors that pretend to be on one."""

import math
from typing import Any

import pytest
import torch

from torchtriage.telemetry.observation import Observation
from torchtriage.telemetry.sampling import track as tracks
from torchtriage.telemetry.sampling.devices import DevicePart
from torchtriage.telemetry.sampling.row import AFTER, GRADS, NUM_EXTRAS, SCALE
from torchtriage.telemetry.sampling.track import Track


class Copy:
    """An event of a device."""

    has_arrived = False

    def record(self) -> None: ...

    def query(self) -> bool:
        return Copy.has_arrived


@pytest.fixture
def track(monkeypatch: pytest.MonkeyPatch) -> Track:
    """Of three parameters as on a GPU: statistics by torch operations, values on the device until the row is read."""
    Copy.has_arrived = False
    monkeypatch.setattr(tracks, "new_part", DevicePart)
    parameters = [torch.nn.Parameter(torch.full((n,), float(n))) for n in (4, 9, 16)]
    made = Track([(f"p{p.numel()}", p) for p in parameters], {"all": parameters}, num_slots=2)
    made._extras = torch.zeros(NUM_EXTRAS, dtype=torch.float64)
    made.ring._events = [[Copy()] for _ in range(2)]
    return made


def read(track: Track) -> list[Observation]:
    Copy.has_arrived = True
    return list(track.reader.observations())


def test_only_existing_gradients_are_copied_each_to_its_row(track: Track) -> None:
    track.parameters[2].grad = torch.ones(16)
    track.parameters[0].grad = torch.ones(4)
    assert track.open()
    track.take_gradients(GRADS, [2])        # clipped by itself, before the others
    track.take_gradients(GRADS)
    track.take_weights()
    track.add_loss(torch.tensor(1.5))
    track.add_loss(torch.tensor(2.0))
    track.commit()
    assert list(track.reader.observations()) == []
    (seen,) = read(track)
    row = seen.flat()
    assert (row["grad_norm/p4"], row["grad_norm/p16"]) == (2.0, 4.0)
    assert "grad_norm/p9" not in row
    assert row["grad_norm"] == pytest.approx(math.sqrt(20))
    assert row["weight_norm/p9"] == pytest.approx(27.0)
    assert row["loss"] == 3.5


def test_scale_on_the_device_is_removed_when_the_row_is_read(track: Track) -> None:
    track.parameters[0].grad = torch.full((4,), 8.0)
    track.open()
    track.take_gradients(GRADS)
    track.take_gradients(AFTER)
    track.label.scaled |= {GRADS}
    track.put_extra(SCALE, torch.tensor(8.0))
    track.add_loss(torch.tensor(16.0))
    track.commit()
    (seen,) = read(track)
    assert seen.values["grad_norm"] == 2.0
    assert seen.values["grad_norm_after_clip"] == 16.0
    assert seen.values["loss"] == 2.0


def test_device_step_reads_nothing_and_allocates_only_at_the_first(track: Track) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    loss = torch.tensor(1.0)
    names: list[str] = []
    for step in range(3):
        for p in track.parameters:
            p.grad = torch.ones_like(p)
        names.clear()
        with Count(), torch.no_grad():
            track.open()
            track.begin_update()
            track.take_weights()
            track.take_gradients(GRADS)
            track.end_update()
            track.add_loss(loss)
            track.commit()
        assert len(read(track)) == 1
        if step:
            assert not {"_local_scalar_dense", "item", "empty", "zeros", "full", "empty_like", "clone"} & set(names)


def test_full_ring_drops_the_row_and_counts_it(track: Track) -> None:
    for _ in range(4):
        if track.open():
            track.commit()
    assert track.ring.num_dropped == 2
