"""Buddy blocks inside one node: arithmetic on bit masks of devices.

A block is 2^k devices that start at a multiple of 2^k. A mask of free devices falls apart into maximal blocks, and
two free halves are one block again because nothing is stored: merging is the union of masks. Knows one node at a
time; which node to take is the business of `best_fit`.
"""

from functools import lru_cache

NO_FIT = 1 << 30  # rank of a mask that cannot hold a share
_LOOSE = 1 << 20  # rank of a mask that holds a share, but not in one block
_MOST_RANKS = 1 << 16  # nodes of up to 16 devices never get there


def round_up(share: int) -> int:
    """The smallest power of two that is at least `share`."""
    return 1 << (share - 1).bit_length()


def is_power_of_two(share: int) -> bool:
    """Whether a share fills a block."""
    return share & (share - 1) == 0


@lru_cache(maxsize=_MOST_RANKS)
def split_blocks(mask: int) -> tuple[int, ...]:
    """The maximal blocks of a mask, as masks, lowest device first."""
    blocks = []
    while mask:
        # a block that holds the lowest device and starts below it would not be inside the mask
        block, size = mask & -mask, 1
        start = block.bit_length() - 1
        while start % (2 * size) == 0:
            doubled = block | block << size
            if doubled & mask != doubled:
                break
            block, size = doubled, 2 * size
        blocks.append(block)
        mask &= ~block
    return tuple(blocks)


@lru_cache(maxsize=_MOST_RANKS)
def pick(mask: int, share: int) -> int:
    """`share` devices of a mask that holds them: the low end of its smallest block that is large enough.

    Where no block is, the largest blocks are taken whole, and the rest is picked likewise.
    """
    blocks = split_blocks(mask)
    large = [block for block in blocks if block.bit_count() >= share]
    if large:
        block = min(large, key=int.bit_count)
        start = (block & -block).bit_length() - 1
        return ((1 << share) - 1) << start
    block = max(blocks, key=int.bit_count)
    return block | pick(mask & ~block, share - block.bit_count())


@lru_cache(maxsize=1024)
def list_blocks(width: int, share: int) -> tuple[int, ...]:
    """Where a share could go on an empty node of `width` devices: its blocks, else the whole node if it is enough."""
    size = round_up(share)
    if size > width:
        return ((1 << width) - 1,) if share <= width else ()
    return tuple(((1 << size) - 1) << start for start in range(0, width - size + 1, size))


def find_block(mask: int, share: int) -> int:
    """The block large enough for `share` around the devices of a mask; 0 if they do not lie in one."""
    size = round_up(share)
    start = ((mask & -mask).bit_length() - 1) // size * size
    block = ((1 << size) - 1) << start
    return block if mask & block == mask else 0


def list_parts(mask: int, share: int) -> tuple[int, ...]:
    """The parts of a mask that a job shrinking to `share` may keep: whole blocks, else one pick."""
    size = round_up(share)
    parts = [block for block in list_blocks(mask.bit_length(), size) if block & mask == block]
    if not parts:
        return () if is_power_of_two(share) or mask.bit_count() < share else (pick(mask, share),)
    return tuple(pick(block, share) for block in parts)


class Ranks(dict[int, int]):
    """For each mask of free devices how badly it fits a share, lower is better; filled as masks are met.

    rank = size of the smallest block that is large enough, then the free devices of the node: the tightest block of
    the fullest node wins. A share that is no power of two may also lie loosely in a node, behind every block.
    """

    def __init__(self, share: int) -> None:
        self.share = share

    def __missing__(self, mask: int) -> int:
        if len(self) >= _MOST_RANKS:
            self.clear()
        self[mask] = rank = _rank(mask, self.share)
        return rank


def _rank(mask: int, share: int) -> int:
    sizes = [block.bit_count() for block in split_blocks(mask)]
    size = min((size for size in sizes if size >= share), default=0)
    if size:
        return size << 7 | mask.bit_count()
    if is_power_of_two(share) or mask.bit_count() < share:
        return NO_FIT
    return _LOOSE | mask.bit_count()


@lru_cache(maxsize=64)
def ranks_for(share: int) -> Ranks:
    """The ranks of all masks for one share."""
    return Ranks(share)
