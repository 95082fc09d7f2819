"""A model is heard when it is called, compiled or not, and only the model it was put on."""

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from springtide.errors import JobError
from springtide.training.workers.forward_hooks import ModelListener


class Heard:
    """A listener that counts."""

    def __init__(self, model: nn.Module) -> None:
        self.before = self.after = 0
        self.listener = ModelListener(model, self.on_before, self.on_after)

    def on_before(self, inputs: object) -> None:
        self.before += 1

    def on_after(self) -> None:
        self.after += 1


class Twice(nn.Module):
    """A model that calls itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, more: bool = True) -> torch.Tensor:
        out: torch.Tensor = self(self.layer(x), False) if more else x
        return out


class Once(nn.Module):
    """A model that does not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def test_a_call_within_a_call_is_one() -> None:
    model = Twice()
    heard = Heard(model)
    model(torch.ones(1, 2))
    assert (heard.before, heard.after) == (1, 1)


def test_copies_and_saved_models_are_plain() -> None:
    model = Twice()
    heard = Heard(model)
    file = io.BytesIO()
    torch.save(model, file)
    assert b"springtide" not in file.getvalue()
    file.seek(0)
    with torch.serialization.safe_globals([Twice, nn.Linear]):
        loaded = torch.load(file)
    for other in (copy.deepcopy(model), loaded):
        other(torch.ones(1, 2))
    assert heard.before == 0


def test_a_call_that_fails_is_forgotten() -> None:
    model = Twice()
    heard = Heard(model)
    with pytest.raises(TypeError):
        model("no tensor")
    heard.listener.begin()
    model(torch.ones(1, 2))
    assert (heard.before, heard.after) == (2, 1)
    assert DistributedDataParallel._get_active_ddp_module() is None


def test_a_model_compiled_in_place_later_is_heard_and_told_of_buckets() -> None:
    model = Twice()
    heard = Heard(model)
    seen = []

    def compiled(x: torch.Tensor) -> torch.Tensor:
        seen.append(DistributedDataParallel._get_active_ddp_module().bucket_bytes_cap)
        return x

    model._compiled_call_impl = compiled  # as model.compile() does
    for _ in range(2):
        heard.listener.begin()
    model(torch.ones(1, 2))
    assert (heard.before, heard.after, seen) == (1, 1, [25 << 20])
    assert not model._forward_pre_hooks and not model._forward_hooks


@pytest.mark.parametrize("is_given", [False, True])
def test_what_torch_compile_returns_is_heard_once(is_given: bool) -> None:
    model = Once()
    outer: Any = torch.compile(model, backend="eager")
    heard = Heard(outer if is_given else model)
    heard.listener.find_compiled([outer])
    outer(torch.ones(1, 2))
    assert (heard.before, heard.after) == (1, 1)
    model(torch.ones(1, 2))
    assert (heard.before, heard.after) == ((1, 1) if is_given else (2, 2))


def test_what_torch_would_not_compile_under_ddp_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    heard = Heard(model)
    with pytest.raises(JobError, match=r"a Sequential, a class of torch's own.*before run\.prepare"):
        heard.listener.find_compiled([torch.compile(model, backend="eager")])
    compiled: Any = torch.compile(model, backend="eager")
    Heard(compiled).listener.find_compiled([compiled])  # given to `prepare`, it is compiled under DDP, too
