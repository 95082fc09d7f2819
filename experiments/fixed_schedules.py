"""Schedules that are known in advance, and their replay by the engine: a check that they hold."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from springtide.core.decisions import Decision, Snapshot
from springtide.core.devices import Cluster, Devices, NodeSlice
from springtide.core.jobs import FREE, Job, JobId
from springtide.simulator.engine import Simulation
from springtide.simulator.recordings import Recording

ROUNDING = 1e-6  # share of a job's work that a replay forgives: what solvers leave undone by their tolerances


class ScheduledShare(NamedTuple):
    """A job runs at a share from one instant to another."""

    job: JobId
    share: int
    start_s: float
    end_s: float


Schedule = tuple[ScheduledShare, ...]


def merge(pieces: Sequence[ScheduledShare]) -> Schedule:
    """The pieces by job and time, with those joined that follow each other at one share."""
    merged: list[ScheduledShare] = []
    for piece in sorted(pieces, key=lambda piece: (piece.job, piece.start_s)):
        last = merged[-1] if merged else None
        if last and (last.job, last.share, last.end_s) == piece[:3]:
            merged[-1] = last._replace(end_s=piece.end_s)
        else:
            merged.append(piece)
    return tuple(merged)


def follow(jobs: Sequence[Job], cluster: Cluster, schedule: Schedule) -> int:
    """How many deadlines a schedule meets when replayed without rescale cost, up to rounding.

    The world raises if a device is held twice, so a schedule that comes through is one.
    """
    recording = Recording()
    free = [replace(job, overhead=FREE, work=job.work * (1.0 - ROUNDING)) for job in jobs]
    Simulation(cluster, _Follower(schedule).decide, recording).run(free)
    return recording.met[-1][1] if recording.met else 0


@dataclass(slots=True)
class _Follower:
    """A decide function that does what a schedule says."""

    schedule: Schedule
    turns: list[tuple[float, int, JobId, int]] = field(init=False)  # (instant, 0 give back | 1 take, job, share)

    def __post_init__(self) -> None:
        gives = [(piece.end_s, 0, piece.job, 0) for piece in self.schedule]
        takes = [(piece.start_s, 1, piece.job, piece.share) for piece in self.schedule]
        self.turns = sorted(gives + takes, reverse=True)

    def decide(self, now_s: float, snapshot: Snapshot) -> Decision:
        shares: dict[JobId, int] = {}
        while self.turns and self.turns[-1][0] <= now_s:
            _, _, job_id, share = self.turns.pop()
            if job_id in snapshot.jobs:
                shares[job_id] = share
        changed = {job_id: share for job_id, share in shares.items() if snapshot.jobs[job_id].share != share}
        return Decision(allocations=_allot(snapshot, changed), wake_at_s=self.turns[-1][0] if self.turns else inf)


def _allot(snapshot: Snapshot, shares: dict[JobId, int]) -> dict[JobId, Devices]:
    """Any free devices for each share: where they lie does not matter here."""
    free = list(snapshot.free_masks)
    for job_id in shares:
        for node, mask in snapshot.jobs[job_id].devices:
            free[node] |= mask
    return {job_id: _take(free, share) for job_id, share in shares.items()}


def _take(free: list[int], share: int) -> Devices:
    taken = []
    for node, mask in enumerate(free):
        chosen = 0
        while share and mask:
            lowest = mask & -mask
            chosen, mask, share = chosen | lowest, mask ^ lowest, share - 1
        if chosen:
            free[node] = mask
            taken.append(NodeSlice(node, chosen))
    assert share == 0, f"the schedule holds {share} devices more than there are"
    return tuple(taken)
