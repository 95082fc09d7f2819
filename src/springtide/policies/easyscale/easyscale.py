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
from springtide.core.typed_curves import Mix, TypedCurves
from springtide.placement.scattered import hold_loosely
from springtide.policies.common.answers import answer_arrivals, remaining_views
from springtide.policies.easyscale.lookahead import choose_round
from springtide.policies.easyscale.proposals import DraftAllocation, DraftJob, held_mix, meet, type_curve

HELPED = 1.02  # growth that speeds a job up by less than this is returned
LOOK_S = 60.0  # after so many seconds of running a growth is judged (EasyScale's round)
GROWN, LIMITS = "grown", "limits"  # memory: job -> [mix before, rate before, when to look]; job -> most devices

Kinds = Callable[[JobView, TypedCurves], tuple[tuple[str, ...], bool]]


def easyscale_homo(now_s: float, snapshot: Snapshot) -> Decision:
    """Every job on devices of one type: the one it prefers."""
    return schedule(now_s, snapshot, keep_one_type)


def easyscale_heter(now_s: float, snapshot: Snapshot) -> Decision:
    """Jobs that may mix types use all of them, the others the one they prefer."""
    return schedule(now_s, snapshot, mix_if_allowed)


def keep_one_type(view: JobView, speeds: TypedCurves) -> tuple[tuple[str, ...], bool]:
    """(types, whether several at once): the type it started on, else the preferred one, else any one."""
    only = view.first_device_type or speeds.preferred
    return (only,) if only else speeds.types, False


def mix_if_allowed(view: JobView, speeds: TypedCurves) -> tuple[tuple[str, ...], bool]:
    """(types, whether several at once): all types for a job that may mix them, else one."""
    return (speeds.types, True) if speeds.blend is not None else keep_one_type(view, speeds)


def schedule(now_s: float, snapshot: Snapshot, device_types: Kinds) -> Decision:
    """Shares of every job from what runs and what is free."""
    answers = answer_arrivals(snapshot, smallest_gang)
    draft = draft_allocation(now_s, remaining_views(snapshot, answers), snapshot, device_types)
    memory = judge_growth(now_s, draft, snapshot.memory)
    draft = choose_round(now_s, draft, memory[LIMITS], weighs=is_weighing(draft, snapshot))
    changes = {job_id: dict(entry.mix) for job_id, entry in draft.entries.items() if entry.is_changing}
    note_growth(now_s, draft, changes, memory)
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


def draft_allocation(
    now_s: float, views: Iterable[JobView], snapshot: Snapshot, device_types: Kinds
) -> DraftAllocation:
    """Every job with what it holds, and what is free."""
    cluster = snapshot.cluster
    draft = DraftAllocation({}, dict.fromkeys(cluster.device_types, 0))
    for device_type, mask in zip(cluster.node_types, snapshot.free_masks, strict=True):
        draft.free[device_type] += mask.bit_count()
    for view in views:
        speeds = view.job.typed or type_curve(view.job.curve, cluster.device_types)
        entry = draft.entries[view.job.id] = meet(now_s, view, speeds, *device_types(view, speeds))
        if snapshot.leaving:
            leave(draft, entry, snapshot)
    return draft


def is_weighing(draft: DraftAllocation, snapshot: Snapshot) -> bool:
    """Whether changes are to be weighed: they cost a pause, and no device is borrowed, so that one can look ahead."""
    ours = sum(draft.free.values()) + sum(entry.size for entry in draft.entries.values())
    costs = any(entry.view.job.overhead.pause_s(1) > 0 for entry in draft.entries.values())
    return costs and ours == snapshot.cluster.total


def leave(draft: DraftAllocation, entry: DraftJob, snapshot: Snapshot) -> None:
    """Take from a job what its owner wants back, and what it then cannot use; it may get others instead."""
    staying = [NodeSlice(node, mask & ~snapshot.leaving[node]) for node, mask in entry.view.devices]
    kept = snapshot.cluster.count_types(tuple(staying))
    if sum(kept.values()) == entry.size:
        return
    entry.must_change = True
    runs = entry.speeds.rate(kept) > 0
    for device_type, count in list(entry.mix.items()):
        left = kept.get(device_type, 0)
        entry.add(device_type, (left if runs else entry.speeds.curves[device_type].share_within(left)) - count)
    if not entry.rate:
        entry.mix.clear()
    for device_type, count in kept.items():
        draft.free[device_type] += count - entry.mix.get(device_type, 0)


def judge_growth(now_s: float, draft: DraftAllocation, memory: Mapping[str, Any]) -> dict[str, Any]:
    """Return what jobs grew by without running faster, and never let them grow as far again."""
    grown = {job_id: entry for job_id, entry in memory.get(GROWN, {}).items() if job_id in draft.entries}
    limits = {job_id: most for job_id, most in memory.get(LIMITS, {}).items() if job_id in draft.entries}
    for job_id, (before, rate, look_s) in list(grown.items()):
        entry = draft.entries[JobId(job_id)]
        if look_s > now_s and entry.mix:
            continue
        del grown[job_id]
        extra = {device_type: count - before.get(device_type, 0) for device_type, count in entry.mix.items()}
        if entry.rate < HELPED * rate and all(count >= 0 for count in extra.values()) and any(extra.values()):
            limits[job_id] = entry.size - 1
            for device_type, count in extra.items():
                draft.give(entry, device_type, -count)
    return {GROWN: grown, LIMITS: limits}


def note_growth(now_s: float, draft: DraftAllocation, changes: Mapping[JobId, Mix], memory: Mapping[str, Any]) -> None:
    """Remember what running jobs had before they grew, to see later whether it helped."""
    for job_id, mix in changes.items():
        view = draft.entries[job_id].view
        memory[GROWN].pop(job_id, None)
        if view.share and sum(mix.values()) > view.share:
            held = dict(held_mix(view, draft.entries[job_id].speeds.types))
            look_s = now_s + view.job.overhead.pause_s(sum(mix.values())) + LOOK_S
            memory[GROWN][job_id] = [held, view.progress.rate, look_s]
