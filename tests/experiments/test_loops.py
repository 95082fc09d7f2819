"""Every example is a workload, by the names that its own files have."""

import pytest
from experiments.loops import load_workload
from torch.utils.data import DataLoader


@pytest.mark.parametrize("name", ["cnn", "gpt", "recommender", "resnet"])
def test_an_example_is_a_workload(name: str) -> None:
    workload = load_workload(name)
    inputs, targets = next(iter(DataLoader(workload.data(), batch_size=2)))
    assert workload.loss(workload.model()(inputs), targets).ndim == 0
