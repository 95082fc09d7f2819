"""Policies that know no device types, on clusters of several: the devices of each type are a cluster of their own.

Every job belongs to one pool: where it runs or ran, or is promised its finish; else where it was put when it came. The
policy decides for each pool alone, with a memory and a cache for each, and what it decides is joined. A newcomer goes
to the pool that suits it best and, if it is declined there, to the next; a job that nothing is promised and that has
not started changes to a pool where it could start at once. Once started, a job stays, at level D2 too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from springtide.core.decisions import Answer, Changes, Decide, Decision, JobView, Promise, Snapshot, Status
from springtide.core.devices import Cluster, Devices, count_devices
from springtide.core.jobs import JobId
from springtide.core.world import reallocate
from springtide.placement.type_pools import Pool, pools_of
from springtide.policies.common.answers import WELCOME
from springtide.policies.common.gangs import round_share

MEMORY = "pools"  # key in a policy's memory: {device type: what its pool remembers}
MEMBERS = "members"  # key in the memory: {job: pool} of those that have not started
PROMISED = "promised"  # key in the memory: those of them that must stay, because their finish is promised there


@dataclass(slots=True)
class PoolCache:
    """What one decision leaves to the next: what each pool has cached, and each job as a pool saw it."""

    pools: dict[str, Any] = field(default_factory=dict)
    seen: dict[tuple[str, JobId], tuple[JobView, JobView]] = field(default_factory=dict)


def is_mixed(snapshot: Snapshot) -> bool:
    """Whether all jobs have speeds by device type; there may be devices of one type only, while others are drained."""
    return bool(snapshot.jobs) and all(view.job.typed is not None for view in snapshot.jobs.values())


def is_partitioned(snapshot: Snapshot) -> bool:
    """Whether jobs have speeds by device type; without any jobs, whether those before them had."""
    return is_mixed(snapshot) if snapshot.jobs else MEMBERS in snapshot.memory


def decide_apart(policy: Decide, now_s: float, snapshot: Snapshot) -> Decision:
    """What a policy decides for the devices of each type alone; `policy` places and checks what it decides."""
    partition = open_partition(now_s, snapshot)
    pending = set(partition.pools)
    while pending:
        for device_type in [name for name in partition.pools if name in pending]:
            partition.decisions[device_type] = policy(now_s, partition.narrow(device_type))
        pending = partition.pass_on_declined(pending)
    return join_decisions(partition)


@dataclass(slots=True)
class Partition:
    """One decision in the making: who belongs to which pool, and what the pools have decided so far."""

    now_s: float
    snapshot: Snapshot
    pools: Mapping[str, Pool]
    cache: PoolCache
    members: dict[JobId, str] = field(default_factory=dict)
    choices: dict[JobId, list[str]] = field(default_factory=dict)  # pools that a newcomer has not been put into yet
    refusals: dict[JobId, list[Answer]] = field(default_factory=dict)
    decisions: dict[str, Decision] = field(default_factory=dict)

    def pass_on_declined(self, decided: Iterable[str]) -> set[str]:
        """Put each newcomer that these pools decline into its next one; returns the pools that must decide anew.

        It ends, because nobody is put into a pool twice. The pool that declined need not decide anew without the job.
        """
        joined = set()
        for job_id, choices in self.choices.items():
            device_type = self.members[job_id]
            answer = self.decisions[device_type].answers[job_id]
            if device_type in decided and answer.status is Status.DECLINED:
                refusal = replace(answer, sentence=f"on {device_type}: {answer.sentence}")
                self.refusals.setdefault(job_id, []).append(refusal)
                if choices:
                    self.members[job_id] = choices.pop(0)
                    joined.add(self.members[job_id])
        return joined

    def narrow(self, device_type: str) -> Snapshot:
        """The world as a pool sees it: its nodes and its members, as on a cluster of one type."""
        pool, snapshot = self.pools[device_type], self.snapshot
        jobs = {
            job_id: self.narrow_view(pool, view)
            for job_id, view in snapshot.jobs.items()
            if self.members.get(job_id) == device_type
        }
        free = [snapshot.free_masks[node] for node in pool.nodes]
        for view in filter(is_spread, snapshot.jobs.values()):
            for node, mask in pool.narrow(view.devices):
                free[node] |= mask
        leaving = tuple([snapshot.leaving[node] for node in pool.nodes]) if snapshot.leaving else ()
        arrived = tuple([job_id for job_id in snapshot.changes.arrived if job_id in jobs])
        changes = Changes(snapshot.changes.finished, arrived)
        memory = snapshot.memory.get(MEMORY, {}).get(device_type, {})
        return Snapshot(pool.cluster, jobs, tuple(free), changes, memory, self.cache.pools.get(device_type), leaving)

    def narrow_view(self, pool: Pool, view: JobView) -> JobView:
        """A job as its pool sees it; the same object as long as nothing changes, for what is cached of it."""
        key = (pool.device_type, view.job.id)
        known = self.cache.seen.get(key)
        if known is None or known[0] is not view:
            # one that is spread over several types starts in its pool anew
            whole = reallocate(view, (), self.now_s) if is_spread(view) else view
            known = self.cache.seen[key] = (view, narrow_member(pool, whole))
        return known[1]


def is_spread(view: JobView) -> bool:
    """Whether a job holds devices of several types, as a policy before this one may have left it."""
    return view.mix is not None and len(view.mix) > 1


def narrow_member(pool: Pool, view: JobView) -> JobView:
    """A job with its speeds, devices and promise in a pool, as on a cluster of one type."""
    assert view.job.typed is not None
    job = replace(view.job, curve=view.job.typed.curves[pool.device_type], typed=None)
    devices, promise = pool.narrow(view.devices), view.promise
    if promise is not None and promise.device_type:
        promise = replace(promise, device_type="") if promise.device_type == pool.device_type else None
    return replace(
        view, job=job, devices=devices, share=count_devices(devices), promise=promise, mix=None, first_device_type=""
    )


@dataclass(slots=True)
class Room:
    """What a pool has: all devices, those free for who waits, and those that its members ask for."""

    total: int
    free: int
    asked: int = 0


def open_partition(now_s: float, snapshot: Snapshot) -> Partition:
    """The pools with their members, before anybody decides."""
    pools = {pool.device_type: pool for pool in pools_of(snapshot.cluster)}
    old = snapshot.cache if isinstance(snapshot.cache, PoolCache) else PoolCache()
    seen = {key: known for key, known in old.seen.items() if key[1] in snapshot.jobs}
    partition = Partition(now_s, snapshot, pools, PoolCache(dict(old.pools), seen))
    remembered = snapshot.memory.get(MEMBERS, {})
    for job_id, view in snapshot.jobs.items():
        home = find_home(view, remembered.get(job_id, ""), pools)
        if home:
            partition.members[job_id] = home
    rooms = count_rooms(partition)
    fixed = set(snapshot.memory.get(PROMISED, ()))
    for view in snapshot.jobs.values():
        if not view.share or is_spread(view):
            put_into_pool(partition, rooms, view, view.job.id in fixed or view.promise is not None)
    return partition


def find_home(view: JobView, remembered: str, pools: Mapping[str, Pool]) -> str:
    """The pool that a job belongs to, empty if to none yet: where it runs, is promised, ran, or was put."""
    held = next(iter(view.mix), "") if view.mix and not is_spread(view) else ""
    promised = view.promise.device_type if view.promise is not None else ""
    found = (held, promised, view.first_device_type, remembered)
    return next((device_type for device_type in found if device_type in pools and can_run(view, device_type)), "")


def can_run(view: JobView, device_type: str) -> bool:
    """Whether a job may run on a type at all, after what it ran on first."""
    typed = view.job.typed
    return typed is not None and not typed.objection({device_type: 1}, view.first_device_type)


def count_rooms(partition: Partition) -> dict[str, Room]:
    """What each pool has for those that wait."""
    masks = partition.snapshot.free_masks
    rooms = {
        device_type: Room(pool.cluster.total, sum(masks[node].bit_count() for node in pool.nodes))
        for device_type, pool in partition.pools.items()
    }
    for job_id, device_type in partition.members.items():
        rooms[device_type].asked += ask(partition.snapshot.jobs[job_id], device_type)
    return rooms


def ask(view: JobView, device_type: str) -> int:
    """The devices of a type that a job asks for."""
    assert view.job.typed is not None
    return round_share(view.job.typed.curves[device_type], view.job.requested)


def put_into_pool(partition: Partition, rooms: dict[str, Room], view: JobView, fixed: bool) -> None:
    """Keep a waiting job where it is if it must stay or could start there; else put it where it suits best.

    One that cannot start anywhere at once stays. Whoever changes pools is unknown to what both have cached.
    """
    job_id, home = view.job.id, partition.members.get(view.job.id, "")
    is_full = not any(room.free for device_type, room in rooms.items() if device_type != home)
    stays = fixed or is_full or view.first_device_type in partition.pools or starts_now(view, home, rooms)
    if not (home and stays):
        choices = rank_pools(partition.now_s, view, partition.pools, rooms)
        best = choices[0] if choices else ""
        if not home and best:
            partition.members[job_id] = best
            rooms[best].asked += ask(view, best)
            if job_id in partition.snapshot.changes.arrived:
                partition.choices[job_id] = choices[1:]
        elif home and starts_now(view, best, rooms):
            partition.members[job_id] = best
            rooms[home].asked -= ask(view, home)
            rooms[best].asked += ask(view, best)
            partition.cache.pools.pop(home, None)
            partition.cache.pools.pop(best, None)
    taken = partition.members.get(job_id, "")
    if starts_now(view, taken, rooms):
        rooms[taken].free -= ask(view, taken)


def starts_now(view: JobView, device_type: str, rooms: Mapping[str, Room]) -> bool:
    """Whether a pool has as many devices free as a job asks for."""
    return bool(device_type) and ask(view, device_type) <= rooms[device_type].free


def rank_pools(now_s: float, view: JobView, pools: Iterable[str], rooms: Mapping[str, Room]) -> list[str]:
    """The pools a job may run in, or the one it prefers, best first: in time if alone, starts at once, fastest, freest.

    How fast counts who is there: at the speed it has on what it asks for, for the part of the time that is its own.
    """
    job, typed = view.job, view.job.typed
    assert typed is not None
    allowed = [device_type for device_type in pools if can_run(view, device_type)]

    def place(device_type: str) -> tuple[bool, bool, float, int]:
        room, share, curve = rooms[device_type], ask(view, device_type), typed.curves[device_type]
        is_late = now_s + replace(job, curve=curve, work=view.progress.work_left).alone_s(room.total) > job.deadline_s
        speed = curve.rate(share) * min(1.0, room.total / (room.asked + share))
        return is_late, share > room.free, -speed, -room.free

    return [typed.preferred] if typed.preferred in allowed else sorted(allowed, key=place)


def join_decisions(partition: Partition) -> Decision:
    """All pools' decisions as one; each pool speaks for its members."""
    snapshot = partition.snapshot
    answers: dict[JobId, Answer] = {}
    promises: dict[JobId, Promise] = {}
    allocations: dict[JobId, Devices] = {view.job.id: () for view in filter(is_spread, snapshot.jobs.values())}
    for device_type, decision in partition.decisions.items():
        pool = partition.pools[device_type]
        own = {job_id for job_id, home in partition.members.items() if home == device_type}
        answers |= {job_id: answer for job_id, answer in decision.answers.items() if job_id in own}
        promises |= {
            job_id: replace(promise, device_type=device_type)
            for job_id, promise in decision.promises.items()
            if job_id in own
        }
        allocations |= {job_id: pool.widen(devices) for job_id, devices in decision.allocations.items()}
    for job_id, refusals in partition.refusals.items():
        if answers[job_id].status is Status.DECLINED:
            answers[job_id] = join_refusals(refusals)
    for job_id in snapshot.changes.arrived:
        if job_id not in partition.members:
            view = snapshot.jobs[job_id]
            answers[job_id] = WELCOME if view.job.best_effort else refuse_types(view, snapshot.cluster)
    return Decision(
        answers=answers,
        promises=promises,
        allocations=allocations,
        reasons={job_id: why for decision in partition.decisions.values() for job_id, why in decision.reasons.items()},
        wake_at_s=min(decision.wake_at_s for decision in partition.decisions.values()),
        memory=remember(partition, answers, allocations),
        cache=PoolCache({name: decision.cache for name, decision in partition.decisions.items()}, partition.cache.seen),
    )


