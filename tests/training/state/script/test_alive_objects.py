"""Copies of weights that are in no module are compared by `springtide verify`, wherever variables lead to them."""

import copy
from types import SimpleNamespace
from typing import Any

import torch

from springtide.training.state.digests import digest
from springtide.training.state.script.alive_objects import digest_alive


def read(model: torch.nn.Module) -> dict[str, str]:
    return digest_alive({id(one) for one in model.parameters()}, digest)


def make_average(model: torch.nn.Module) -> Any:
    """An object of no package's modules: averages in a list, as torch_ema keeps them."""
    shadow = [one.detach().clone() for one in model.parameters()]
    return SimpleNamespace(inner=SimpleNamespace(shadow=shadow), decay=0.9)


def train(model: torch.nn.Module) -> list[dict[str, str]]:
    average, saved = make_average(model), {"best": copy.deepcopy(model.state_dict())}
    losses, classes = [torch.zeros(()), torch.ones(())], torch.zeros(3)
    digests = []
    for _ in range(2):
        average.inner.shadow[0].add_(1)
        classes += 1
        losses.append(classes.sum())
        digests.append(read(model))
    assert average.decay == 0.9
    assert len(saved) == 1
    return digests


def test_averages_and_saved_weights_are_named_and_sums_are_not() -> None:
    first, second = train(torch.nn.Linear(3, 2))
    names = {name for name in first if name.startswith("alive ") and "without a name" not in name}
    assert {"alive average.inner.shadow", "alive saved['best']"} <= names
    assert not [name for name in names if "losses" in name or "classes" in name]
    assert first["alive average.inner.shadow"] != second["alive average.inner.shadow"]
    assert first["alive saved['best']"] == second["alive saved['best']"]


def test_the_weights_themselves_and_what_the_loop_makes_anew_are_left_alone() -> None:
    model = torch.nn.Linear(3, 2)
    weights = list(model.parameters())
    names: set[str] = set()
    for _ in range(2):
        gradients = [torch.randn_like(one) for one in weights]
        assert len(gradients) == 2
        names |= set(read(model))
    assert not [name for name in names if "weights" in name or "gradients" in name]
