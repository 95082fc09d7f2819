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


def test_what_is_trained_before_anything_is_prepared_is_said_to_be_nobodys(capsys: pytest.CaptureFixture[str]) -> None:
    """As a stock Trainer does in a script that has changed only some of its lines: each process trained alone."""
    forget_run()
    springtide.init(logical_workers=2, seed=0)
    optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)
    optimizer.step()
    said = capsys.readouterr().err
    assert "SGD.step() was called before run.prepare" in said and "ElasticTrainer" in said
    optimizer.step()
    forget_run()
    springtide.init(logical_workers=2, seed=0)
    forget_run()
    optimizer.step()
    assert capsys.readouterr().err == ""
