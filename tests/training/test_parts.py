"""What a script gives to `prepare`, and what it forgot."""

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ConstantLR, ExponentialLR, SequentialLR, StepLR
from torch.utils.data import DataLoader, TensorDataset

from springtide.errors import JobError
from springtide.training.parts import find_strays, sort_parts

DATA = TensorDataset(torch.zeros(4, 2))


class OwnSchedule:
    """A schedule that is not torch's."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def step(self) -> None: ...

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None: ...


class OtherLoader:
    """A loader of another library."""

    dataset = DATA

    def __iter__(self) -> object:
        return iter(())


def make_model() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(2, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def test_parts_are_told_apart_by_what_they_are() -> None:
    model, optimizer = make_model()
    schedule, own, scaler = StepLR(optimizer, 1), OwnSchedule(optimizer), torch.amp.GradScaler("cpu")
    parts = sort_parts((DATA, scaler, own, schedule, optimizer, model))
    assert (parts.models, parts.optimizers, parts.schedulers) == ([model], [optimizer], [own, schedule])
    assert parts.scalers == [scaler] and parts.data is DATA


def test_a_schedule_that_was_not_given_is_found_with_its_inside() -> None:
    _, optimizer = make_model()
    inner = [ConstantLR(optimizer), ExponentialLR(optimizer, 0.9)]
    schedule = SequentialLR(optimizer, inner, [2])
    assert find_strays([optimizer], [], []).schedulers == [schedule]
    assert find_strays([optimizer], [schedule], []).schedulers == []


def test_a_schedule_that_is_not_torch_s_is_found_too() -> None:
    _, optimizer = make_model()
    schedule = OwnSchedule(optimizer)
    assert find_strays([optimizer], [], []).schedulers == [schedule]


def test_strays_come_in_the_order_of_their_optimizers() -> None:
    (_, first), (_, second) = make_model(), make_model()
    schedules = [StepLR(second, 1), StepLR(first, 1)]
    assert find_strays([first, second], [], []).schedulers == schedules[::-1]


def test_two_schedules_of_one_optimizer_leave_a_doubt() -> None:
    _, optimizer = make_model()
    kept = StepLR(optimizer, 1), ExponentialLR(optimizer, 0.9)
    with pytest.raises(JobError, match="both schedule an optimizer of the run and were not given"):
        find_strays([optimizer], [], [])
    assert find_strays([optimizer], [kept[0]], []).schedulers == [kept[1]]


def test_a_scaler_that_was_not_given_is_found_and_two_are_refused() -> None:
    scaler = torch.amp.GradScaler("cpu")
    assert find_strays([], [], []).scalers == [scaler]
    other = torch.amp.GradScaler("cpu")
    with pytest.raises(JobError, match="2 GradScalers were not given"):
        find_strays([], [], [])
    assert find_strays([], [], [other]).scalers == [scaler]
    torch.amp.GradScaler("cpu", enabled=False)


def test_an_optimizer_that_was_not_given_is_refused() -> None:
    model, optimizer = make_model()
    other = torch.optim.Adam(model.parameters())
    with pytest.raises(JobError, match=r"an optimizer \(Adam\) over parameters of the model was not given"):
        find_strays([optimizer], [], [])
    find_strays([optimizer, other], [], [])


def test_parameters_of_no_model_are_refused() -> None:
    model, _ = make_model()
    strange = torch.optim.SGD([*model.parameters(), nn.Parameter(torch.zeros(3))], lr=0.1)
    with pytest.raises(JobError, match=r"trains 1 parameters that are in no model .* shape \(3,\)"):
        sort_parts((model, strange, DATA))


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ((), "exactly one DataLoader or dataset to train on; it was given none"),
        ((DATA, DataLoader(DATA)), "it was given TensorDataset, DataLoader"),
        ((OtherLoader(),), "OtherLoader is a loader that is not torch's DataLoader"),
    ],
)
def test_data_that_are_not_one_are_refused(extra: tuple[object, ...], said: str) -> None:
    with pytest.raises(JobError, match=said):
        sort_parts((*make_model(), *extra))


def test_a_wrapped_model_is_refused() -> None:
    model, optimizer = make_model()
    with pytest.raises(JobError, match=r"given a DataParallel, .* give the model inside it \(model\.module\)"):
        sort_parts((nn.DataParallel(model), optimizer, DATA))
