"""Buffers of modules that `prepare` was not given: refused where turns change them."""

import copy
from collections.abc import Callable

import pytest
import torch
from tests.training.state.test_turn_guard import make_run
from torch import nn

from springtide.errors import JobError
from springtide.training.positions import Position
from springtide.training.state.turn_guard import EPOCHS, TurnGuard

WALKS, TURNS = 3, 2


def walk(model: nn.Module, turn: Callable[[], object], epoch: int = 0) -> list[str]:
    """What is said while a process walks some steps, with some turns in each."""
    said: list[str] = []
    run, guard = make_run(model), TurnGuard(said.append)
    run.position = Position(epoch=epoch)
    for _ in range(WALKS):
        guard.begin(run)
        for _ in range(TURNS):
            guard.trial.begin_turn()
            turn()
            guard.trial.end_turn()
        guard.end(run)
    return said


class Centre(nn.Module):
    """A criterion with a centre of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.centre: torch.Tensor
        self.register_buffer("centre", torch.zeros(3))


def move_in_place(criterion: Centre) -> None:
    criterion.centre.add_(1)


def move(criterion: Centre) -> None:
    criterion.centre = criterion.centre + 1


@pytest.mark.parametrize("change", [move, move_in_place])
def test_a_changed_buffer_is_refused_by_its_name(change: Callable[[Centre], None]) -> None:
    criterion = Centre()
    assert walk(nn.Linear(2, 2), lambda: None) == []
    with pytest.raises(JobError, match=r"buffer 'centre' of criterion \(Centre\).*run.mean"):
        walk(nn.Linear(2, 2), lambda: change(criterion))


def test_a_trained_module_is_to_be_given() -> None:
    forgotten = nn.BatchNorm1d(2)
    with pytest.raises(JobError, match=r"of forgotten \(BatchNorm1d\).*Give the module to run.prepare"):
        walk(nn.Linear(2, 2), lambda: forgotten(torch.randn(4, 2)))


def test_a_teacher_that_turns_average_is_refused_by_its_name() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    teacher = copy.deepcopy(model)

    @torch.no_grad()
    def average() -> None:
        for one, other in zip(teacher.parameters(), model.parameters(), strict=True):
            one.mul_(0.9).add_(other * 2, alpha=0.1)

    with pytest.raises(JobError, match=r"parameter '0.weight' of teacher \(Sequential\), .* after that loop"):
        walk(model, average)


class Average:
    """Averages in a list of an object, as torch_ema keeps them."""

    def __init__(self, model: nn.Module) -> None:
        self.shadow = [one.detach().clone() for one in model.parameters()]

    def decay_in_place(self) -> None:
        self.shadow[0].mul_(0.9)

    def decay(self) -> None:
        self.shadow[0] = self.shadow[0] * 0.9

    def decay_data(self) -> None:
        self.shadow[0].data.mul_(0.9)


@pytest.mark.parametrize("change", [Average.decay, Average.decay_in_place, Average.decay_data])
def test_an_average_that_turns_change_is_refused(change: Callable[[Average], None]) -> None:
    model = nn.Linear(3, 2)
    average = Average(model)
    with pytest.raises(JobError, match=r"`average.shadow`, a copy or an average of a model's weights, was changed"):
        walk(model, lambda: change(average))


def test_a_learner_that_every_turn_sets_anew_is_left_alone() -> None:
    """However it is set: it is looked at what becomes of it."""
    model, learner, first = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2).state_dict()

    @torch.no_grad()
    def learn() -> None:
        learner.load_state_dict(first)
        for one, other in zip(learner.parameters(), model.parameters(), strict=True):
            one.data = torch.rand_like(one) if len(one) == 1 else other.data.clone()
            one.sub_(torch.rand_like(one))

    before = model.weight.detach().clone()
    assert walk(model, learn) == []
    assert not learner.weight.isnan().any() and model.weight.equal(before)


def test_what_turns_leave_alone_keeps_its_numbers() -> None:
    model, learner = nn.Linear(2, 2), nn.Linear(2, 2)
    weights = iter([torch.ones(2, 2)])

    def set_once() -> None:
        if (weight := next(weights, None)) is not None:
            learner.weight.data.copy_(weight)

    assert walk(model, set_once) == []
    assert learner.weight.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_a_teacher_that_a_turn_reads_before_it_sets_it_is_refused() -> None:
    """Gradients of what the turn before has left show it, though the weights end as they should."""
    model, teacher = nn.Linear(2, 2), nn.Linear(2, 2)

    def learn() -> None:
        x = torch.ones(1, 2)
        (model(x) - teacher(x).detach()).square().mean().backward()
        teacher.load_state_dict({"weight": torch.rand(2, 2), "bias": torch.rand(2)})

    with pytest.raises(JobError, match=r"of teacher \(Linear\), .* was changed inside"):
        walk(model, learn)


def test_weights_that_are_the_models_are_told_and_not_refused() -> None:
    """All ranks have them, but a turn may have read others before."""
    model, target = nn.Linear(2, 2), nn.Linear(2, 2)
    said = walk(model, lambda: target.load_state_dict(model.state_dict()))
    assert len(said) == 1 and "parameter 'weight' of target (Linear)" in said[0]


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


def test_weights_kept_for_a_turn_are_not_refused() -> None:
    model = nn.Linear(3, 2)
    attacker = Attack(model)

    def attack() -> None:
        attacker.attack()
        attacker.restore()

    attack()
    with torch.no_grad():
        model.weight.mul_(1.01)
    said = walk(model, attack)
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

    def turn() -> None:
        attacker.attack()
        attacker.restore()
        average.update()

    attacker.attack()
    attacker.restore()
    with pytest.raises(JobError, match=r"`average.shadow`, a copy or an average of a model's weights, was changed"):
        walk(model, turn)


def test_an_average_by_data_is_refused() -> None:
    model, learner = nn.Linear(2, 2), nn.Linear(2, 2)

    def average() -> None:
        for one, other in zip(learner.parameters(), model.parameters(), strict=True):
            mixed = torch.lerp(one.data, other.data, 0.1)
            one.data = mixed.clone()

    with pytest.raises(JobError, match="parameter 'weight' of learner"):
        walk(model, average)


def test_a_late_look_warns_but_of_a_buffer() -> None:
    model, teacher, criterion = nn.Linear(2, 2), nn.Linear(2, 2), Centre()
    said = walk(model, lambda: teacher.weight.data.mul_(0.9), epoch=EPOCHS)
    assert "parameter 'weight' of teacher (Linear)" in said[0]
    with pytest.raises(JobError, match="buffer 'centre' of criterion"):
        walk(model, lambda: criterion.centre.add_(1), epoch=EPOCHS)


def test_sums_of_gradients_and_the_gradients_themselves_are_left_alone() -> None:
    model = nn.Linear(2, 2)
    sums = [torch.zeros_like(one) for one in model.parameters()]
    model(torch.ones(1, 2)).sum().backward()
    own = [one.grad for one in model.parameters() if one.grad is not None]

    def add() -> None:
        for one, gradient in zip(sums, own, strict=True):
            one.add_(gradient)
            gradient.mul_(2)

    assert walk(model, add) == []


def test_buffers_of_the_models_and_of_modules_made_anew_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    around, held = nn.Sequential(model), [nn.BatchNorm1d(2)]

    def forward() -> None:
        around(torch.randn(4, 2))
        held[0] = nn.BatchNorm1d(2)
        held[0](torch.randn(4, 2))

    assert walk(model, forward) == []
