"""EasyScale's cluster scheduling (SC 2023): every job starts small, and the largest speed-up per device grows first.

`easyscale-homo` keeps a job on the type it prefers, `easyscale-heter` lets jobs that may (D2) use any types at once.
Growth that did not help is returned, then a round deals out the devices (`rounds`). Unlike the published simulator it
scales down, preempts, returns devices, and counts the pause of every change: growth that does not pay for it is not
done, and where changes cost something the round is the best of several, each played out to the end (`outlooks`).
"""

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any

from springtide.core.decisions import Decision, JobView, Snapshot
from springtide.core.devices import Devices, NodeSlice
from springtide.core.jobs import Job, JobId
from springtide.core.mixes import Mix, TypedCurves
from springtide.placement.loose import hold_loosely
from springtide.policies.answers import answer_arrivals, remaining_views
from springtide.policies.outlooks import choose_round
from springtide.policies.proposals import Desk, Member, held_mix, meet, type_curve

HELPED = 1.02  # growth that speeds a job up by less than this is returned
LOOK_S = 60.0  # after so many seconds of running a growth is judged (EasyScale's round)
GROWN, LIMITS = "grown", "limits"  # memory: job -> [mix before, rate before, when to look]; job -> most devices

Kinds = Callable[[JobView, TypedCurves], tuple[tuple[str, ...], bool]]


def easyscale_homo(now_s: float, snapshot: Snapshot) -> Decision:
    """Every job on devices of one type: the one it prefers."""
    return schedule(now_s, snapshot, keep_one_kind)


def easyscale_heter(now_s: float, snapshot: Snapshot) -> Decision:
    """Jobs that may mix types use all of them, the others the one they prefer."""
    return schedule(now_s, snapshot, mix_if_allowed)


def keep_one_kind(view: JobView, speeds: TypedCurves) -> tuple[tuple[str, ...], bool]:
    """(types, whether several at once): the type it started on, else the preferred one, else any one."""
    only = view.home or speeds.preferred
    return (only,) if only else speeds.types, False


def mix_if_allowed(view: JobView, speeds: TypedCurves) -> tuple[tuple[str, ...], bool]:
    """(types, whether several at once): all types for a job that may mix them, else one."""
    return (speeds.types, True) if speeds.blend is not None else keep_one_kind(view, speeds)


def schedule(now_s: float, snapshot: Snapshot, kinds: Kinds) -> Decision:
    """Shares of every job from what runs and what is free."""
    answers = answer_arrivals(snapshot, smallest_gang)
    desk = set_desk(now_s, remaining_views(snapshot, answers), snapshot, kinds)
    memory = judge_growth(now_s, desk, snapshot.memory)
    desk = choose_round(now_s, desk, memory[LIMITS], weighs=is_weighing(desk, snapshot))
    changes = {job_id: dict(member.mix) for job_id, member in desk.members.items() if member.is_changing}
    note_growth(now_s, desk, changes, memory)
    looks = [look_s for _, _, look_s in memory[GROWN].values()]
    wake_at_s = min((look_s for look_s in looks if look_s > now_s), default=inf)
    allocations = place(snapshot, changes)
    return Decision(answers=answers, mixes=changes, allocations=allocations, memory=memory, wake_at_s=wake_at_s)


def place(snapshot: Snapshot, changes: Mapping[JobId, Mix]) -> dict[JobId, Devices]:
    """Devices for every job that changes, of those that are free or its own: no other job is paused for it."""
    own = {job_id: snapshot.jobs[job_id].devices for job_id in changes}
    free = list(snapshot.free_masks)
    for node, mask in (piece for devices in own.values() for piece in devices):
        free[node] |= mask & ~snapshot.leaving[node] if snapshot.leaving else mask
    return hold_loosely(snapshot.cluster, free, own, changes)


def smallest_gang(job: Job) -> int:
    """The fewest devices on which a job runs."""
    return min(curve.shares[0] for curve in job.typed.curves.values()) if job.typed else job.curve.shares[0]


def set_desk(now_s: float, views: Iterable[JobView], snapshot: Snapshot, kinds: Kinds) -> Desk:
    """Every job with what it holds, and what is free."""
    cluster = snapshot.cluster
    desk = Desk({}, dict.fromkeys(cluster.device_types, 0))
    for kind, mask in zip(cluster.node_types, snapshot.free_masks, strict=True):
        desk.free[kind] += mask.bit_count()
    for view in views:
        speeds = view.job.typed or type_curve(view.job.curve, cluster.device_types)
        member = desk.members[view.job.id] = meet(now_s, view, speeds, *kinds(view, speeds))
        if snapshot.leaving:
            leave(desk, member, snapshot)
    return desk


def is_weighing(desk: Desk, snapshot: Snapshot) -> bool:
    """Whether changes are to be weighed: they cost a pause, and no device is borrowed, so that one can look ahead."""
    ours = sum(desk.free.values()) + sum(member.size for member in desk.members.values())
    costs = any(member.view.job.overhead.pause_s(1) > 0 for member in desk.members.values())
    return costs and ours == snapshot.cluster.total


def leave(desk: Desk, member: Member, snapshot: Snapshot) -> None:
    """Take from a job what its owner wants back, and what it then cannot use; it may get others instead."""
    staying = [NodeSlice(node, mask & ~snapshot.leaving[node]) for node, mask in member.view.devices]
    kept = snapshot.cluster.count_types(tuple(staying))
    if sum(kept.values()) == member.size:
        return
    member.must_change = True
    runs = member.speeds.rate(kept) > 0
    for kind, count in list(member.mix.items()):
        left = kept.get(kind, 0)
        member.add(kind, (left if runs else member.speeds.curves[kind].share_within(left)) - count)
    if not member.rate:
        member.mix.clear()
    for kind, count in kept.items():
        desk.free[kind] += count - member.mix.get(kind, 0)


def judge_growth(now_s: float, desk: Desk, memory: Mapping[str, Any]) -> dict[str, Any]:
    """Return what jobs grew by without running faster, and never let them grow as far again."""
    grown = {job_id: entry for job_id, entry in memory.get(GROWN, {}).items() if job_id in desk.members}
    limits = {job_id: most for job_id, most in memory.get(LIMITS, {}).items() if job_id in desk.members}
    for job_id, (before, rate, look_s) in list(grown.items()):
        member = desk.members[JobId(job_id)]
        if look_s > now_s and member.mix:
            continue
        del grown[job_id]
        extra = {kind: count - before.get(kind, 0) for kind, count in member.mix.items()}
        if member.rate < HELPED * rate and all(count >= 0 for count in extra.values()) and any(extra.values()):
            limits[job_id] = member.size - 1
            for kind, count in extra.items():
                desk.give(member, kind, -count)
    return {GROWN: grown, LIMITS: limits}


def note_growth(now_s: float, desk: Desk, changes: Mapping[JobId, Mix], memory: Mapping[str, Any]) -> None:
    """Remember what running jobs had before they grew, to see later whether it helped."""
    for job_id, mix in changes.items():
        view = desk.members[job_id].view
        memory[GROWN].pop(job_id, None)
        if view.share and sum(mix.values()) > view.share:
            held = dict(held_mix(view, desk.members[job_id].speeds.types))
            look_s = now_s + view.job.overhead.pause_s(sum(mix.values())) + LOOK_S
            memory[GROWN][job_id] = [held, view.progress.rate, look_s]
