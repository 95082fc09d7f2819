"""What a loader was prepared with is not changed behind its back: setting it is refused, whatever else is allowed."""

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from springtide.errors import JobError
from springtide.training.workers.loaders import FixedOptions


class Named(DataLoader[Any]):
    """A DataLoader with an attribute of its own."""

    length = 3


class Prepared(FixedOptions):
    """A loader with things of its own, one of which is called as one of the DataLoader's."""

    def __init__(self, given: Any) -> None:
        self.place = 0
        self.timeout = 1
        self.freeze(given)


DATA = TensorDataset(torch.arange(4.0))


@pytest.mark.parametrize("name", ["collate_fn", "batch_size", "sampler", "num_workers", "dataset"])
@pytest.mark.parametrize("given", [DataLoader(DATA), DATA])
def test_options_of_a_dataloader_are_not_set_after_prepare(given: Any, name: str) -> None:
    with pytest.raises(JobError, match=f"loader.{name} was set after run.prepare.*Set it before"):
        setattr(Prepared(given), name, None)


def test_attributes_of_the_given_loader_are_not_set_either() -> None:
    with pytest.raises(JobError, match=r"loader\.length was set after run"):
        Prepared(Named(DATA)).length = 4


def test_what_is_its_own_or_nobodys_is_set() -> None:
    loader: Any = Prepared(Named(DATA))
    loader.place, loader.timeout, loader.title = 2, 3, "train"
    assert (loader.place, loader.timeout, loader.title) == (2, 3, "train")
