"""Promises on clusters of several device types, for `springtide`: each type is a pool, and each pool plans its own.

A pool has its nodes, the jobs promised there with their speeds on that type, and the planning and the check on devices
of `planning.admission`; so no promise is broken, by the same argument. A job without an answer is tried in every pool
its level allows, the fastest first. `transfers` says who may change pools; `joining` makes one decision of all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any

from springtide.core.curves import Curve
from springtide.core.decisions import Changes, Decision, JobView, Snapshot, Status
from springtide.core.jobs import Job, JobId
from springtide.placement.type_pools import Pool, pools_of
from springtide.policies.planning.admission import Propose, admit, decide_firmly
from springtide.policies.planning.drafts import Caution, Draft
from springtide.policies.planning.plan_table import PlanTable
from springtide.policies.pools.partition import MEMORY, PoolCache, can_run, narrow_member

OPEN = (Status.PENDING, Status.WAITLISTED)  # the jobs that wait for an answer


@dataclass(slots=True)
class PoolDecisions:
    """One decision in the making."""

    now_s: float
    snapshot: Snapshot
    cache: PoolCache
    first: str  # the pool that is asked first: what arrives is its demand; the others get what it turns away
    decisions: dict[str, Decision] = field(default_factory=dict)
    admitted: dict[JobId, str] = field(default_factory=dict)
    running: set[JobId] = field(default_factory=set)  # without an answer, on devices of a pool that needs them for none
    moves: Mapping[JobId, str] = field(default_factory=dict)  # promised jobs that change their pool, and to which

    @property
    def memory(self) -> Mapping[str, Any]:
        """What each pool remembers."""
        remembered: Mapping[str, Any] = self.snapshot.memory.get(MEMORY, {})
        return remembered

    @property
    def has_moved(self) -> bool:
        """Whether every job that was to change its pool has been promised its finish there."""
        return all(job_id in self.decisions[device_type].promises for job_id, device_type in self.moves.items())


def decide_in_turn(now_s: float, snapshot: Snapshot, propose: Propose, moves: Mapping[JobId, str]) -> PoolDecisions:
    """What the pools decide, one after the other, if some promised jobs change their pool."""
    old = snapshot.cache if isinstance(snapshot.cache, PoolCache) else PoolCache()
    pools = order_pools(snapshot)
    pooled = PoolDecisions(now_s, snapshot, PoolCache(dict(old.pools), old.seen), pools[0].device_type, moves=moves)
    for pool in pools:
        pooled.decisions[pool.device_type] = decide_pool(pooled, pool, propose)
    return pooled


def narrow_arrival(view: JobView, device_type: str) -> JobView:
    """A promised job as the pool it moves to sees it: it holds nothing there yet."""
    assert view.job.typed is not None
    own = replace(view.job, curve=view.job.typed.curves[device_type], typed=None)
    return replace(view, job=own, devices=(), share=0, promise=None, mix=None)


def order_pools(snapshot: Snapshot) -> list[Pool]:
    """The pools, those first whose devices are the fastest for the jobs that wait for an answer."""
    waiting = [view.job for view in snapshot.jobs.values() if view.status in OPEN and not view.job.best_effort]
    return sorted(
        pools_of(snapshot.cluster), key=lambda pool: -sum(relative_speed(job, pool.device_type) for job in waiting)
    )


def relative_speed(job: Job, device_type: str) -> float:
    """The speed of one device of a type beside the job's fastest type; 0 where it cannot run."""
    if job.typed is None or device_type not in job.typed.curves:
        return 0.0
    curve, best = job.typed.curves[device_type], job.typed.curves[job.typed.fastest]
    return curve.rates[0] / curve.shares[0] / (best.rates[0] / best.shares[0])


def decide_pool(pooled: PoolDecisions, pool: Pool, propose: Propose) -> Decision:
    """What a pool decides on its own; candidates it admits are not shown to the pools after it."""
    inside = show_pool(pooled, pool)
    coming = [inside.jobs[job_id] for job_id, device_type in pooled.moves.items() if device_type == pool.device_type]
    decision = decide_firmly(pooled.now_s, inside, partial(receive, propose, coming, is_crowded(pooled.snapshot)))
    for job_id, view in inside.jobs.items():
        if view.status in OPEN and job_id in decision.promises:
            pooled.admitted[job_id] = pool.device_type
        elif view.status in OPEN and decision.shares.get(job_id, view.share):
            pooled.running.add(job_id)
    assert isinstance(decision.cache, PlanTable)
    pooled.cache.pools[pool.device_type] = decision.cache
    return decision


