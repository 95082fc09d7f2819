"""Bucket layouts against those of a real DistributedDataParallel."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from springtide.training.reduction import buckets


@pytest.fixture
def alone() -> Iterator[None]:
    """A default group of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def build(width: int) -> nn.Module:
    """A model of several parameters of different sizes."""
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3))


def read_layout(wrapped: DistributedDataParallel, parameters: list[nn.Parameter]) -> list[list[int]]:
    """The parameter indices in DDP's own buckets."""
    places = {id(parameter): index for index, parameter in enumerate(parameters)}
    found = wrapped.reducer._get_zeros_like_grad_buckets()
    return [[places[id(parameter)] for parameter in bucket.parameters()] for bucket in found]


@pytest.mark.parametrize("width", [16, 700, 2600])
def test_layouts_equal_ddp_before_and_after_the_rebuild(alone: None, width: int) -> None:
    model = build(width)
    parameters = list(model.parameters())
    ready: list[int] = []
    for index, parameter in enumerate(parameters):
        parameter.register_post_accumulate_grad_hook(lambda _, index=index: ready.append(index))
    wrapped = DistributedDataParallel(model)
    assert buckets.first_layout(parameters, find_unused=False).indices == read_layout(wrapped, parameters)
    wrapped(torch.randn(2, 8)).sum().backward()
    order = list(ready)
    wrapped(torch.randn(2, 8))
    assert buckets.rebuilt_layout(parameters, order).indices == read_layout(wrapped, parameters)


def test_layout_with_unused_parameters_equals_ddp(alone: None) -> None:
    model = build(700)
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    parameters = list(model.parameters())
    assert buckets.first_layout(parameters, find_unused=True).indices == read_layout(wrapped, parameters)


@given(st.lists(st.integers(1, 400_000), min_size=1, max_size=12), st.randoms())
def test_every_parameter_is_in_one_bucket(sizes: list[int], chance: object) -> None:
    parameters = [torch.empty(size, device="meta") for size in sizes]
    order = list(range(len(sizes)))
    chance.shuffle(order)  # type: ignore[attr-defined]
    layout = buckets.rebuilt_layout(parameters, order)
    flat = [index for bucket in layout.buckets for index in bucket.parameters]
    assert flat == order
    assert sum(bucket.elements for bucket in layout.buckets) == sum(sizes)
    assert buckets.place(layout.indices, parameters) == layout
