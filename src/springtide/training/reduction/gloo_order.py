"""The order in which gloo's ring all-reduce adds: which elements form a chunk, and in which order ranks are added.

Source: gloo `allreduce.cc` (ring, the default); the rule is a property of the gloo version, so `check_installed`
compares it with the installed torch. Pure but for that check. It moves no data between processes.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

MAX_SEGMENT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Chunk:
    """Elements [start, stop) of a bucket, added in `order`: ((g[order[0]] + g[order[1]]) + ...) + g[order[-1]]."""

    start: int
    stop: int
    order: tuple[int, ...]


def fold_order(chunk: int, ranks: int) -> tuple[int, ...]:
    """Ranks in the order they are added in chunk c: from c-1 downwards, around the ring, ending at c."""
    # In the reduce-scatter a chunk's running sum starts at rank c-1 and is passed down the ring; each rank adds its own
    # part to what it receives (a + b has the bits of b + a), and rank c is the last.
    return tuple((chunk - 1 - distance) % ranks for distance in range(ranks))


def cut_chunks(elements: int, element_bytes: int, ranks: int) -> tuple[Chunk, ...]:
    """The non-empty chunks of a buffer.

    segments = max(ceil(bytes / 1 MiB), 2N) rounded up to a multiple of N; segment bytes = ceil(bytes / segments)
    rounded up to whole elements; chunk c is the c-th run of segments / N segments.
    """
    if ranks == 1:
        return (Chunk(0, elements, (0,)),) if elements else ()
    total_bytes = elements * element_bytes
    longest = element_bytes * max(1, MAX_SEGMENT_BYTES // element_bytes)
    segments = round_up(max(-(-total_bytes // longest), 2 * ranks), ranks)
    segment = round_up(-(-total_bytes // segments), element_bytes) // element_bytes
    length = segment * (segments // ranks)
    bounds = [min(elements, chunk * length) for chunk in range(ranks + 1)]
    return tuple(
        Chunk(bounds[chunk], bounds[chunk + 1], fold_order(chunk, ranks))
        for chunk in range(ranks)
        if bounds[chunk] < bounds[chunk + 1]
    )


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple that is not below the value."""
    return -(-value // multiple) * multiple


def add_in_order(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """What a ring all-reduce of these equally long 1-d tensors gives, one per rank: the specification of the fold."""
    result = torch.empty_like(tensors[0])
    for chunk in cut_chunks(tensors[0].numel(), tensors[0].element_size(), len(tensors)):
        part = slice(chunk.start, chunk.stop)
        total = tensors[chunk.order[0]][part]
        for rank in chunk.order[1:]:
            total = total + tensors[rank][part]
        result[part] = total
    return result


def all_reduce_in_threads(tensors: Sequence[torch.Tensor], timeout_s: float = 30.0) -> torch.Tensor:
    """What the installed gloo gives for these tensors, with one thread per rank."""
    store = dist.HashStore()
    results = [tensor.clone() for tensor in tensors]

    def take_part(rank: int) -> None:
        group: Any = dist.ProcessGroupGloo(
            dist.PrefixStore("ring", store), rank, len(results), timedelta(seconds=timeout_s)
        )
        group.allreduce([results[rank]]).wait()

    threads = [threading.Thread(target=take_part, args=(rank,), daemon=True) for rank in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout_s)
    return results[0]


def check_installed(ranks: int, elements: Sequence[int] = (7, 1000, 300_001)) -> bool:
    """Whether the installed gloo adds in the order of this module, tried on values of mixed magnitude."""
    generator = torch.Generator().manual_seed(20230)
    for count in elements:
        inputs = [
            torch.randn(count, generator=generator) * 10 ** (4 * torch.rand(count, generator=generator) - 2)
            for _ in range(ranks)
        ]
        if not torch.equal(all_reduce_in_threads(inputs), add_in_order(inputs)):
            return False
    return True
