from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

import springtide
from springtide.errors import JobError
from springtide.training.run import forget_run


@pytest.mark.parametrize("option", ["pin_memory", "sampler", "worker_init_fn"])
def test_an_option_of_data_loaders_is_refused_with_what_to_write(option: str) -> None:
    forget_run()
    run = springtide.init(logical_workers=2, seed=0)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    more: dict[str, Any] = {option: None}
    with pytest.raises(JobError, match=f"does not take {option}; give such options to a DataLoader"):
        run.prepare(model, optimizer, TensorDataset(torch.ones(8, 1)), batch_size=2, **more)
    forget_run()