def join_refusals(given: list[Answer]) -> Answer:
    """A refusal for want of room if room was what one pool lacked, with the best offers of all."""
    told = next((answer for answer in given if answer.crowded), given[0])
    offers = [offer for answer in given for offer in answer.offers]
    best = [
        *sorted(offers, key=lambda offer: (-offer.work, offer.deadline_s))[:1],
        *sorted(offers, key=lambda offer: (offer.deadline_s, -offer.work))[:1],
    ]
    return replace(told, offers=tuple(dict.fromkeys(best)))


def refuse_types(view: JobView, cluster: Cluster) -> Answer:
    """A refusal of a job that runs on none of the types there are."""
    types = view.job.typed.types if view.job.typed is not None else ()
    sentence = f"runs on {', '.join(types)}; the cluster has {', '.join(cluster.device_types)}"
    return Answer(Status.DECLINED, "no_device_type", sentence)


def remember(
    partition: Partition, answers: Mapping[JobId, Answer], allocations: Mapping[JobId, Devices]
) -> dict[str, Any] | None:
    """What the pools remember, and where those belong who have not started; None if that is as it was."""
    memory = partition.snapshot.memory
    waiting = {
        job_id: device_type
        for job_id, device_type in partition.members.items()
        if partition.snapshot.jobs[job_id].first_device_type not in partition.pools and not allocations.get(job_id)
        if job_id not in answers or answers[job_id].status is not Status.DECLINED
    }
    before = set(memory.get(PROMISED, ()))
    promised = [job_id for job_id in waiting if job_id in before or (job_id in answers and answers[job_id].promised)]
    learnt = {name: decision.memory for name, decision in partition.decisions.items() if decision.memory is not None}
    after = {MEMORY: {**memory.get(MEMORY, {}), **learnt}, MEMBERS: waiting, PROMISED: promised}
    return None if after == memory else after
