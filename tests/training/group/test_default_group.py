"""Torch's default group: refused while a run is elastic, torch's own again for what is measured after it."""

import pytest
import torch.distributed as dist

from springtide.errors import JobError
from springtide.training.group.default_group import refuse_groups
from springtide.training.run import forget_run


def test_stock_ddp_can_be_measured_after_an_elastic_run() -> None:
    torchs_own = dist.init_process_group
    refuse_groups()
    with pytest.raises(JobError, match="default group"):
        dist.init_process_group("gloo")
    forget_run()
    assert dist.init_process_group is torchs_own
