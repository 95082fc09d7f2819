"""Gradients: what has none to reduce, or none in a fixed order, is refused by name."""

import pytest
import torch
from torch import nn

from springtide.errors import JobError, NondeterminismError
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


def test_sums_are_copied_into_what_autograd_has_made() -> None:
    """As in DDP. What a script has kept in a turn or lies otherwise is left alone, as is what nobody has used."""
    sums: list[torch.Tensor | None] = [torch.full((2, 3), float(number)) for number in range(5)]
    unused = torch.ones(2, 3)
    sums[4] = unused
    made: list[torch.Tensor | None] = [torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(3, 2).t(), None, unused]
    held, place = made[1], made[0].data_ptr()  # type: ignore[union-attr]
    layout = BucketLayout(
        (GradientBucket((3, 2), torch.float32, 0, 12), GradientBucket((4, 1, 0), torch.float32, 12, 18))
    )
    gradients = fill_own(sums, made, [None, None, None, None, unused], layout)
    found = [one for one in gradients if one is not None]
    assert [float(one.sum()) for one in found] == [0.0, 6.0, 12.0, 18.0, 6.0]
    assert found[0].data_ptr() == place and found[4] is unused
    assert held is not None and not held.any() and found[1] is not held
    assert all(found[index] is not sums[index] for index in range(4))
    assert [one is None for one in fill_own([None, sums[0]], [], [None, None], layout_of(2))] == [True, False]


def layout_of(count: int) -> BucketLayout:
    """One bucket with so many parameters."""
    return BucketLayout((GradientBucket(tuple(range(count)), torch.float32, 0, 6 * count),))
