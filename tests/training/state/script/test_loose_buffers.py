"""Buffers of modules that `prepare` was not given: refused where turns change them."""

import pytest
import torch
from torch import nn

from springtide.errors import JobError
from springtide.training.state.script.loose_buffers import look_at_loose

CPU = torch.device("cpu")


class Centre(nn.Module):
    """A criterion with a centre of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.centre: torch.Tensor
        self.register_buffer("centre", torch.zeros(3))


@pytest.mark.parametrize("in_place", [False, True])
def test_a_changed_buffer_is_refused_by_its_name(in_place: bool) -> None:
    criterion = Centre()
    loose = look_at_loose([nn.Linear(2, 2)], CPU)
    loose.refuse_changed(CPU)
    if in_place:
        criterion.centre.add_(1)
    else:
        criterion.centre = criterion.centre + 1
    with pytest.raises(JobError, match=r"buffer 'centre' of criterion \(Centre\).*run.mean"):
        loose.refuse_changed(CPU)


def test_a_trained_module_is_to_be_given() -> None:
    forgotten = nn.BatchNorm1d(2)
    loose = look_at_loose([nn.Linear(2, 2)], CPU)
    forgotten(torch.randn(4, 2))
    with pytest.raises(JobError, match=r"of forgotten \(BatchNorm1d\).*Give the module to run.prepare"):
        loose.refuse_changed(CPU)


def test_buffers_of_the_models_and_of_modules_made_anew_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    around = nn.Sequential(model)
    scratch = nn.BatchNorm1d(2)
    loose = look_at_loose([model], CPU)
    around(torch.randn(4, 2))
    scratch = nn.BatchNorm1d(2)
    scratch(torch.randn(4, 2))
    loose.refuse_changed(CPU)
