"""Best-effort jobs on devices of several types: who gets which mix of what promises leave over.

They sit at a desk as EasyScale's jobs do: one device for each by priority and in order of arrival, then growth, in the
round that lets them all end soonest (`outlooks`). Unlike there, a job that keeps to one type may start on any. Devices
that promised jobs need they give up at once. Nothing is planned ahead.
"""

from collections.abc import Iterable

from springtide.core.decisions import JobView
from springtide.core.jobs import JobId
from springtide.core.typed_curves import Mix, TypedCurves
from springtide.policies.easyscale.lookahead import choose_round
from springtide.policies.easyscale.proposals import DraftAllocation, meet


def share_out(now_s: float, views: Iterable[JobView], free: Mix) -> dict[JobId, Mix]:
    """The mix of each best-effort job, by priority, then in arrival order; `free` counts what they hold, too."""
    desk = DraftAllocation({}, dict(free))
    for view in views:
        if view.job.typed is not None:
            device_types = tuple(
                device_type for device_type in list_device_types(view, view.job.typed) if device_type in free
            )
            desk.seat(meet(now_s, view, view.job.typed, device_types, view.job.typed.blend is not None))
    for device_type in desk.free:
        yield_devices(desk, device_type)
    return choose_round(now_s, desk, {}, weighs=True).list_mixes()


def list_device_types(view: JobView, typed: TypedCurves) -> tuple[str, ...]:
    """The types a job may run on now; one that may not change its type keeps to the first."""
    return (view.first_device_type,) if view.first_device_type and not typed.movable else typed.types


def yield_devices(desk: DraftAllocation, device_type: str) -> None:
    """Take back devices of a type that others need: where it costs the least speed, all of the last job's if needed."""
    while desk.free[device_type] < 0:
        holders = [member for member in desk.entries.values() if device_type in member.mix]
        cuts = [(cut, member) for member in holders for cut in desk.propose_cuts(member, 1, {device_type: 1})]
        if cuts:
            cut, victim = min(cuts, key=lambda entry: entry[0])
            desk.give(victim, device_type, -cut.devices)
        else:
            desk.clear(holders[-1])