def receive(
    propose: Propose, coming: Iterable[JobView], crowded: bool, table: PlanTable, inside: Snapshot, caution: Caution
) -> Draft:
    """A pool's proposal, after those who come from other pools.

    Promised jobs grow into spare devices only if no best-effort job wants them.
    """
    if caution.admits:
        for view in coming:
            admit(table, view)
    draft = propose(table, inside, caution)
    if crowded:
        draft.patience = inf
    return draft


def is_crowded(snapshot: Snapshot) -> bool:
    """Whether there are best-effort jobs."""
    return any(view.job.best_effort for view in snapshot.jobs.values())


def show_pool(pooled: PoolDecisions, pool: Pool) -> Snapshot:
    """The world as a pool sees it: its own nodes, who is promised or holds devices there, and who wants to."""
    snapshot = pooled.snapshot
    jobs: dict[JobId, JobView] = {}
    for job_id, view in snapshot.jobs.items():
        found = find_view(pooled, pool, view)
        if found is not None:
            jobs[job_id] = found
    free = free_devices(pooled, pool)
    leaving = tuple(job_id for job_id, device_type in pooled.moves.items() if device_type != pool.device_type)
    finished = Changes((*snapshot.changes.finished, *leaving))
    memory = pooled.memory.get(pool.device_type, {}) if pool.device_type == pooled.first else {}
    return Snapshot(pool.cluster, jobs, free, finished, memory, pooled.cache.pools.get(pool.device_type))


def free_devices(pooled: PoolDecisions, pool: Pool) -> tuple[int, ...]:
    """The free devices of a pool, with those of jobs that leave it."""
    free = [pooled.snapshot.free_masks[node] for node in pool.nodes]
    for job_id, device_type in pooled.moves.items():
        if device_type != pool.device_type:
            for node, mask in pool.narrow(pooled.snapshot.jobs[job_id].devices):
                free[node] |= mask
    return tuple(free)


def find_view(pooled: PoolDecisions, pool: Pool, view: JobView) -> JobView | None:
    """A job as a pool sees it, None if it has no business there; the same object as long as nothing changes."""
    job_id = view.job.id
    if job_id in pooled.moves:
        return narrow_arrival(view, pool.device_type) if pooled.moves[job_id] == pool.device_type else None
    if not belongs(pooled, pool, view):
        return None
    key = (pool.device_type, job_id)
    known = pooled.cache.seen.get(key)
    if known is None or known[0] is not view:
        known = pooled.cache.seen[key] = (view, narrow_view(pool, view))
    return known[1]


def belongs(pooled: PoolDecisions, pool: Pool, view: JobView) -> bool:
    """Whether a job is promised in a pool, holds devices there, or waits for an answer and could get it there."""
    job = view.job
    if view.promise is not None and view.promise.device_type == pool.device_type:
        return True
    if view.mix and view.mix.get(pool.device_type):
        return True
    if view.status not in OPEN or job.best_effort or view.mix or job.id in pooled.admitted:
        return False
    return job.id not in pooled.running and can_run(view, pool.device_type)


def narrow_view(pool: Pool, view: JobView) -> JobView:
    """A job inside a pool: at its speeds on that type, with the devices it holds there.

    A best-effort job that holds some may keep them as long as nobody needs them: it is shown with the share it has.
    """
    own = narrow_member(pool, view)
    if own.promise is not None:
        return own
    if not own.share or (own.status in OPEN and not own.job.best_effort):
        return replace(own, answer_by_s=inf)
    job = replace(own.job, curve=hold_curve(own.share, view.progress.rate), deadline_s=inf)
    return replace(own, job=job)


def hold_curve(share: int, rate: float) -> Curve:
    """What a job without a promise may hold in a pool: as much as now, or one device."""
    return Curve((1,), (rate,)) if share == 1 else Curve((1, share), (rate / share, rate))
