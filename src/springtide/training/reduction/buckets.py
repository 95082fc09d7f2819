"""The gradient buckets DistributedDataParallel would use: which parameters, in which order, at which offsets.

Bits depend on them, because a ring adds ranks in an order that depends on the position in the bucket. The layout
is data: it goes into checkpoints and to joining processes. No gradient is touched here.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

FIRST_BUCKET_BYTES = 1 << 20  # torch.distributed._DEFAULT_FIRST_BUCKET_BYTES
BUCKET_BYTES = 25 << 20  # DistributedDataParallel's default bucket_cap_mb


@dataclass(frozen=True, slots=True)
class GradientBucket:
    """One all-reduce: parameters (by index) back to back, from `offset` in the flat buffer of their data type."""

    parameters: tuple[int, ...]
    dtype: torch.dtype
    offset: int
    elements: int

    @property
    def numbers(self) -> int:
        """Real numbers that are added up: a complex element is two, as DDP and gloo count them."""
        return self.elements * (2 if self.dtype.is_complex else 1)

    @property
    def number_type(self) -> torch.dtype:
        """The type of these numbers."""
        return self.dtype.to_real()


@dataclass(frozen=True, slots=True)
class BucketLayout:
    """All buckets in the order they are reduced."""

    buckets: tuple[GradientBucket, ...]

    @property
    def indices(self) -> list[list[int]]:
        """Parameter indices per bucket, which is all there is to store."""
        return [list(bucket.parameters) for bucket in self.buckets]


def place(indices: Sequence[Sequence[int]], parameters: Sequence[torch.Tensor]) -> BucketLayout:
    """The layout with these parameter indices per bucket."""
    ends: dict[torch.dtype, int] = {}
    buckets = []
    for members in indices:
        dtype = parameters[members[0]].dtype
        elements = sum(parameters[index].numel() for index in members)
        offset = ends.get(dtype, 0)
        ends[dtype] = offset + elements
        buckets.append(GradientBucket(tuple(members), dtype, offset, elements))
    return BucketLayout(tuple(buckets))


def first_layout(parameters: Sequence[torch.Tensor], find_unused: bool) -> BucketLayout:
    """The layout of iteration 0: one bucket per data type, unless unused parameters are looked for.

    Source: torch 2.13 `BucketCapacityConfig.compute_bucket_size_limits`; buckets are reversed, their insides are not.
    """
    limits = [FIRST_BUCKET_BYTES, BUCKET_BYTES] if find_unused else [sys.maxsize]
    indices, _ = dist._compute_bucket_assignment_by_size(list(parameters), limits, [False] * len(parameters))
    return place(list(reversed(indices)), parameters)


def rebuilt_layout(parameters: Sequence[torch.Tensor], ready_order: Sequence[int]) -> BucketLayout:
    """The layout from iteration 1 on: parameters in the order rank 0's gradients became ready, 1 MiB then 25 MiB.

    Source: torch `Reducer::rebuild_buckets`. With find_unused_parameters=True DDP never rebuilds.
    """
    ordered = [parameters[index] for index in ready_order]
    indices, _ = dist._compute_bucket_assignment_by_size(
        ordered, [FIRST_BUCKET_BYTES, BUCKET_BYTES], [False] * len(ordered), list(ready_order)
    )
    return place(indices, parameters)
