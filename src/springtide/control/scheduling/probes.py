"""Probes that find no device: the job is waitlisted with a time, measured as soon as one is free, or declined then.

A probe runs on free or best-effort devices only, so it may have to wait for promises. What a probe measures and how
long it takes is in `arrivals` and `orders`; what becomes of its result in `hearings`.
"""

from math import inf

from springtide.control.scheduling import device_types, effects, speeds, submissions
from springtide.control.scheduling.context import Context
from springtide.control.scheduling.instructions import PROBE_S
from springtide.control.storage.records import JobRecord, State
from springtide.core.decisions import Plan
from springtide.core.durations import show_instant, show_span

NO_DEVICE = "no_device_for_probe"
#: A probe begun this long before the deadline still ends before it.
LONGEST_S = submissions.PROBE_START_S + PROBE_S
MOST_WAIT_S = 600.0


def settle(platform: Context) -> list[str]:
    """After a decision: waitlist the jobs whose probes hold no device, and take back those whose probes do.

    Returns the jobs that are measured well enough and now wait for an answer.
    """
    measured = []
    for job_id in [str(key) for key in platform.world.jobs if key.startswith(submissions.PROBE_PREFIX)]:
        record = platform.book.jobs[job_id.removeprefix(submissions.PROBE_PREFIX)]
        if record.devices and record.state is State.WAITLISTED:
            sentence = "a device is free now; a probe of at most 15 s measures its speed"
            platform.book.change(record.id, state=State.PROBING, reason="unknown_speed", sentence=sentence)
        elif not record.devices and record.state is State.PROBING and speeds.is_measured(platform.known(record)):
            effects.leave_devices(platform, record.id)  # measured on one type; another is not waited for
            measured.append(record.id)
        elif not record.devices and record.state is State.PROBING:
            waitlist(platform, record)
    return measured


def go_on(platform: Context, job_id: str) -> None:
    """After a measurement: measure on a further device type that is free now, or put the job before the policy.

    A type of which no device is free is not waited for: the job is promised nothing there.
    """
    record = platform.book.jobs[job_id]
    effects.end_probe(platform, job_id)
    further = list_unmeasured(platform, record) if record.total_steps is not None else ()
    if further:
        effects.arrive_probe(platform, job_id, further)
    else:
        effects.arrive(platform, job_id)


def lose(platform: Context, record: JobRecord, why: str) -> bool:
    """A probe has failed: if the job was measured on another device type it is answered by that; returns whether."""
    if record.state is not State.PROBING or not speeds.is_measured(platform.known(record)):
        return False
    where = " and ".join(platform.site.count_types(record.devices)) or "its devices"
    platform.book.note("probe_failed", f"could not be measured on {where}: {why}", record.id)
    effects.leave_devices(platform, record.id)
    return True


def list_unmeasured(platform: Context, record: JobRecord) -> tuple[str, ...]:
    """The device types that a job may use, on which it was not measured, and of which a device is free."""
    measured, world = speeds.list_measured(platform.known(record)), platform.world
    free = {device_type for device_type, mask in zip(world.cluster.node_types, world.free_masks, strict=True) if mask}
    return tuple(
        device_type
        for device_type in device_types.list_device_types(record, platform.site)
        if device_type in free and device_type not in measured
    )


def waitlist(platform: Context, record: JobRecord) -> None:
    """Tell a job by when it is answered; the time that it was told first stays."""
    now_s = platform.clock.now_s()
    assert record.deadline_s is not None, "only jobs with a deadline are probed"
    free_s = find_free_s(platform, now_s)
    answer_by_s = record.answer_by_s or find_answer_by_s(record.deadline_s, free_s, now_s)
    soon = "" if free_s == inf else f" (expected in {show_span(max(0.0, free_s - now_s))})"
    sentence = (
        f"every device serves a promise; its speed is measured as soon as one is free{soon}; "
        f"the answer comes by {show_instant(answer_by_s)} (in {show_span(answer_by_s - now_s)})"
    )
    platform.book.change(
        record.id,
        state=State.WAITLISTED,
        reason=NO_DEVICE,
        sentence=sentence,
        answer_by_s=answer_by_s,
        answered_s=now_s,
    )
    platform.book.note("waitlisted", sentence, record.id, reason=NO_DEVICE)


def find_answer_by_s(deadline_s: float, free_s: float, now_s: float) -> float:
    """While a probe still ends before the deadline; or, where that is hopeless, when it is expected to have ended.

    A job that is late by then is declined with offers that rest on its speed, which is worth the wait.
    """
    return max(deadline_s - LONGEST_S, min(free_s, now_s + MOST_WAIT_S) + LONGEST_S)


def is_waiting(record: JobRecord) -> bool:
    """Whether a job waits for a device on which to be measured."""
    return record.state is State.WAITLISTED and record.reason == NO_DEVICE


def watch(platform: Context, record: JobRecord) -> bool:
    """Decline a job that could not be measured by the time it was told; returns whether it was."""
    if not is_waiting(record) or platform.clock.now_s() < (record.answer_by_s or inf):
        return False
    effects.end_probe(platform, record.id)
    sentence = "no device was free to measure its speed before its answer was due; submit it with a later deadline"
    effects.decline(platform, record.id, NO_DEVICE, sentence)
    return True


def find_free_s(platform: Context, now_s: float) -> float:
    """When the plans of the promised jobs leave a device over; infinite if no plan says."""
    plans = [view.promise.plan for view in platform.world.jobs.values() if view.promise is not None]
    total = platform.site.cluster.total
    times_s = sorted({now_s, *(time_s for plan in plans for time_s in list_changes(plan) if time_s > now_s)})
    return next((time_s for time_s in times_s if sum(plan.share_at(time_s) for plan in plans) < total), inf)


def list_changes(plan: Plan) -> list[float]:
    """The instants at which a plan takes or leaves devices."""
    return [*(segment.start_s for segment in plan.segments), plan.held_until_s]
