"""Promised jobs that change pools, so that a job which no pool could take finds room.

A promise is carried over only if the other pool admits the job with its pause, and is certified there like any
newcomer. Jobs of level D2 may change at any time, those of D1 only before they have started. One job moves at a time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf

from springtide.core.decisions import Changes, JobView, Snapshot, Status
from springtide.core.jobs import JobId
from springtide.placement.type_pools import Pool, pools_of
from springtide.policies.planning.admission import Propose, admit
from springtide.policies.planning.forecast import alone_cost
from springtide.policies.planning.plan_table import open_table
from springtide.policies.pools.partition import can_run
from springtide.policies.pools.pool_decisions import OPEN, PoolDecisions, decide_in_turn, narrow_arrival, show_pool

DONORS = 4  # promised jobs that are asked to make way for one asker


def find_homeless(snapshot: Snapshot) -> dict[JobId, str]:
    """The jobs promised on a type that is no pool, and the fastest pool they may change to.

    That is so after the devices of a server have changed, and of promises on two types, which version 0.1 made.
    """
    types, found = snapshot.cluster.device_types, {}
    for job_id, view in snapshot.jobs.items():
        typed, promise = view.job.typed, view.promise
        if promise is None or promise.device_type in types or view.status is not Status.ADMITTED or typed is None:
            continue
        able = [device_type for device_type in types if can_run(view, device_type)]
        if able and not (promise.device_type == "" and view.mix):
            found[job_id] = max(able, key=lambda device_type: typed.curves[device_type].rates[-1])
    return found


def list_pressing(pooled: PoolDecisions) -> list[JobId]:
    """The jobs that no pool admits and that have just come or must be answered now, in arrival order."""
    found = []
    for job_id, view in pooled.snapshot.jobs.items():
        if view.status not in OPEN or view.job.best_effort or job_id in pooled.admitted or job_id in pooled.running:
            continue
        if view.status is Status.PENDING or view.answer_by_s <= pooled.now_s:
            found.append(job_id)
    return found


def make_way(pooled: PoolDecisions, asker: JobId, propose: Propose) -> PoolDecisions | None:
    """The decisions with one promised job planned in another pool, so that the asker is admitted; None if none helps.

    The plan tables say roughly who could make way; what counts is that all pools then decide as hoped, and that
    nobody admitted before is lost.
    """
    for moves in find_moves(pooled, asker):
        tried = decide_in_turn(pooled.now_s, pooled.snapshot, propose, {**pooled.moves, **moves})
        if tried.has_moved and tried.admitted.keys() >= {*pooled.admitted, asker}:
            return tried
    return None


def find_moves(pooled: PoolDecisions, asker: JobId) -> Iterator[dict[JobId, str]]:
    """Promised jobs whose move to another pool seems to make room for the asker, the cheapest moves first."""
    pools = pools_of(pooled.snapshot.cluster)
    inside = {pool.device_type: show_pool(pooled, pool) for pool in pools}
    for pool in pools:
        view = inside[pool.device_type].jobs.get(asker)
        if view is None:
            continue
        cost = alone_cost(view.job, pooled.now_s, pool.cluster.total)
        if cost == inf:
            continue
        for _, job_id, device_type in rank_donors(pooled, pool, pools, cost)[:DONORS]:
            there = open_table(pooled.now_s, inside[device_type])
            donor = narrow_arrival(pooled.snapshot.jobs[job_id], device_type)
            if can_leave(pooled.now_s, inside[pool.device_type], view, job_id) and admit(there, donor):
                yield {job_id: device_type}


def rank_donors(
    pooled: PoolDecisions, pool: Pool, pools: Iterable[Pool], cost: float
) -> list[tuple[float, JobId, str]]:
    """(price, job, new pool) of the jobs promised in a pool that may run in another: its part there over its part here.

    Only jobs that need more than `cost` device-seconds: nobody makes way for a costlier job. A job that must keep the
    type it runs on may still change it before it has started.
    """
    donors = []
    for job_id, view in pooled.snapshot.jobs.items():
        typed = view.job.typed
        if (
            view.promise is None
            or view.promise.device_type != pool.device_type
            or typed is None
            or job_id in pooled.moves
        ):
            continue
        if view.first_device_type and not typed.movable:
            continue
        work = view.progress.work_left_at(pooled.now_s)
        here = alone_cost(
            replace(narrow_arrival(view, pool.device_type).job, work=work), pooled.now_s, pool.cluster.total
        )
        if here < cost:
            continue
        for other in pools:
            if other.device_type != pool.device_type and other.device_type in typed.curves:
                job = replace(narrow_arrival(view, other.device_type).job, work=work)
                there = alone_cost(job, pooled.now_s, other.cluster.total)
                if there < inf:
                    price = there / other.cluster.total / (here / pool.cluster.total)
                    donors.append((price, view.job.index, job_id, other.device_type))
    return [(price, job_id, device_type) for price, _, job_id, device_type in sorted(donors)]


def can_leave(now_s: float, inside: Snapshot, asker: JobView, donor: JobId) -> bool:
    """Whether a pool could promise the asker's finish if the donor were not there."""
    jobs = {job_id: view for job_id, view in inside.jobs.items() if job_id != donor}
    table = open_table(now_s, replace(inside, jobs=jobs, changes=Changes((*inside.changes.finished, donor))))
    return admit(table, asker)
