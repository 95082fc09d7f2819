"""Buffers of modules that `prepare` was not given: refused where turns change them."""

import copy

import pytest
import torch
from torch import nn

from springtide.errors import JobError
from springtide.training.state.script.loose_tensors import look_at_loose

CPU = torch.device("cpu")


def refuse_warning(text: str) -> None:
    raise AssertionError(text)


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
    loose.refuse_changed(CPU, refuse_warning)
    if in_place:
        criterion.centre.add_(1)
    else:
        criterion.centre = criterion.centre + 1
    with pytest.raises(JobError, match=r"buffer 'centre' of criterion \(Centre\).*run.mean"):
        loose.refuse_changed(CPU, refuse_warning)


def test_a_trained_module_is_to_be_given() -> None:
    forgotten = nn.BatchNorm1d(2)
    loose = look_at_loose([nn.Linear(2, 2)], CPU)
    forgotten(torch.randn(4, 2))
    with pytest.raises(JobError, match=r"of forgotten \(BatchNorm1d\).*Give the module to run.prepare"):
        loose.refuse_changed(CPU, refuse_warning)


def test_a_teacher_that_turns_average_is_refused_by_its_name() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    teacher = copy.deepcopy(model)
    loose = look_at_loose([model], CPU)
    with torch.no_grad():
        for one, other in zip(teacher.parameters(), model.parameters(), strict=True):
            one.mul_(0.9).add_(other * 2, alpha=0.1)
    with pytest.raises(JobError, match=r"parameter '0.weight' of teacher \(Sequential\), .* after that loop"):
        loose.refuse_changed(CPU, refuse_warning)


class Average:
    """Averages in a list of an object, as torch_ema keeps them."""

    def __init__(self, model: nn.Module) -> None:
        self.shadow = [one.detach().clone() for one in model.parameters()]


@pytest.mark.parametrize("in_place", [False, True])
def test_an_average_that_turns_change_is_refused(in_place: bool) -> None:
    model = nn.Linear(3, 2)
    average = Average(model)
    loose = look_at_loose([model], CPU)
    if in_place:
        average.shadow[0].mul_(0.9)
    else:
        average.shadow[0] = average.shadow[0] * 0.9
    with pytest.raises(JobError, match=r"`average.shadow`, a copy or an average of a model's weights, was changed"):
        loose.refuse_changed(CPU, refuse_warning)


def test_weights_that_a_turn_sets_anew_are_told_and_not_refused() -> None:
    model, learner = nn.Linear(2, 2), nn.Linear(2, 2)
    said: list[str] = []
    for _ in range(2):
        loose = look_at_loose([model], CPU)
        learner.load_state_dict(model.state_dict())
        loose.refuse_changed(CPU, said.append)
    assert len(said) == 1
    assert "parameter 'weight' of learner (Linear)" in said[0]


def test_sums_of_gradients_and_the_gradients_themselves_are_left_alone() -> None:
    model = nn.Linear(2, 2)
    sums = [torch.zeros_like(one) for one in model.parameters()]
    model(torch.ones(1, 2)).sum().backward()
    own = [one.grad for one in model.parameters() if one.grad is not None]
    loose = look_at_loose([model], CPU)
    for one, gradient in zip(sums, own, strict=True):
        one.add_(gradient)
        gradient.mul_(2)
    loose.refuse_changed(CPU, refuse_warning)


def test_buffers_of_the_models_and_of_modules_made_anew_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    around = nn.Sequential(model)
    scratch = nn.BatchNorm1d(2)
    loose = look_at_loose([model], CPU)
    around(torch.randn(4, 2))
    scratch = nn.BatchNorm1d(2)
    scratch(torch.randn(4, 2))
    loose.refuse_changed(CPU, refuse_warning)
