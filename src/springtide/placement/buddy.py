"""Which devices each share becomes: compact, best fit, fewest moves.

Works on the difference that a Decision is. Order: what is given up, then shrinks, then the changes that must happen
by size, then growth into spare devices where it needs no move. ElasticFlow (ASPLOS 2023) places with a buddy
allocator and rebuilds it at each event; here a job stays where it is unless room must be made.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from springtide.core.decisions import Decision, Snapshot
from springtide.core.devices import Devices
from springtide.core.jobs import JobId
from springtide.errors import PolicyError
from springtide.placement.best_fit import extend, find_fit, gather, keep_part
from springtide.placement.migration import NOTHING, MoveCost, Price, make_room
from springtide.placement.move_costs import price_moves
from springtide.placement.working_copy import WorkingCopy


@dataclass(frozen=True, slots=True)
class Placement:
    """Devices of all jobs for which they change, and what that took.

    `moved` jobs change devices at an unchanged share. `skipped` growth did not fit. `scattered` jobs lie on devices
    that are no compact place, which power-of-two shares on equal power-of-two nodes never need. `unreserved` jobs could
    be placed only by moves beyond the reserve of a plan, `forced` ones only by moves that break promised deadlines, by
    `late_s` seconds in all: no one with slack was in the way. `pushing` jobs are those for which a promised job moves
    and ends later, these and others. `working` is the working copy on which it was laid out, as it was left.
    """

    allocations: Mapping[JobId, Devices]
    moved: tuple[JobId, ...] = ()
    skipped: tuple[JobId, ...] = ()
    scattered: tuple[JobId, ...] = ()
    unreserved: tuple[JobId, ...] = ()
    forced: tuple[JobId, ...] = ()
    late_s: float = 0.0
    pushing: tuple[JobId, ...] = ()
    working: WorkingCopy | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Landing:
    """How one job was placed, or that there were not enough devices."""

    placed: bool = True
    cost: MoveCost = NOTHING
    scattered: bool = False


SMOOTH = Landing()  # no one moved for it


def place(now_s: float, snapshot: Snapshot, decision: Decision) -> dict[JobId, Devices]:
    """The devices of every job for which they change: those in `decision.shares` and those moved to make room."""
    return dict(arrange(now_s, snapshot, decision).allocations) if decision.shares else {}


def arrange(now_s: float, snapshot: Snapshot, decision: Decision) -> Placement:
    """What `place` would do and what it would take, for a policy that asks beforehand."""
    if not decision.shares:
        return Placement({})
    working = WorkingCopy(snapshot)
    return replace(lay_out(working, now_s, snapshot, decision), working=working)


def lay_out(working: WorkingCopy, now_s: float, snapshot: Snapshot, decision: Decision) -> Placement:
    """Carry out a decision on a working copy that stands as the Snapshot does."""
    growth = _list_growth(snapshot, decision)
    required = {job_id: share for job_id, share in decision.shares.items() if job_id not in growth}
    price = price_moves(now_s, snapshot, decision.promises)
    rough = [(job_id, landing) for job_id, landing in change_shares(working, required, price) if landing is not SMOOTH]
    for job_id, landing in rough:
        if not landing.placed:
            raise _overdrawn(snapshot, decision, job_id)
    skipped = tuple([job_id for job_id, share in growth.items() if not _grow_freely(working, job_id, share)])
    changed = working.changed()
    moved = tuple([job_id for job_id in changed if working.shares[job_id] == snapshot.jobs[job_id].share])
    if not rough:
        return Placement(changed, moved, skipped)
    return Placement(
        changed,
        moved,
        skipped,
        scattered=tuple(job_id for job_id, landing in rough if landing.scattered),
        unreserved=tuple(job_id for job_id, landing in rough if landing.cost.unreserved),
        forced=tuple(job_id for job_id, landing in rough if landing.cost.late_s),
        late_s=sum(landing.cost.late_s for _, landing in rough),
        pushing=tuple(job_id for job_id, landing in rough if landing.cost.harms or landing.cost.strain),
    )


def _list_growth(snapshot: Snapshot, decision: Decision) -> dict[JobId, int]:
    """The optional changes that need devices; an optional shrink needs none and is simply done."""
    if not decision.optional:
        return {}
    jobs, optional = snapshot.jobs, decision.optional
    return {
        job_id: share for job_id, share in decision.shares.items() if job_id in optional and share > jobs[job_id].share
    }


def change_shares(working: WorkingCopy, shares: Mapping[JobId, int], price: Price) -> Iterable[tuple[JobId, Landing]]:
    """Carry out changes of share that must happen, and yield how each job that needs devices was placed."""
    working.begin({job_id for job_id, share in shares.items() if share != working.shares[job_id]})
    queue = _free_devices(working, shares)
    working.waiting = {job_id for _, _, job_id in queue}
    for minus_share, _, job_id in queue:
        working.waiting.discard(job_id)
        yield job_id, _land(working, job_id, -minus_share, price)


def _free_devices(working: WorkingCopy, shares: Mapping[JobId, int]) -> list[tuple[int, int, JobId]]:
    """Release what jobs give up; returns who is still to be placed: (-share, arrival index, job), in order."""
    queue: list[tuple[int, int, JobId]] = []
    shrinking: list[tuple[int, JobId]] = []
    for job_id, share in shares.items():
        held = working.shares[job_id]
        if share == 0 and held:
            working.assign(job_id, ())
        elif share < held:
            shrinking.append((working.index_of(job_id), job_id))
        elif share > held:
            queue.append((-share, working.index_of(job_id), job_id))
    for index, job_id in sorted(shrinking):
        part = keep_part(working.topology, working.free, working.held[job_id], shares[job_id])
        if part is None:
            queue.append((-shares[job_id], index, job_id))
        working.assign(job_id, part or ())
    queue.sort()
    return queue


def _land(working: WorkingCopy, job_id: JobId, share: int, price: Price) -> Landing:
    """Place one job that must be: in place, where it fits, where room can be made, or wherever devices are."""
    own = working.held[job_id]
    working.assign(job_id, ())
    fit = _fit(working, own, share)
    if fit is not None:
        working.assign(job_id, fit)
        return SMOOTH
    mark = working.mark()
    cost = make_room(working, job_id, share, price)
    if cost is not None and (not cost.late_s or working.must_be_compact(share)):
        return Landing(cost=cost)
    # beyond powers of two compactness is a wish, and not worth a promise
    working.undo(mark)
    if share > sum(mask.bit_count() for mask in working.free):
        return Landing(placed=False)
    working.assign(job_id, gather(working.free, share))
    return Landing(scattered=True)


def _grow_freely(working: WorkingCopy, job_id: JobId, share: int) -> bool:
    """Place a job where it fits without moving another; leaves it as it is and returns False if it fits nowhere."""
    own = working.held[job_id]
    mark = working.mark()
    working.assign(job_id, ())
    fit = _fit(working, own, share)
    if fit is None:
        working.undo(mark)
        return False
    working.assign(job_id, fit)
    return True


def _fit(working: WorkingCopy, own: Devices, share: int) -> Devices | None:
    """A compact place for a job that held `own` devices and holds none now: around them if possible."""
    if not own:
        return find_fit(working.topology, working.free, share)
    grown = extend(working.topology, working.free, own, share)
    return grown or find_fit(working.topology, working.free, share, frozenset(piece.node for piece in own))


def _overdrawn(snapshot: Snapshot, decision: Decision, job_id: JobId) -> PolicyError:
    kept = sum(view.share for other, view in snapshot.jobs.items() if other not in decision.shares)
    asked = sum(share for other, share in decision.shares.items() if other not in decision.optional)
    return PolicyError(
        f"job {job_id} cannot have {decision.shares[job_id]} devices: {asked} are asked for and {kept} stay with other "
        f"jobs, but the cluster {snapshot.cluster.describe()} has {snapshot.cluster.total}; a policy must not hand out "
        "more than there are"
    )
