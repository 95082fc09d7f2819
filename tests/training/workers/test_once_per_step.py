"""Gradient scalers behind their gate, and those that nobody told us of."""

import pytest
import torch

from springtide.errors import JobError
from springtide.training.workers.once_per_step import gate_optimizer, gate_scaler


class Moment:
    """A turn that may or may not be the last; counts how often gradients were reduced."""

    def __init__(self, acting: bool) -> None:
        self.acting = acting
        self.accumulating = False
        self.reduced = 0

    def ensure_reduced(self) -> None:
        self.reduced += 1


def build(moment: Moment) -> tuple[torch.nn.Linear, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gate_optimizer(optimizer, moment)
    return model, optimizer


def test_a_scaler_acts_only_in_the_last_turn() -> None:
    moment = Moment(acting=False)
    model, optimizer = build(moment)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
    gate_scaler(scaler, moment)
    before = model.weight.detach().clone()
    for acting in (False, True):
        moment.acting = acting
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(2, 3)).sum()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(model.weight.detach(), before) is not acting
        assert scaler.get_scale() == (8.0 if acting else 4.0)
        assert (moment.reduced > 0) is acting
    assert torch.allclose(before - model.weight.detach(), torch.full((1, 3), 0.2))


def test_a_scaler_that_prepare_never_saw_is_refused() -> None:
    model, optimizer = build(Moment(acting=True))
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(model(torch.ones(2, 3)).sum()).backward()
    with pytest.raises(JobError, match=r"not given to run.prepare.*write: model, optimizer, scaler, loader"):
        scaler.step(optimizer)


def test_a_scaler_that_is_switched_off_may_stay_outside() -> None:
    model, optimizer = build(Moment(acting=True))
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    scaler.scale(model(torch.ones(2, 3)).sum()).backward()
    before = model.weight.detach().clone()
    scaler.step(optimizer)
    assert not torch.equal(model.weight.detach(), before)
