"""What EasyScale's job masters propose: which devices more, or fewer, and how much that speeds their job up.

A `Desk` holds what every job has been given so far in one decision and what is still free; nothing here says who goes
first. Source: EasyScale (SC 2023), intra-job scheduling; its simulator keeps the worst of equal configurations, takes
single-type devices to waste nothing, and counts types that are not used: none of that is repeated, because a mix is
judged by its best mapping alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import NamedTuple

from springtide.core.curves import Curve
from springtide.core.decisions import JobView
from springtide.core.jobs import JobId
from springtide.core.mixes import Mix, TypedCurves
from springtide.throughput.heterogeneous import saved_s

PATIENCE = 1.0  # a running job grows only if it ends earlier by more than one pause beyond the pause itself


class Proposal(NamedTuple):
    """So many devices of a type more (or fewer) for a job; ordered best first.

    `score` is the speed-up per device added, negated, then the loss per device given back.
    """

    score: float
    minus_devices: int  # of equal scores the one with more devices
    arrival: int
    kind: str
    devices: int
    rate: float


@dataclass(slots=True)
class Member:
    """A job at the desk: the types it may use, whether several at once, and the mix it has been given so far."""

    view: JobView
    speeds: TypedCurves
    kinds: tuple[str, ...]
    mixes: bool
    work_left: float
    held: Mix  # what it had before
    mix: dict[str, int]
    rate: float = 0.0
    since_s: float = 0.0  # from when on the work left falls at this rate
    must_change: bool = False  # it holds devices that it is to leave
    is_kept: bool = False  # in this round it keeps what it holds

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

    def list_kinds(self) -> tuple[str, ...]:
        """The types of which it may have more."""
        return self.kinds if self.mixes or not self.mix else tuple(self.mix)

    def fork(self) -> "Member":
        """The same job with a mix of its own."""
        return Member(
            self.view,
            self.speeds,
            self.kinds,
            self.mixes,
            self.work_left,
            self.held,
            dict(self.mix),
            self.rate,
            self.since_s,
            self.must_change,
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

    def add(self, kind: str, devices: int) -> None:
        """Give it devices of a type, or take them back."""
        self.mix[kind] = self.mix.get(kind, 0) + devices
        if not self.mix[kind]:
            del self.mix[kind]
        self.rate = self.speeds.rate(self.mix)


def meet(now_s: float, view: JobView, speeds: TypedCurves, kinds: tuple[str, ...], mixes: bool) -> Member:
    """A job as it stands now, on what it holds."""
    held = held_mix(view, speeds.types)
    left, since_s = view.progress.work_left_at(now_s), max(now_s, view.progress.paused_until_s)
    return Member(view, speeds, kinds, mixes, left, held, dict(held), view.progress.rate, since_s)


def held_mix(view: JobView, kinds: tuple[str, ...]) -> Mix:
    """What a job holds of each type; all of the only type for a job without speeds by type."""
    if view.mix is not None:
        return view.mix
    return {kinds[0]: view.share} if view.share else {}


@lru_cache(maxsize=4096)
def type_curve(curve: Curve, kinds: tuple[str, ...]) -> TypedCurves:
    """Speeds by type of a job that has only one curve: the same on every type."""
    return TypedCurves(dict.fromkeys(kinds, curve), movable=True)


@dataclass(slots=True)
class Desk:
    """Jobs in arrival order, and the devices of each type that none of them has."""

    members: dict[JobId, Member]
    free: dict[str, int]

    def fork(self) -> "Desk":
        """The same desk, to try something."""
        return Desk({job_id: member.fork() for job_id, member in self.members.items()}, dict(self.free))

    def list_mixes(self) -> dict[JobId, Mix]:
        """What every job has been given so far."""
        return {job_id: dict(member.mix) for job_id, member in self.members.items()}

    def seat(self, member: Member) -> None:
        """Take in a job with what it holds, which is not free."""
        self.members[member.view.job.id] = member
        for kind, count in member.mix.items():
            self.free[kind] -= count

    def clear(self, member: Member) -> None:
        """Take back all that a job has been given."""
        for kind, count in list(member.mix.items()):
            self.give(member, kind, -count)

    def give(self, member: Member, kind: str, devices: int) -> None:
        """Hand out devices of a type, or take them back."""
        member.add(kind, devices)
        self.free[kind] -= devices

    def propose_start(self, member: Member, least: int) -> Proposal | None:
        """The fastest mix of one type with at least so many devices, as few as possible."""
        options = (
            _rank_start(member, kind, share)
            for kind in member.kinds
            for share in [next((n for n in member.speeds.curves[kind].shares if n >= least), 0)]
            if 0 < share <= self.free.get(kind, 0)
        )
        return min(options, default=None)

    def propose_growth(self, member: Member) -> Proposal | None:
        """The largest speed-up per added device, of one type, up to twice the devices it has; None if none pays."""
        best: Proposal | None = None
        size, rate, left, job = member.size, member.rate, member.work_left, member.view.job
        changes = member.is_changing
        for kind in member.list_kinds():
            limit = min(self.free.get(kind, 0), size)
            if limit <= 0:
                continue
            for devices, faster in member.speeds.list_raises(member.mix, kind):
                if devices > limit:
                    break
                pause_s = 0.0 if changes else job.overhead.pause_s(size + devices)
                if saved_s(left, rate, faster, pause_s) < PATIENCE * pause_s:
                    continue
                score = -(left / rate / (pause_s + left / faster) - 1.0) / devices
                if best is None or (score, -devices, kind) < (best.score, best.minus_devices, best.kind):
                    best = Proposal(score, -devices, job.index, kind, devices, faster)
        return best

    def propose_cuts(self, member: Member, least: int, kinds: Mapping[str, int]) -> Iterator[Proposal]:
        """Ways to give back devices of some types, so many of each at least, and keep `least` of its own."""
        size, rate = member.size, member.rate
        for kind in member.mix:
            if kind not in kinds:
                continue
            for devices, slower in member.speeds.list_cuts(member.mix, kind):
                if devices >= kinds[kind] and size - devices >= least:
                    loss = (rate / slower - 1.0) / devices
                    yield Proposal(loss, -devices, member.view.job.index, kind, devices, slower)


def _rank_start(member: Member, kind: str, share: int) -> Proposal:
    rate = member.speeds.curves[kind].rate(share)
    return Proposal(-rate, share, member.view.job.index, kind, share, rate)
