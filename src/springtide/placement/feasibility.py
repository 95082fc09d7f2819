"""Replaying the plans on devices before a promise is made: can every planned start and growth be placed?

Plans count devices; a start may find enough of them free, but in pieces. Then others must move, and each promised
plan holds a reserve for one move only. `check_plans` runs the plans through the same placement code and says whether
they get by with that. It does not look for better plans, and no further than the next `FOLLOWED` starts and growths:
what lies beyond them is followed by later checks, once it is among the next.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import compress
from math import inf
from operator import is_not
from types import MappingProxyType

from springtide.core.decisions import Decision, JobView, Plan, Snapshot
from springtide.core.devices import Devices
from springtide.core.jobs import JobId
from springtide.placement.buddy import SMOOTH, Landing, Placement, change_shares, lay_out
from springtide.placement.migration import IMPOSSIBLE, MoveCost
from springtide.placement.move_costs import ROUNDING_S, Move, MoveCourse, chart, promise_for
from springtide.placement.working_copy import WorkingCopy

FOLLOWED = 32  # starts and growths to come that a check goes through
Step = tuple[float, Mapping[JobId, Devices]]  # an instant, and the devices of each job for which it changes them


@dataclass(frozen=True, slots=True)
class Horizon:
    """How far a check follows the plans, and who is to be looked at.

    All others hold what they are planned to, and go on to hold it beyond that.
    """

    until_s: float  # the instant of the last start or growth that is followed; minus infinity where none is to come
    changing: Collection[JobId]


@dataclass(frozen=True, slots=True)
class Certificate:
    """A check that passed: the plans, where all jobs were when it began, and what each instant in turn gives to whom.

    It followed the plans `until_s`, which left the working copy as it is here, and the reserves without these moves.
    Another check of the same plans goes on from there.
    """

    plans: Mapping[JobId, Plan]
    began_s: float
    views: Mapping[JobId, JobView]  # of all jobs, when it began
    held: Mapping[JobId, Devices]  # by those to whom the decision gave other devices than they had, and some others
    steps: tuple[Step, ...]
    until_s: float
    working: WorkingCopy
    moves: Mapping[JobId, tuple[Move, ...]]

    def holds(
        self, now_s: float, snapshot: Snapshot, allocations: Mapping[JobId, Devices], plans: Mapping[JobId, Plan]
    ) -> bool:
        """Whether all has gone as foreseen, and so will the rest: the same plans, and every job as far and where it is.

        Beside them there may be plans that begin later than it followed them. Most jobs are compared without a step of
        Python for each: there are as many as promises.
        """
        known = self.plans
        added = [*compress(plans, map(is_not, plans.values(), map(known.get, plans)))]
        if len(plans) - len(added) < len(known):
            return False
        if any(allocations.get(job_id, snapshot.jobs[job_id].devices) for job_id in added):
            return False
        if any(plans[job_id].first_start_s <= self.until_s for job_id in added):
            return False
        changed_s: dict[JobId, tuple[float, Devices]] = {}
        for at_s, changed in self.steps:
            if at_s > now_s:
                break
            changed_s |= {job_id: (at_s, devices) for job_id, devices in changed.items()}
        others = compress(known, map(is_not, map(snapshot.jobs.get, known), map(self.views.get, known)))
        for job_id in known.keys() & {*others, *changed_s, *self.held, *allocations}:
            at_s, devices = changed_s.get(job_id) or (self.began_s, self._held_first(job_id))
            if not _is_as_checked(snapshot.jobs[job_id], allocations, at_s, devices):
                return False
        return True

    def _held_first(self, job_id: JobId) -> Devices:
        """What a job held once the decision was carried out."""
        devices = self.held.get(job_id)
        return self.views[job_id].devices if devices is None else devices


def _is_as_checked(view: JobView, allocations: Mapping[JobId, Devices], at_s: float, devices: Devices) -> bool:
    """Whether a job will hold these devices, and no one has corrected its progress since it got them."""
    return view.progress.since_s <= at_s and allocations.get(view.job.id, view.devices) == devices


@dataclass(frozen=True, slots=True)
class Feasibility:
    """Whether all plans can be placed, and how; if not, the first job that cannot, and when."""

    ok: bool
    job_id: JobId | None = None
    at_s: float = inf
    certificate: Certificate | None = field(default=None, compare=False)


_OK = Feasibility(True)
Changes = dict[float, dict[JobId, int]]  # instant -> new share of each job for which it changes


def check_plans(
    now_s: float,
    snapshot: Snapshot,
    decision: Decision,
    plans: Mapping[JobId, Plan],
    horizon: Horizon | None = None,
    placement: Placement | None = None,
    certificate: Certificate | None = None,
) -> Feasibility:
    """Whether the decision and then the plans of all promised jobs can be placed with the moves that are reserved.

    A job is moved only as long as the pauses of its moves fit the reserve of its plan; a job without a plan makes way
    at no cost. O(jobs), but for whoever knows the horizon of the plans already. Whoever has laid out this very decision
    gives its `placement`, whose working copy the check goes on with, and may have the `certificate` of the check before
    it: as long as all goes as it foresaw, only what lies beyond it is followed.
    """
    horizon = horizon or Horizon(find_horizon_s(now_s, plans), snapshot.jobs.keys())
    last_s = horizon.until_s
    if last_s <= now_s and not decision.shares:
        return _OK
    if certificate is not None and placement is not None and last_s > now_s:
        found = _go_on(certificate, now_s, snapshot, decision, plans, horizon, placement)
        if found is not None:
            return found
    working = WorkingCopy(snapshot) if placement is None or placement.working is None else placement.working
    if placement is None or placement.working is None:
        placement = lay_out(working, now_s, snapshot, decision)
    harmful = placement.forced or placement.unreserved
    if harmful:
        return Feasibility(False, harmful[0], now_s)
    if last_s <= now_s:
        return _OK
    # From here on the future: the planned starts and growths are placed in turn by the code that will place them then,
    # so what passes today happens tomorrow. After the last of all, devices only come free, and nothing fails.
    reserves = _Reserves(now_s, snapshot, decision, plans)
    for job_id in placement.moved:
        reserves.spend(job_id, working.shares[job_id])
    held = dict(working.held)
    instants = _join_instants(_list_changes(working, now_s, plans, horizon))
    steps: list[Step] = []
    broken = _replay(working, instants, reserves, steps)
    if broken:
        return broken
    # the pause of a job that is moved now is apart from its plan today and part of it later: its price would differ
    if any(job_id in plans for job_id in placement.moved):
        return _OK
    views = dict(snapshot.jobs)
    return Feasibility(
        True, certificate=Certificate(plans, now_s, views, held, tuple(steps), last_s, working, reserves.moves)
    )


def _go_on(
    last: Certificate,
    now_s: float,
    snapshot: Snapshot,
    decision: Decision,
    plans: Mapping[JobId, Plan],
    horizon: Horizon,
    placement: Placement,
) -> Feasibility | None:
    """The check after another one, as long as all goes as that one foresaw; None if it does not.

    A check from now on would find the same steps up to where the last one came, so only those beyond are looked for.
    """
    if not last.holds(now_s, snapshot, placement.allocations, plans) or any(name in plans for name in placement.moved):
        return None
    steps, working, moves, until_s = [*last.steps], last.working, last.moves, last.until_s
    if horizon.until_s > until_s:
        unplanned = [job_id for job_id in horizon.changing if job_id not in plans]
        working = working.carry_over(snapshot, unplanned)
        instants = _join_instants(_list_later(plans, horizon, until_s))
        if steps and instants and instants[0][0] - steps[-1][0] <= ROUNDING_S:
            return None  # they would be one instant
        reserves = _Reserves(now_s, snapshot, decision, plans, moves)
        broken = _replay(working, instants, reserves, steps)
        if broken:
            return broken
        moves, until_s = reserves.moves, horizon.until_s
    later = tuple([step for step in steps if step[0] > now_s])
    views, held = dict(snapshot.jobs), placement.allocations
    return Feasibility(True, certificate=Certificate(plans, now_s, views, held, later, until_s, working, moves))


def _replay(
    working: WorkingCopy, instants: Sequence[tuple[float, dict[JobId, int]]], reserves: "_Reserves", steps: list[Step]
) -> Feasibility | None:
    """Carry the changes out on the working copy, and keep what each instant gives whom; returns the first failure."""
    for at_s, shares in instants:
        reserves.turn_to(at_s)
        made_room = False
        for job_id, landing in change_shares(working, shares, reserves.price):
            if landing is SMOOTH:
                continue
            if _is_broken(working, landing, shares[job_id]):
                return Feasibility(False, job_id, at_s)
            made_room = True
        changed = working.changed()
        # whoever changed devices without a planned change of share was moved, and its reserve has paid for that
        steps.append((at_s, changed))
        if made_room:
            for job_id in changed:
                if job_id not in shares:
                    reserves.spend(job_id, working.shares[job_id])
    return None


def _join_instants(changes: Changes) -> list[tuple[float, dict[JobId, int]]]:
    """The changes in order, those of one instant together: plans that touch may overlap by a rounding."""
    joined: list[tuple[float, dict[JobId, int]]] = []
    for at_s, shares in sorted(changes.items()):
        if joined and at_s - joined[-1][0] <= ROUNDING_S:
            joined[-1][1].update(shares)
        else:
            joined.append((at_s, shares))
    return joined


def _is_broken(working: WorkingCopy, landing: Landing, share: int) -> bool:
    """Whether a job was not placed as its plan assumes; a share that need not be compact may be scattered."""
    return not landing.placed or landing.cost.late_s > 0 or (landing.scattered and working.must_be_compact(share))


class _Reserves:
    """What each planned job can still afford, given the moves of the replay so far."""

    def __init__(
        self,
        now_s: float,
        snapshot: Snapshot,
        decision: Decision,
        plans: Mapping[JobId, Plan],
        moves: Mapping[JobId, tuple[Move, ...]] = MappingProxyType({}),
    ) -> None:
        self.at_s = now_s  # the instant that is replayed
        self.moves = dict(moves)
        self._now_s = now_s
        self._jobs = snapshot.jobs
        self._decision = decision
        self._plans = plans
        self._courses: dict[JobId, MoveCourse] = {}
        self._prices: dict[JobId, tuple[int, MoveCost]] = {}  # at this instant: of a move at a share

    def turn_to(self, at_s: float) -> None:
        """Go on to a later instant."""
        self.at_s = at_s
        self._prices.clear()

    def price(self, job_id: JobId, share: int) -> MoveCost:
        """What a move costs as long as the reserve covers it; out of the question after that.

        Equal to the price that `place` sees when the plans are followed, so that it takes the same choices.
        """
        known = self._prices.get(job_id)
        if known is not None and known[0] == share:
            return known[1]
        course = self._courses.get(job_id) or self._chart(job_id)
        cost = course.price(self.at_s, share, self.moves.get(job_id, ()))
        cost = IMPOSSIBLE if cost.unreserved else cost
        self._prices[job_id] = share, cost
        return cost

    def spend(self, job_id: JobId, share: int) -> None:
        """Note that a job is moved at this instant."""
        self._prices.pop(job_id, None)
        if job_id in self._plans:
            pause_s = self._jobs[job_id].job.overhead.pause_s(share)
            self.moves[job_id] = (*self.moves.get(job_id, ()), (self.at_s, pause_s, None))

    def _chart(self, job_id: JobId) -> MoveCourse:
        view = self._jobs[job_id]
        promise = promise_for(view, self._decision.promises.get(job_id, view.promise), self._plans[job_id])
        self._courses[job_id] = course = chart(self._now_s, view, promise, self._decision.shares.get(job_id))
        return course


def find_horizon_s(now_s: float, plans: Mapping[JobId, Plan]) -> float:
    """The instant of the last start or growth that a check follows; minus infinity where none is to come.

    Read from plans; `plan_reading.write_growths` reads the same from columns.
    """
    growths_s: list[float] = []
    for plan in plans.values():
        if plan.segments[-1].start_s <= now_s:
            continue  # all of it has begun
        share = 0
        for segment in plan.segments:
            if segment.start_s > now_s and segment.share > share:
                growths_s.append(segment.start_s)
            share = segment.share
    return find_last_followed_s(growths_s)


def find_last_followed_s(growths_s: list[float]) -> float:
    """The last of the starts and growths to come that a check follows, given all of them."""
    if len(growths_s) > FOLLOWED:
        growths_s = nsmallest(FOLLOWED, growths_s)
    return max(growths_s, default=-inf)


def _list_later(plans: Mapping[JobId, Plan], horizon: Horizon, after_s: float) -> Changes:
    """The planned changes up to the last growth, without those that a check up to `after_s` has followed."""
    changes: Changes = defaultdict(dict)
    for job_id in horizon.changing:
        plan = plans.get(job_id)
        if plan is None:
            continue
        for segment in plan.segments:
            if after_s < segment.start_s <= horizon.until_s:
                changes[segment.start_s][job_id] = segment.share
        if after_s + ROUNDING_S < plan.held_until_s <= horizon.until_s + ROUNDING_S:
            changes[plan.held_until_s][job_id] = 0
    return changes


def _list_changes(working: WorkingCopy, now_s: float, plans: Mapping[JobId, Plan], horizon: Horizon) -> Changes:
    """The planned changes from now to the last growth; first of all every job goes to its planned share.

    Of the jobs that `plan_reading.write_changing` finds.
    """
    changes: Changes = defaultdict(dict)
    shares, last_s = working.shares, horizon.until_s
    for job_id in dict.fromkeys([*horizon.changing, *shares]):
        share, plan = 0, plans.get(job_id)
        if plan is not None:
            last = plan.segments[-1]
            if last.start_s <= now_s:  # all of it has begun
                share = last.share
            else:
                for segment in plan.segments:
                    if segment.start_s <= now_s:
                        share = segment.share
                    elif segment.start_s <= last_s:
                        changes[segment.start_s][job_id] = segment.share
            if plan.held_until_s <= now_s:
                share = 0
            elif plan.held_until_s <= last_s + ROUNDING_S:
                changes[plan.held_until_s][job_id] = 0
        if share != shares[job_id]:
            changes[now_s][job_id] = share
    return changes
