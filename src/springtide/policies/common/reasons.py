"""Why the devices of each job change, read from a whole decision: who gains, who loses, and what is planned.

`policies.decide` completes with it what a policy leaves out; a reason that a policy gives itself stays. Only jobs whose
devices change are looked at.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from springtide.core.decisions import Cause, Decision, JobView, Reason, Snapshot, Status
from springtide.core.devices import Devices, count_devices
from springtide.core.jobs import JobId


class DeviceChange(NamedTuple):
    """A job, the devices it gets instead of those it holds, and how many more they are."""

    view: JobView
    devices: Devices
    gain: int


def complete_reasons(now_s: float, snapshot: Snapshot, decision: Decision, promises: bool) -> Decision:
    """The decision with a reason for every job whose devices change; `promises` says whether its policy makes any."""
    changes = [
        DeviceChange(view, devices, count_devices(devices) - view.share)
        for view, devices in ((snapshot.jobs[job_id], devices) for job_id, devices in decision.allocations.items())
        if devices != view.devices
    ]
    if all(change.view.job.id in decision.reasons for change in changes):
        return decision
    gainers = [change for change in changes if change.gain > 0]
    if len(gainers) < len(changes):  # somebody loses: for whom?
        gainers.sort(key=lambda change: rank_gain(decision, change))
    reasons = {}
    for change in changes:
        job_id = change.view.job.id
        if job_id in decision.reasons:
            reasons[job_id] = decision.reasons[job_id]
        elif change.gain > 0:
            reasons[job_id] = Reason(name_gain(decision, change.view, promises))
        else:
            reasons[job_id] = explain_loss(now_s, snapshot, decision, change, gainers)
    return replace(decision, reasons=reasons)


def rank_gain(decision: Decision, change: DeviceChange) -> tuple[bool, float, int]:
    """The place of a job among those that gain: what must be before growth into spare devices, then by deadline."""
    job = change.view.job
    return is_spare(decision, change.view), job.deadline_s, job.index


def is_spare(decision: Decision, view: JobView) -> bool:
    """Whether what a job gains is growth beyond the share that its plan needs."""
    return view.share > 0 and view.job.id in decision.optional


def name_gain(decision: Decision, view: JobView, promises: bool) -> Cause:
    """Why a job gets more devices: its plan, devices to spare, or its turn where nothing is planned."""
    if is_spare(decision, view):
        return Cause.SPARE
    if view.promise is not None or view.job.id in decision.promises:
        return Cause.PLANNED
    return Cause.SPARE if promises else Cause.TURN


def explain_loss(
    now_s: float, snapshot: Snapshot, decision: Decision, change: DeviceChange, gainers: Sequence[DeviceChange]
) -> Reason:
    """Why a job gets fewer devices, or as many elsewhere: its owner's claim, another job, or what is planned."""
    view, job_id = change.view, change.view.job.id
    if snapshot.leaving and any(snapshot.leaving[node] & mask for node, mask in view.devices):
        return Reason(Cause.CLAIMED)
    if job_id in decision.answers and decision.answers[job_id].status is Status.DECLINED:
        return Reason(Cause.DROPPED)
    other = find_gainer(snapshot, change, gainers)
    if change.gain == 0:
        return Reason(Cause.MOVED, other)
    if other is not None:
        return Reason(Cause.YIELDS, other)
    promise = decision.promises.get(job_id, view.promise)
    is_planned = promise is not None and promise.plan.share_at(now_s) == view.share + change.gain
    return Reason(Cause.PLANNED if is_planned else Cause.NEEDLESS)


def find_gainer(snapshot: Snapshot, change: DeviceChange, gainers: Sequence[DeviceChange]) -> JobId | None:
    """The job for which another loses or changes devices: of those that gain on its types, the most urgent.

    For a job that is moved, the most urgent of those that get one of its devices, if there is any.
    """
    types = snapshot.cluster.node_types
    left = {types[node] for node, _ in change.view.devices}
    first: JobId | None = None
    for gainer in gainers:
        if any(types[node] in left for node, _ in gainer.devices):
            if change.gain or overlap(gainer.devices, change.view.devices):
                return gainer.view.job.id
            first = first or gainer.view.job.id
    return first


def overlap(first: Devices, second: Devices) -> bool:
    """Whether two sets have a device in common."""
    masks = dict(first)
    return any(masks.get(node, 0) & mask for node, mask in second)
