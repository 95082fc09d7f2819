"""Who holds the others up: the time that each process takes for its own turns, compared with that of its like.

All processes of a step wait for the last one, so a slow machine slows the whole job, and the job's speed does not say
which. Compared is the time from a walk's beginning to the end of its turns, less what was waited there for rank 0's
buffers, whenever states are compared. On a GPU that is the time in which work is handed to it, data included, not the
time it computes.
"""

import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import torch

from springtide.training.determinism import cuda
from springtide.training.group.control_channel import Channel

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun

#: How many times as long as the others of its kind a process must take to be told of.
SLOW = 1.5
#: And for how long: a machine may be busy with something for some seconds.
LASTING_S = 10.0
MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True)
class Pace:
    """What a process says of itself: seconds for a turn, and a number for its kind of device."""

    turn_s: float
    kind: int


@dataclass(frozen=True, slots=True)
class Laggard:
    """A process that takes so many times as long as the others."""

    rank: int
    factor: float


def find_laggard(paces: Sequence[Pace]) -> Laggard | None:
    """The process that lags most behind the others of its kind; None if all are near to each other."""
    found = None
    for rank, pace in enumerate(paces):
        beside = [one.turn_s for other, one in enumerate(paces) if other != rank and one.kind == pace.kind]
        usual_s = median(beside) if beside else 0.0
        if usual_s > 0 and pace.turn_s > SLOW * usual_s:
            factor = pace.turn_s / usual_s
            found = Laggard(rank, factor) if found is None or factor > found.factor else found
    return found


def number_kind(device: torch.device) -> int:
    """A number for the kind of device: other kinds have other speeds, and workers in proportion."""
    return zlib.crc32(cuda.name_kind(device).encode())


class PaceWatch:
    """The time of this process's own turns, and on rank 0 who has been slow for how long."""

    def __init__(self) -> None:
        self.began_s = self.spent_s = 0.0
        self.turns = 0
        #: The name of the process that was slow in every comparison since a moment.
        self.suspect, self.since_s = "", 0.0
        #: The name of the one that was told of; empty: none.
        self.told = ""

    def begin(self) -> None:
        """The turns of a walk begin."""
        self.began_s = time.monotonic()

    def end(self, turns: int, waited_s: float) -> None:
        """They have ended; in some of the time others were waited for, who may have begun later or be slow."""
        self.spent_s += time.monotonic() - self.began_s - waited_s
        self.turns += turns

    def forget(self) -> None:
        """The processes are others now."""
        self.spent_s, self.turns, self.suspect, self.told = 0.0, 0, "", ""

    def compare(self, run: "ElasticRun") -> None:
        """Let all know each other's pace since the last comparison; rank 0 judges.

        Processes of a sharded model wait for each other within turns, so nothing is seen of those.
        """
        group = run.group
        assert group is not None
        own_s, self.spent_s, turns, self.turns = self.spent_s, 0.0, self.turns, 0
        said = torch.zeros(2, group.size, dtype=torch.int64, device=run.device)
        said[0, group.rank] = round(own_s / turns * MICROSECONDS) if turns else 0
        said[1, group.rank] = number_kind(run.device)
        group.all_reduce(said).wait()
        if group.rank == 0 and run.sharding is None:
            paces = [Pace(spent / MICROSECONDS, kind) for spent, kind in said.T.tolist()]
            self.judge(run.channel, run.roster.names, paces)

    def judge(self, channel: Channel, names: Sequence[str], paces: Sequence[Pace]) -> None:
        """Tell of a process that has been slow for long, and when it no longer is."""
        slow, now_s = find_laggard(paces), time.monotonic()
        name = "" if slow is None else names[slow.rank]
        if name != self.suspect:
            self.suspect, self.since_s = name, now_s
        if name != self.told and now_s - self.since_s >= LASTING_S:
            self.told = name
            channel.tell_lagging(name, 1.0 if slow is None else slow.factor)
