"""What EasyScale's job masters propose: which devices more, or fewer, and how much that speeds their job up.

A `DraftAllocation` holds what every job has been given so far in one decision and what is still free; nothing here says
who goes first. Source: EasyScale (SC 2023), intra-job scheduling; its simulator keeps the worst of equal
configurations, takes single-type devices to waste nothing, and counts types that are not used: none of that is
repeated, because a mix is judged by its best mapping alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import NamedTuple

from springtide.core.curves import Curve
from springtide.core.decisions import JobView
from springtide.core.jobs import JobId
from springtide.core.typed_curves import Mix, TypedCurves
from springtide.throughput.heterogeneous import saved_s

PATIENCE = 1.0  # a running job grows only if it ends earlier by more than one pause beyond the pause itself


class Proposal(NamedTuple):
    """So many devices of a type more (or fewer) for a job; ordered best first.

    `score` is the speed-up per device added, negated, then the loss per device given back.
    """

    score: float
    minus_devices: int  # of equal scores the one with more devices
    arrival: int
    device_type: str
    devices: int
    rate: float


@dataclass(slots=True)
class DraftJob:
    """A job in a draft: the types it may use, whether several at once, and the mix it has been given so far."""

    view: JobView
    speeds: TypedCurves
    device_types: tuple[str, ...]
    mixes: bool
    work_left: float
    held: Mix  # what it had before
    mix: dict[str, int]
    rate: float = 0.0
    since_s: float = 0.0  # from when on the work left falls at this rate
    must_change: bool = False  # it holds devices that it is to leave
    is_kept: bool = False  # in this round it keeps what it holds
    starving: float = inf  # its place among those that have waited too long: later ones of its priority stop for it

    @property
    def size(self) -> int:
        """How many devices it has been given."""
        return sum(self.mix.values())

    @property
    def is_changing(self) -> bool:
        """Whether it starts, or pays a pause at this instant anyway."""
        return self.must_change or self.mix != self.held

    @property
    def finish_s(self) -> float:
        """When it ends if nothing changes any more; infinite without devices."""
        return self.since_s + self.work_left / self.rate if self.rate else inf

    @property
    def rank(self) -> tuple[int, float, int]:
        """Its place where the shortest go first: priority, seconds alone on its best type, arrival."""
        job = self.view.job
        # equal jobs must stay equal, however their work left was added up
        return -job.priority, round(self.work_left / self.speeds.peak, 6), job.index

    def list_device_types(self) -> tuple[str, ...]:
        """The types of which it may have more."""
        return self.device_types if self.mixes or not self.mix else tuple(self.mix)

    def fork(self) -> "DraftJob":
        """The same job with a mix of its own."""
        return DraftJob(
            self.view,
            self.speeds,
            self.device_types,
            self.mixes,
            self.work_left,
            self.held,
            dict(self.mix),
            self.rate,
            self.since_s,
            self.must_change,
            starving=self.starving,
        )

    def begin(self, now_s: float) -> None:
        """Go on with what it has been given, after the pause of a change."""
        if self.mix and self.is_changing:
            self.since_s = self.view.job.overhead.resumes_s(now_s, self.size, not self.held, self.since_s)
        self.held, self.must_change = dict(self.mix), False

    def advance(self, now_s: float) -> None:
        """Let it run up to an instant."""
        if self.rate and self.since_s < now_s:
            self.work_left -= self.rate * (now_s - self.since_s)
            self.since_s = now_s

    def add(self, device_type: str, devices: int) -> None:
        """Give it devices of a type, or take them back."""
        self.mix[device_type] = self.mix.get(device_type, 0) + devices
        if not self.mix[device_type]:
            del self.mix[device_type]
        self.rate = self.speeds.rate(self.mix)


def draft_job(now_s: float, view: JobView, speeds: TypedCurves, device_types: tuple[str, ...], mixes: bool) -> DraftJob:
    """A job as it stands now, on what it holds."""
    held = held_mix(view, speeds.types)
    left, since_s = view.progress.work_left_at(now_s), max(now_s, view.progress.paused_until_s)
    return DraftJob(view, speeds, device_types, mixes, left, held, dict(held), view.progress.rate, since_s)


def held_mix(view: JobView, device_types: tuple[str, ...]) -> Mix:
    """What a job holds of each type; all of the only type for a job without speeds by type."""
    if view.mix is not None:
        return view.mix
    return {device_types[0]: view.share} if view.share else {}


@lru_cache(maxsize=4096)
def type_curve(curve: Curve, device_types: tuple[str, ...]) -> TypedCurves:
    """Speeds by type of a job that has only one curve: the same on every type."""
    return TypedCurves(dict.fromkeys(device_types, curve), movable=True)


@dataclass(slots=True)
class DraftAllocation:
    """Jobs in arrival order, and the devices of each type that none of them has."""

    entries: dict[JobId, DraftJob]
    free: dict[str, int]

    def fork(self) -> "DraftAllocation":
        """The same draft, to try something."""
        return DraftAllocation({job_id: entry.fork() for job_id, entry in self.entries.items()}, dict(self.free))

    def list_mixes(self) -> dict[JobId, Mix]:
        """What every job has been given so far."""
        return {job_id: dict(entry.mix) for job_id, entry in self.entries.items()}

    def enter(self, entry: DraftJob) -> None:
        """Take in a job with what it holds, which is not free."""
        self.entries[entry.view.job.id] = entry
        for device_type, count in entry.mix.items():
            self.free[device_type] -= count

    def clear(self, entry: DraftJob) -> None:
        """Take back all that a job has been given."""
        for device_type, count in list(entry.mix.items()):
            self.give(entry, device_type, -count)

    def give(self, entry: DraftJob, device_type: str, devices: int) -> None:
        """Hand out devices of a type, or take them back."""
        entry.add(device_type, devices)
        self.free[device_type] -= devices

    def propose_start(self, entry: DraftJob, least: int) -> Proposal | None:
        """The fastest mix of one type with at least so many devices, as few as possible."""
        options = (
            _rank_start(entry, device_type, share)
            for device_type in entry.device_types
            for share in [next((n for n in entry.speeds.curves[device_type].shares if n >= least), 0)]
            if 0 < share <= self.free.get(device_type, 0)
        )
        return min(options, default=None)

    def propose_growth(self, entry: DraftJob) -> Proposal | None:
        """The largest speed-up per added device, of one type, up to twice the devices it has; None if none pays."""
        best: Proposal | None = None
        size, rate, left, job = entry.size, entry.rate, entry.work_left, entry.view.job
        changes = entry.is_changing
        for device_type in entry.list_device_types():
            limit = min(self.free.get(device_type, 0), size)
            if limit <= 0:
                continue
            for devices, faster in entry.speeds.list_raises(entry.mix, device_type):
                if devices > limit:
                    break
                pause_s = 0.0 if changes else job.overhead.pause_s(size + devices)
                if saved_s(left, rate, faster, pause_s) < PATIENCE * pause_s:
                    continue
                score = -(left / rate / (pause_s + left / faster) - 1.0) / devices
                if best is None or (score, -devices, device_type) < (best.score, best.minus_devices, best.device_type):
                    best = Proposal(score, -devices, job.index, device_type, devices, faster)
        return best

    def propose_cuts(self, entry: DraftJob, least: int, device_types: Mapping[str, int]) -> Iterator[Proposal]:
        """Ways to give back devices of some types, so many of each at least, and keep `least` of its own."""
        size, rate = entry.size, entry.rate
        for device_type in entry.mix:
            if device_type not in device_types:
                continue
            for devices, slower in entry.speeds.list_cuts(entry.mix, device_type):
                if devices >= device_types[device_type] and size - devices >= least:
                    loss = (rate / slower - 1.0) / devices
                    yield Proposal(loss, -devices, entry.view.job.index, device_type, devices, slower)


def _rank_start(entry: DraftJob, device_type: str, share: int) -> Proposal:
    rate = entry.speeds.curves[device_type].rate(share)
    return Proposal(-rate, share, entry.view.job.index, device_type, share, rate)
