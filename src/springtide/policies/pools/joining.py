"""`springtide` on clusters of several device types: what the pools promise, and the rest for best-effort jobs.

Puts the decisions of the pools together into one: answers, promises with their type, and devices. What promises leave
over is shared out among best-effort jobs over all types (`guests`). On a cluster of one type it has no part.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from springtide.core.decisions import Answer, Decision, JobView, Promise, Snapshot, Status
from springtide.core.devices import Devices
from springtide.core.jobs import JobId
from springtide.placement.scattered import hold_loosely
from springtide.placement.type_pools import pools_of
from springtide.policies.elasticflow import BEST_EFFORT, PROMISED
from springtide.policies.planning.admission import Propose
from springtide.policies.pools.best_effort import share_out
from springtide.policies.pools.partition import MEMORY, PoolCache, join_refusals, refuse_types
from springtide.policies.pools.pool_decisions import PoolDecisions, deal
from springtide.policies.pools.spanning import bridge
from springtide.policies.pools.spanning_parts import widen_promise
from springtide.policies.pools.transfers import list_pressing, make_way

ASKERS = 2  # jobs for which others are asked to change their pool, per decision


def decide_pools(now_s: float, snapshot: Snapshot, propose: Propose) -> Decision:
    """Promises within the pools, then best-effort jobs over all of them."""
    pooled = deal(now_s, snapshot, propose, {}, {})
    for job_id in list_pressing(pooled)[:ASKERS]:
        pooled = make_way(pooled, job_id, propose) or bridge(pooled, job_id, propose) or pooled
    return conclude(pooled)


def conclude(pooled: PoolDecisions) -> Decision:
    """All pools' decisions as one, with devices for the best-effort jobs."""
    answers = answer_all(pooled)
    allocations = allocate(pooled, answers)
    wake_at_s = min(decision.wake_at_s for decision in pooled.decisions.values())
    return Decision(
        answers=answers,
        promises=join_promises(pooled),
        allocations=allocations,
        optional=frozenset().union(*[decision.optional for decision in pooled.decisions.values()]),
        wake_at_s=wake_at_s,
        memory=remember(pooled),
        cache=forget(pooled.cache, pooled.snapshot),
    )


def join_promises(pooled: PoolDecisions) -> dict[JobId, Promise]:
    """All pools' promises, each with its type; of one that spans types the plan of the pool that decided last."""
    promises = {}
    for device_type, decision in pooled.decisions.items():
        for job_id, promise in decision.promises.items():
            mix = pooled.mix_of(job_id)
            job = pooled.snapshot.jobs[job_id].job
            promises[job_id] = (
                replace(promise, device_type=device_type) if mix is None else widen_promise(job, mix, promise)
            )
    return promises


def remember(pooled: PoolDecisions) -> dict[str, Any] | None:
    """The memory with what the first pool has learnt; None if it has learnt nothing."""
    news = pooled.decisions[pooled.first].memory
    return None if news is None else {**pooled.snapshot.memory, MEMORY: {**pooled.memory, pooled.first: news}}


def forget(cache: PoolCache, snapshot: Snapshot) -> PoolCache:
    """The books without jobs that have ended."""
    if any(job_id not in snapshot.jobs for _, job_id in cache.seen):
        cache.seen = {key: known for key, known in cache.seen.items() if key[1] in snapshot.jobs}
    return cache


def answer_all(pooled: PoolDecisions) -> dict[JobId, Answer]:
    """One answer for each job that gets one: of the pool that admits it, else of all pools together."""
    heard: dict[JobId, list[Answer]] = {}
    for decision in pooled.decisions.values():
        for job_id, answer in decision.answers.items():
            heard.setdefault(job_id, []).append(answer)
    answers = {job_id: join_answers(pooled, job_id, given) for job_id, given in heard.items()}
    for job_id, view in pooled.snapshot.jobs.items():
        if view.status is Status.PENDING and view.job.best_effort:
            answers[job_id] = BEST_EFFORT
        elif view.status is Status.PENDING and job_id not in answers and not runs_in(pooled, view):
            answers[job_id] = refuse_types(view, pooled.snapshot.cluster)
    answers |= dict.fromkeys(pooled.spans, PROMISED)
    return {job_id: answer for job_id, answer in answers.items() if answer is not None}


