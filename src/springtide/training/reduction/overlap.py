"""Reduction during the backward pass: a bucket leaves as soon as its last gradient is ready, in bucket order.

Only for the last local worker of a step, and only with several processes; else there is nothing to overlap with. What
leaving means is the caller's.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch

from springtide.training.reduction.buckets import BucketLayout


class Overlap:
    """Counts ready gradients per bucket and calls `leave(bucket)` for each full one whose predecessors have left."""

    def __init__(
        self, parameters: Sequence[torch.nn.Parameter], layout: BucketLayout, leave: Callable[[int], None]
    ) -> None:
        self.leave = leave
        self.sizes = [len(bucket.parameters) for bucket in layout.buckets]
        bucket_of = {index: number for number, bucket in enumerate(layout.buckets) for index in bucket.parameters}
        self.missing: list[int] = []
        self.next = 0
        self.armed = False
        self.handles = [
            parameter.register_post_accumulate_grad_hook(partial(self.count, bucket_of[index]))
            for index, parameter in enumerate(parameters)
        ]

    def count(self, bucket: int, parameter: torch.Tensor) -> None:
        """A gradient of this bucket is ready."""
        if self.armed:
            self.missing[bucket] -= 1
            self.advance()

    def arm(self) -> None:
        """Count the gradients of the backward that comes."""
        self.missing = list(self.sizes)
        self.next = 0
        self.armed = True

    def advance(self) -> None:
        """Let every full bucket leave, in order."""
        # In bucket order whatever becomes ready first: peers match collectives by their sequence.
        while self.next < len(self.missing) and self.missing[self.next] <= 0:
            self.next += 1
            self.leave(self.next - 1)

    def disarm(self) -> int:
        """Stop counting, and return how many buckets have left."""
        left, self.next = self.next, 0
        self.armed = False
        return left

    def remove(self) -> None:
        """Take the hooks away."""
        for handle in self.handles:
            handle.remove()
