"""Buffers of logical workers: each has its own where DDP is told not to broadcast, whatever values are in them."""

from typing import Any

import pytest
import torch

from springtide.errors import JobError
from springtide.training.determinism.operators import OperatorScan, check_operators
from springtide.training.workers.buffers import Buffers


class Remembering(torch.nn.Module):
    """A model with a buffer in which one place was never written."""

    seen: torch.Tensor

    def __init__(self, unknown: float) -> None:
        super().__init__()
        self.register_buffer("seen", torch.tensor([unknown, 0.0]))


def take_turns(buffers: Buffers, model: Remembering) -> None:
    """A walk in which each of two workers adds its own."""
    buffers.begin_walk([0, 1])
    for worker in (0, 1):
        buffers.begin_turn(worker, is_first=worker == 0)
        model.seen[1] += worker + 1
        buffers.end_turn(worker)
    buffers.end_walk([0, 1])


def read_own(buffers: Buffers) -> list[Any]:
    """What the workers have in the second place."""
    return [buffers.kept[worker][:8].view(torch.float32)[1].item() for worker in (0, 1)]


@pytest.mark.parametrize("unknown", [0.0, float("nan")])
def test_own_buffers_stay_the_workers_own(unknown: float) -> None:
    model = Remembering(unknown)
    buffers = Buffers(model, broadcasting=False)
    for steps in (1, 2, 3):
        take_turns(buffers, model)
        assert read_own(buffers) == [steps, 2 * steps]


def test_what_is_written_between_walks_is_written_to_all_also_another_zero() -> None:
    model = Remembering(0.0)
    buffers = Buffers(model, broadcasting=False)
    take_turns(buffers, model)
    model.seen[0] = -0.0
    buffers.begin_walk([0, 1])
    assert [buffers.kept[worker][:4].view(torch.float32).signbit().item() for worker in (0, 1)] == [True, True]


def test_a_buffer_with_other_data_has_these_in_turns() -> None:
    model = Remembering(0.0)
    buffers = Buffers(model, broadcasting=True)
    before = model.seen.data
    model.seen.data = torch.tensor([5.0, 7.0])
    take_turns(buffers, model)
    assert (model.seen.tolist(), before.tolist()) == ([5.0, 8.0], [0.0, 0.0])
    assert buffers.coming.views[0].tolist() == [5.0, 8.0]


def test_a_buffer_with_data_of_another_form_is_refused() -> None:
    model = Remembering(0.0)
    buffers = Buffers(model, broadcasting=True)
    model.seen.data = torch.zeros(3)
    with pytest.raises(JobError, match=r"buffer 'seen' of Remembering was given other .data: .* shape \(3,\)"):
        buffers.begin_walk([0, 1])


def test_level_d2_knows_the_operators_of_own_buffers() -> None:
    model = Remembering(0.0)
    buffers = Buffers(model, broadcasting=False)
    with OperatorScan() as scan:
        buffers.begin_walk([0, 1])
    check_operators(scan.seen)
