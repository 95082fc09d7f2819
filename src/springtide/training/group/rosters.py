"""Which process runs which logical workers: the roster of one generation, and how N workers spread over P processes.

Pure values. A roster lists its processes in rank order; each holds one run of consecutive logical workers, so the
process of rank 0 always holds logical worker 0. It says nothing about devices or machines.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from springtide.errors import JobError


@dataclass(frozen=True, slots=True)
class RosterEntry:
    """One process of a roster: its name, which it keeps for life, and how many logical workers it runs."""

    name: str
    workers: int


@dataclass(frozen=True, slots=True)
class Roster:
    """The processes of one generation, in rank order."""

    entries: tuple[RosterEntry, ...]

    @property
    def logical_workers(self) -> int:
        """N, the number of logical workers over all processes."""
        return sum(entry.workers for entry in self.entries)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the processes, in rank order."""
        return tuple(entry.name for entry in self.entries)

    @property
    def counts(self) -> tuple[int, ...]:
        """Logical workers per process, in rank order."""
        return tuple(entry.workers for entry in self.entries)

    def workers_of(self, rank: int) -> range:
        """The logical workers of the process of this rank."""
        first = sum(self.counts[:rank])
        return range(first, first + self.counts[rank])

    def rank_of(self, name: str) -> int:
        """The rank of a process, by its name."""
        return self.names.index(name)

    def __str__(self) -> str:
        return ",".join(f"{entry.name}:{entry.workers}" for entry in self.entries)


def parse_roster(text: str) -> Roster:
    """The roster written as `name:workers,name:workers`."""
    entries = []
    for part in text.split(","):
        name, separator, count = part.partition(":")
        if not separator or not name or not count.isdigit() or int(count) < 1:
            raise JobError(f"roster {text!r}: {part!r} is not name:workers with at least one worker")
        entries.append(RosterEntry(name, int(count)))
    if len({entry.name for entry in entries}) < len(entries):
        raise JobError(f"roster {text!r} names a process twice; names must differ")
    return Roster(tuple(entries))


def make_roster(counts: Sequence[int], names: Sequence[str] | None = None) -> Roster:
    """A roster with these logical workers per process, named p0, p1, ... unless names are given."""
    chosen = names if names is not None else [f"p{rank}" for rank in range(len(counts))]
    return Roster(tuple(RosterEntry(name, count) for name, count in zip(chosen, counts, strict=True)))


def spread(logical_workers: int, processes: int) -> tuple[int, ...]:
    """Logical workers per process when they are spread evenly: the first processes get one more.

    Invariant: sums to N, and no two processes differ by more than one.
    """
    check_counts(logical_workers, processes)
    share, rest = divmod(logical_workers, processes)
    return tuple(share + (rank < rest) for rank in range(processes))


def parse_size(text: str, logical_workers: int) -> tuple[int, ...]:
    """Logical workers per process for a size as users write it: `3` processes, or `2+1+1` workers per process."""
    parts = text.split("+")
    if not all(part.strip().isdigit() for part in parts):
        raise JobError(f"size {text!r} is neither a number of processes (3) nor workers per process (2+1+1)")
    counts = tuple(int(part) for part in parts)
    if len(counts) == 1:
        return spread(logical_workers, counts[0])
    if 0 in counts or sum(counts) != logical_workers:
        raise JobError(
            f"size {text!r} places {sum(counts)} logical workers; it must place all {logical_workers}, "
            "at least one per process"
        )
    return counts


def check_counts(logical_workers: int, processes: int) -> None:
    """Refuse counts that cannot be: fewer than one logical worker, or more processes than logical workers."""
    if logical_workers < 1:
        raise JobError(f"logical_workers is {logical_workers}; it must be at least 1")
    if processes < 1:
        raise JobError(f"{processes} processes asked for; at least 1 is needed")
    if processes > logical_workers:
        raise JobError(
            f"{processes} processes for {logical_workers} logical workers; a process needs at least one, "
            f"so use at most {logical_workers} processes or raise logical_workers"
        )
