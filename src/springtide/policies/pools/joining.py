"""`springtide` on clusters of several device types: what the pools promise, and the rest for best-effort jobs.

Puts the decisions of the pools together into one: answers, promises with their type, and devices. What promises leave
over is shared out among best-effort jobs over all types as EasyScale does it: one device for each by priority and in
order of arrival, then growth, in the round that lets them all end soonest. Unlike there, a job that keeps to one type
may start on any; devices that promised jobs need are given up at once; jobs of several users start in the order of
`planning.best_effort`, and who has starved goes first. On a cluster of one type it has no part.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

from springtide.core.decisions import Answer, Decision, JobView, Snapshot, Status
from springtide.core.devices import Devices, count_devices
from springtide.core.jobs import JobId
from springtide.core.typed_curves import Mix, TypedCurves
from springtide.placement.scattered import hold_loosely
from springtide.placement.type_pools import pools_of
from springtide.policies.easyscale.proposals import DraftAllocation, draft_job
from springtide.policies.easyscale.rounds import choose_round
from springtide.policies.elasticflow import BEST_EFFORT
from springtide.policies.planning.admission import Propose
from springtide.policies.planning.best_effort import (
    USAGE,
    Usage,
    next_starving_s,
    rank,
    rank_steadily,
    read_usage,
    weigh_jobs,
    write_usage,
)
from springtide.policies.pools.partition import MEMORY, PoolCache, can_run, join_refusals, refuse_types
from springtide.policies.pools.pool_decisions import PoolDecisions, decide_in_turn
from springtide.policies.pools.transfers import find_homeless, list_pressing, make_way

ASKERS = 2  # jobs for which others are asked to change their pool, per decision


def decide_pools(now_s: float, snapshot: Snapshot, propose: Propose) -> Decision:
    """Promises within the pools, then best-effort jobs over all of them."""
    moves = find_homeless(snapshot)
    pooled = decide_in_turn(now_s, snapshot, propose, moves)
    if not pooled.has_moved:
        pooled = decide_in_turn(now_s, snapshot, propose, {})
    for job_id in list_pressing(pooled)[:ASKERS]:
        pooled = make_way(pooled, job_id, propose) or pooled
    return conclude(pooled)


def conclude(pooled: PoolDecisions) -> Decision:
    """All pools' decisions as one, with devices for the best-effort jobs."""
    answers = answer_all(pooled)
    usage = read_shared_usage(pooled)
    left_over = [view for view in rank_best_effort(pooled, usage) if is_admitted(view, answers)]
    allocations = allocate(pooled, left_over)
    running = {view.job.id: 1 for view in left_over if allocations.get(view.job.id, view.devices)}
    starving_s = next_starving_s(pooled.now_s, left_over, running)
    wake_at_s = min(starving_s, *[decision.wake_at_s for decision in pooled.decisions.values()])
    return Decision(
        answers=answers,
        promises={
            job_id: replace(promise, device_type=device_type)
            for device_type, decision in pooled.decisions.items()
            for job_id, promise in decision.promises.items()
        },
        allocations=allocations,
        optional=frozenset().union(*[decision.optional for decision in pooled.decisions.values()]),
        wake_at_s=wake_at_s,
        memory=remember(pooled, usage, allocations),
        cache=forget(pooled.cache, pooled.snapshot),
    )


def read_shared_usage(pooled: PoolDecisions) -> Usage | None:
    """What users have used up to now, where best-effort jobs of several share the cluster."""
    snapshot = pooled.snapshot
    if USAGE not in snapshot.memory and not any(view.job.best_effort for view in snapshot.jobs.values()):
        return None
    return read_usage(snapshot.memory, pooled.now_s, snapshot.jobs.values())


def remember(pooled: PoolDecisions, usage: Usage | None, allocations: Mapping[JobId, Devices]) -> dict[str, Any] | None:
    """The memory with what the first pool has learnt and users have used; None if nothing of it is new."""
    news, memory = pooled.decisions[pooled.first].memory, pooled.snapshot.memory
    learnt = None if news is None else {**memory, MEMORY: {**pooled.memory, pooled.first: news}}
    if usage is None:
        return learnt
    shares = {job_id: count_devices(devices) for job_id, devices in allocations.items()}
    return {**(learnt or memory), USAGE: write_usage(usage, pooled.snapshot.jobs.values(), shares)}


