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


class Attack:
    """Adversarial turns, as FGM and AWP are written: weights are kept, changed, and put back."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.backup: dict[str, torch.Tensor] = {}

    def attack(self) -> None:
        for name, one in self.model.named_parameters():
            if one.requires_grad:
                self.backup[name] = one.data.clone()
                one.data.add_(0.1 * torch.ones_like(one) / torch.norm(one.data))

    def restore(self) -> None:
        for name, one in self.model.named_parameters():
            if name in self.backup:
                one.data = self.backup[name].clone()


def test_weights_kept_for_a_turn_are_told_and_not_refused() -> None:
    model = nn.Linear(3, 2)
    attacker = Attack(model)
    attacker.attack()
    attacker.restore()
    said: list[str] = []
    for _ in range(1):
        with torch.no_grad():
            for one in model.parameters():
                one.mul_(1.01)
        loose = look_at_loose([model], CPU)
        attacker.attack()
        attacker.restore()
        loose.refuse_changed(CPU, said.append)
    assert len(said) == 1 and "`attacker.backup`, a copy or an average of a model's weights" in said[0]


class Shadow:
    """An average as it is mostly written, whose every item ends as a copy."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.shadow = {name: one.data.clone() for name, one in model.named_parameters()}

    def update(self) -> None:
        for name, one in self.model.named_parameters():
            average = 0.1 * one.data * 2 + 0.9 * self.shadow[name]
            self.shadow[name] = average.clone()


class Lerped(Shadow):
    """One that begins with a copy, and calls what averages."""

    def update(self) -> None:
        for name, one in self.model.named_parameters():
            if name not in self.shadow:
                self.shadow[name] = one.data.clone()
            average = torch.lerp(self.shadow[name], 2 * one.data, 0.1)
            self.shadow[name] = average.clone()


class Moved(Shadow):
    """One that is changed in place."""

    def update(self) -> None:
        for name, one in self.model.named_parameters():
            if name not in self.shadow:
                self.shadow[name] = one.data.clone()
            self.shadow[name].mul_(0.9).add_(one.data, alpha=0.2)


class MovedByName(Shadow):
    """One that is changed in place by another name."""

    def update(self) -> None:
        for name, one in self.model.named_parameters():
            if name not in self.shadow:
                self.shadow[name] = one.data.clone()
            average = self.shadow[name]
            average.mul_(0.9).add_(one.data, alpha=0.2)


@pytest.mark.parametrize("kind", [Shadow, Lerped, Moved, MovedByName])
def test_an_average_that_begins_or_ends_as_a_copy_is_refused(kind: type[Shadow]) -> None:
    """Beside an attack, whose copies are made anew."""
    model = nn.Linear(3, 2)
    average, attacker = kind(model), Attack(model)
    attacker.attack()
    attacker.restore()
    with pytest.raises(JobError, match=r"`average.shadow`, a copy or an average of a model's weights, was changed"):
        for _ in range(1):
            loose = look_at_loose([model], CPU)
            attacker.attack()
            attacker.restore()
            average.update()
            loose.refuse_changed(CPU, refuse_warning)


def set_data(learner: nn.Module, model: nn.Module) -> None:
    for one, other in zip(learner.parameters(), model.parameters(), strict=True):
        one.data = other.data.clone()


def load(learner: nn.Module, model: nn.Module) -> None:
    learner.load_state_dict(model.state_dict())


def reset(learner: nn.Module, model: nn.Module) -> None:
    load(learner, model)


def begin(learner: nn.Module, model: nn.Module) -> None:
    reset(learner, model)


def average_data(learner: nn.Module, model: nn.Module) -> None:
    for one, other in zip(learner.parameters(), model.parameters(), strict=True):
        mixed = torch.lerp(one.data, other.data, 0.1)
        one.data = mixed.clone()


def test_weights_set_anew_by_their_data_or_some_functions_down_are_told() -> None:
    model, learner = nn.Linear(2, 2), nn.Linear(2, 2)
    said: list[str] = []
    for _ in range(1):
        loose = look_at_loose([model], CPU)
        set_data(learner, model)
        loose.refuse_changed(CPU, said.append)
    model, learner = nn.Linear(2, 2), nn.Linear(2, 2)
    for _ in range(1):
        loose = look_at_loose([model], CPU)
        begin(learner, model)
        loose.refuse_changed(CPU, said.append)
    assert ["of learner (Linear)" in text for text in said] == [True, True]


def test_an_average_by_data_is_refused() -> None:
    model, learner = nn.Linear(2, 2), nn.Linear(2, 2)
    with pytest.raises(JobError, match="parameter 'weight' of learner"):
        for _ in range(1):
            loose = look_at_loose([model], CPU)
            average_data(learner, model)
            loose.refuse_changed(CPU, refuse_warning)


def test_a_late_look_warns_but_of_a_buffer() -> None:
    model, teacher, criterion = nn.Linear(2, 2), nn.Linear(2, 2), Centre()
    said: list[str] = []
    for _ in range(1):
        loose = look_at_loose([model], CPU)
        with torch.no_grad():
            teacher.weight.mul_(0.9)
        loose.refuse_changed(CPU, said.append, is_late=True)
    assert len(said) == 1 and "parameter 'weight' of teacher (Linear)" in said[0]
    criterion.centre.add_(1)
    with pytest.raises(JobError, match="buffer 'centre' of criterion"):
        loose.refuse_changed(CPU, refuse_warning, is_late=True)


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
