"""A framework's own run under stock DistributedDataParallel, with the digests that `springtide verify` compares.

Nothing in it decides bits: it counts steps, writes digests after each, and says when the run has ended.
"""

from collections.abc import Sequence

import torch

from springtide.training.ddp_run import ReferenceRun
from springtide.training.state.digests import name_tensors


class StockSteps:
    """The steps of one rank of a stock run."""

    def __init__(self, run: ReferenceRun) -> None:
        self.run = run
        #: Steps that were taken, and the last whose digests are written.
        self.taken = self.written = 0
        if run.trace is not None:
            run.trace.worker = run.rank

    def note(self, step: int, models: Sequence[torch.nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """After a step, where an elastic run has its boundary: write its digests, once."""
        if step <= self.written:
            return
        self.written = step
        if self.run.trace is not None:
            self.run.trace.write(step, name_tensors(models, optimizers), "reference")

    def is_last(self, step: int) -> bool:
        """Whether the run is to end after this step."""
        cap = self.run.settings.max_steps
        return cap is not None and step >= cap

    def finish(self) -> None:
        """Say that the run has ended."""
        self.run.finish()
