"""Gradients: what has none to reduce, or none in a fixed order, is refused by name."""

import pytest
import torch
from torch import nn

from springtide.errors import JobError, NondeterminismError
from springtide.training.reduction.gradients import refuse_modules, trained_parameters


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
