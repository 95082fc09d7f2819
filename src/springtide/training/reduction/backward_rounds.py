"""One reduction of a step: what every logical worker's k-th backward has brought, and what it left alone."""

from dataclasses import dataclass, field
from typing import Any

import torch

from springtide.training.reduction.buckets import BucketLayout
from springtide.training.reduction.gradients import Departures, FlatGradients
from springtide.training.reduction.reduction import Reduction


@dataclass(slots=True)
class BackwardRound:
    """One reduction of a step: every local worker's gradients in buffers of one layout."""

    layout: BucketLayout
    flats: dict[int, FlatGradients]
    reduction: Reduction
    #: What lets buckets leave during a backward.
    departures: Departures
    #: Parameters that a worker's backward did not bring, and those whose gradients it had cleared before.
    unused: dict[int, set[int]] = field(default_factory=dict)
    cleared: dict[int, set[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UnusedCounts:
    """How many logical workers did not use each parameter, once all processes have told."""

    counts: torch.Tensor
    work: Any

    def find(self, workers: int) -> list[int]:
        """The parameters that none of so many workers has used."""
        if self.work is not None:
            self.work.wait()
        return [index for index, count in enumerate(self.counts.tolist()) if count == workers]
