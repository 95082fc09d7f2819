"""Gradients: what has none to reduce, or none in a fixed order, is refused by name."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from springtide.errors import JobError, NondeterminismError
from springtide.training.reduction import gradients
from springtide.training.reduction.buckets import BucketLayout, GradientBucket
from springtide.training.reduction.gradients import fill_own, refuse_modules, trained_parameters


def test_sparse_gradients_are_refused_by_the_modules_name() -> None:
    with pytest.raises(NondeterminismError, match=r"module '0' has sparse gradients.*sparse=False"):
        refuse_modules(nn.Sequential(nn.Embedding(4, 2, sparse=True)))
    refuse_modules(nn.Sequential(nn.Embedding(4, 2)))


def test_statistics_over_all_ranks_are_refused_by_the_modules_name() -> None:
    model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)))
    with pytest.raises(JobError, match=r"module '1' is SyncBatchNorm.*use BatchNorm"):
        refuse_modules(model)


def test_a_model_with_nothing_to_train_is_refused() -> None:
    with pytest.raises(JobError, match=r"Linear was given to run.prepare .* nothing to train in it"):
        trained_parameters(nn.Linear(2, 1).requires_grad_(False))


def test_a_model_on_several_devices_is_refused() -> None:
    with pytest.raises(JobError, match=r"several devices \(\['cpu', 'meta'\]\)"):
        trained_parameters(nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1, device=torch.device("meta"))))


@pytest.mark.parametrize(
    "keep",
    [
        lambda made: made,
        torch.Tensor.detach,
        lambda made: made.view(-1),
        lambda made: made.data,
        torch.Tensor.numpy,
        torch.Tensor.untyped_storage,
    ],
    ids=["itself", "detach", "view", "data", "numpy", "storage"],
)
def test_sums_are_copied_into_what_autograd_has_made(keep: Callable[[torch.Tensor], Any]) -> None:
    """As in DDP. What a script has kept in a turn or lies otherwise is left alone, as is what nobody has used."""
    sums: list[torch.Tensor | None] = [torch.full((2, 3), float(number)) for number in range(5)]
    unused = torch.ones(2, 3)
    sums[4] = unused
    second = torch.zeros(2, 3)
    made: list[torch.Tensor | None] = [torch.zeros(2, 3), second, torch.zeros(3, 2).t(), None, unused]
    held, place = keep(second), made[0].data_ptr()  # type: ignore[union-attr]
    address = second.data_ptr()
    del second
    layout = BucketLayout(
        (GradientBucket((3, 2), torch.float32, 0, 12), GradientBucket((4, 1, 0), torch.float32, 12, 18))
    )
    found = [one for one in fill_own(sums, made, [None, None, None, None, unused], layout) if one is not None]
    assert [float(one.sum()) for one in found] == [0.0, 6.0, 12.0, 18.0, 6.0]
    assert found[0].data_ptr() == place and found[4] is unused
    assert held is not None and not made[1].any() and found[1].data_ptr() != address  # type: ignore[union-attr]
    assert all(found[index] is not sums[index] for index in range(4))
    assert [one is None for one in fill_own([None, sums[0]], [], [None, None], layout_of(2))] == [True, False]


def make_views() -> list[torch.Tensor | None]:
    """Gradients of two parameters that autograd has put into one memory."""
    first, second = nn.Parameter(torch.ones(6)), nn.Parameter(torch.ones(2, 3))
    ((first.view(3, 2) + second.view(3, 2)) ** 2).sum().backward()
    return [first.grad, second.grad]


def test_gradients_that_autograd_has_made_of_one_tensor_are_nobodys() -> None:
    """The last copy is what both have, as in DDP; what a script has kept of them is left alone."""
    sums = [torch.full((6,), 1.0), torch.full((2, 3), 2.0)]
    layout = BucketLayout((GradientBucket((1, 0), torch.float32, 0, 12),))
    made = make_views()
    place = made[0].data_ptr()  # type: ignore[union-attr]
    found = fill_own(sums, made, [None, None], layout)
    assert [float(one.sum()) for one in found if one is not None] == [6.0, 6.0]
    assert [one.data_ptr() for one in found if one is not None] == [place, place]
    made = make_views()
    held = made[0].detach()  # type: ignore[union-attr]
    found = fill_own(sums, made, [None, None], layout)
    assert [float(one.sum()) for one in found if one is not None] == [6.0, 12.0]
    assert held.tolist() == [4.0] * 6


def test_gradients_are_new_where_torch_does_not_count_who_shares_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "COUNTS_SHARERS", False)
    made: list[torch.Tensor | None] = [torch.zeros(2, 3)]
    found = fill_own([torch.ones(2, 3)], made, [None], layout_of(1))
    assert found[0] is not None and found[0].all() and found[0] is not made[0]


def layout_of(count: int) -> BucketLayout:
    """One bucket with so many parameters."""
    return BucketLayout((GradientBucket(tuple(range(count)), torch.float32, 0, 6 * count),))