def forget(cache: PoolCache, snapshot: Snapshot) -> PoolCache:
    """The cache without jobs that have ended."""
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
    asked = 1 if view.mix else sum(can_run(view, device_type) for device_type in pooled.decisions)
    if len(given) < asked:
        return None  # one of them lets it wait on
    return join_refusals(given)


def allocate(pooled: PoolDecisions, left_over: Sequence[JobView]) -> dict[JobId, Devices]:
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
    if left_over:
        held |= place_best_effort(pooled, left_over, held)
    return {job_id: devices for job_id, devices in held.items() if devices != snapshot.jobs[job_id].devices}


def _part(snapshot: Snapshot, job_id: JobId, device_type: str) -> Devices:
    types = snapshot.cluster.node_types
    return tuple(piece for piece in snapshot.jobs[job_id].devices if types[piece.node] == device_type)


def rank_best_effort(pooled: PoolDecisions, usage: Usage | None) -> list[JobView]:
    """The best-effort jobs: by priority, then who has starved, then as users take turns, then in arrival order."""
    now_s, jobs = pooled.now_s, pooled.snapshot.jobs.values()
    views = [view for view in jobs if view.job.best_effort and view.job.typed is not None]
    weights = [0.0] * len(views) if usage is None else weigh_jobs(now_s, views, usage)
    ranked = [(*rank(view, now_s), -weight, view.job.index, view) for view, weight in zip(views, weights, strict=True)]
    return [view for *_, view in sorted(ranked, key=itemgetter(0, 1, 2, 3))]


def is_admitted(view: JobView, answers: Mapping[JobId, Answer]) -> bool:
    """Whether a best-effort job may run."""
    return answers.get(view.job.id, BEST_EFFORT).status is Status.ADMITTED


def place_best_effort(
    pooled: PoolDecisions, views: Sequence[JobView], held: Mapping[JobId, Devices]
) -> dict[JobId, Devices]:
    """Devices for the best-effort jobs, of what the promised jobs do not hold; nobody else is moved for them."""
    snapshot = pooled.snapshot
    cluster = snapshot.cluster
    free = list(cluster.full_masks)
    names = {view.job.id for view in views}
    for job_id, view in snapshot.jobs.items():
        if job_id not in names:
            for node, mask in held.get(job_id, view.devices):
                free[node] &= ~mask
    mixes = share_out(pooled.now_s, views, count_free(free, cluster.node_types))
    own = {job_id: held.get(job_id, snapshot.jobs[job_id].devices) for job_id in mixes}
    return hold_loosely(cluster, free, own, mixes)


def count_free(free: Iterable[int], node_types: Iterable[str]) -> dict[str, int]:
    """How many devices of each type are free."""
    counts: dict[str, int] = {}
    for mask, device_type in zip(free, node_types, strict=True):
        counts[device_type] = counts.get(device_type, 0) + mask.bit_count()
    return counts


def share_out(now_s: float, views: Iterable[JobView], free: Mix) -> dict[JobId, Mix]:
    """The mix of each best-effort job, those that come first before others; `free` counts what they hold, too."""
    draft = DraftAllocation({}, dict(free))
    for view in views:
        if view.job.typed is not None:
            device_types = tuple(
                device_type for device_type in list_device_types(view, view.job.typed) if device_type in free
            )
            entry = draft_job(now_s, view, view.job.typed, device_types, view.job.typed.blend is not None)
            _, entry.starving = rank_steadily(view, now_s)
            draft.enter(entry)
    for device_type in draft.free:
        yield_devices(draft, device_type)
    return choose_round(now_s, draft, {}, weighs=True).list_mixes()


def list_device_types(view: JobView, typed: TypedCurves) -> tuple[str, ...]:
    """The types a job may run on now; one that may not change its type keeps to the first."""
    return (view.first_device_type,) if view.first_device_type and not typed.movable else typed.types


def yield_devices(draft: DraftAllocation, device_type: str) -> None:
    """Take back devices of a type that others need: where it costs the least speed, all of the last job's if needed."""
    while draft.free[device_type] < 0:
        holders = [member for member in draft.entries.values() if device_type in member.mix]
        cuts = [(cut, member) for member in holders for cut in draft.propose_cuts(member, 1, {device_type: 1})]
        if cuts:
            cut, victim = min(cuts, key=lambda entry: entry[0])
            draft.give(victim, device_type, -cut.devices)
        else:
            draft.clear(holders[-1])