def runs_in(pooled: PoolDecisions, view: JobView) -> bool:
    """Whether there is a pool that a job can run in."""
    return view.job.typed is not None and any(device_type in view.job.typed.curves for device_type in pooled.decisions)


def join_answers(pooled: PoolDecisions, job_id: JobId, given: list[Answer]) -> Answer | None:
    """The best of the answers; a job is declined only if all pools that could run it have declined it."""
    for answer in given:
        if answer.status is Status.ADMITTED:
            return answer
    waiting = [answer for answer in given if answer.status is Status.WAITLISTED]
    if waiting:
        return max(waiting, key=lambda answer: answer.answer_by_s)
    view = pooled.snapshot.jobs[job_id]
    typed = view.job.typed
    asked = sum(device_type in typed.curves for device_type in pooled.decisions) if typed is not None else 0
    if len(given) < asked:
        return None  # one of them lets it wait on
    return join_refusals(given)


def allocate(pooled: PoolDecisions, answers: Mapping[JobId, Answer]) -> dict[JobId, Devices]:
    """The devices of every job for which they change: as the pools decided, and best-effort jobs on what is left."""
    snapshot = pooled.snapshot
    pools = pools_of(snapshot.cluster)
    parts = {
        pool.device_type: {j: pool.widen(d) for j, d in pooled.decisions[pool.device_type].allocations.items()}
        for pool in pools
    }
    for job_id in pooled.moves:
        for part in parts.values():
            part.setdefault(job_id, ())
    held: dict[JobId, Devices] = {}
    for job_id in {job_id: None for part in parts.values() for job_id in part}:
        pieces = [part.get(job_id, _part(snapshot, job_id, device_type)) for device_type, part in parts.items()]
        held[job_id] = tuple(sorted(piece for devices in pieces for piece in devices))
    guests = [view for view in list_guests(snapshot) if answers.get(view.job.id, BEST_EFFORT).status is Status.ADMITTED]
    if guests:
        held |= seat_guests(pooled, guests, held)
    return {job_id: devices for job_id, devices in held.items() if devices != snapshot.jobs[job_id].devices}


def _part(snapshot: Snapshot, job_id: JobId, device_type: str) -> Devices:
    types = snapshot.cluster.node_types
    return tuple(piece for piece in snapshot.jobs[job_id].devices if types[piece.node] == device_type)


def list_guests(snapshot: Snapshot) -> list[JobView]:
    """The best-effort jobs, by priority, then in arrival order."""
    views = [view for view in snapshot.jobs.values() if view.job.best_effort and view.job.typed is not None]
    return sorted(views, key=lambda view: (-view.job.priority, view.job.index))


def seat_guests(
    pooled: PoolDecisions, guests: Iterable[JobView], held: Mapping[JobId, Devices]
) -> dict[JobId, Devices]:
    """Devices for the best-effort jobs, of what the promised jobs do not hold; nobody else is moved for them."""
    snapshot = pooled.snapshot
    cluster, guests = snapshot.cluster, list(guests)
    free = list(cluster.full_masks)
    names = {view.job.id for view in guests}
    for job_id, view in snapshot.jobs.items():
        if job_id not in names:
            for node, mask in held.get(job_id, view.devices):
                free[node] &= ~mask
    mixes = share_out(pooled.now_s, guests, count_free(free, cluster.node_types))
    own = {job_id: held.get(job_id, snapshot.jobs[job_id].devices) for job_id in mixes}
    return hold_loosely(cluster, free, own, mixes)


def count_free(free: Iterable[int], node_types: Iterable[str]) -> dict[str, int]:
    """How many devices of each type are free."""
    counts: dict[str, int] = {}
    for mask, device_type in zip(free, node_types, strict=True):
        counts[device_type] = counts.get(device_type, 0) + mask.bit_count()
    return counts
