"""Rubick (MLSys 2025) in its scheduling: every job on the curve of its best plans, devices where the slope is steepest.

A curve gives at each share the speed of the best execution plan there (data, tensor and pipeline parallelism, ZeRO,
...), so a change of share is also a change of plan. What a job asked for becomes a guarantee of speed, not of devices:
its *minimum* is the smallest share whose best plan is no slower than the requested share. Then, whenever something
happens and every minute while it could matter:
  1. waiting jobs in order of arrival get their minimum, from what is free and from running jobs above their own
     minimum, those first that lose the least speed per device (the flattest slope); where that is not enough, a job
     that holds half of the cluster or more makes room and waits again, seven times at most (the artifact's rule for
     its jobs of 32 and more devices, in the order of its list);
  2. what is left goes level by level to the job that gains the most per device (the steepest slope);
  3. devices change hands from the flattest slope to the steepest while that gains.
Slopes are in units of a job's guaranteed speed, so that jobs compare. A running job is changed only if all its changes
together, this one too, take at most 3 % of the time since it began. Deadline-blind.

Left out: the plans themselves (training here is data parallel, and traces bring the curve of best plans), processors
and memory as resources of their own, and best-effort jobs without a guarantee (quotas are not the policy's here: every
job has one). The artifact allots node by node with rules for single models; this one goes by shares, and placement
names the devices.
"""

from dataclasses import dataclass
from math import inf

from springtide.core.decisions import Decision, JobView, Snapshot
from springtide.core.jobs import Job, JobId
from springtide.policies.common.answers import answer_arrivals, count_free, remaining_views
from springtide.policies.common.gangs import change_shares, gang_share
from springtide.policies.research.restarts import remember

LOOK_S = 60.0
MOST_STOPS = 7  # restarts after which a job that holds half of the cluster is not stopped any more
LARGEST_LOSS = 0.03  # of a job's time, in all its changes


@dataclass(slots=True)
class Holder:
    """A job in the making of a decision: the levels it may hold from its minimum on, and where it stands in them.

    `place` -1 is none. A fixed one may not change now; one that is `large` makes room for others.
    """

    id: JobId
    levels: tuple[int, ...]
    speeds: tuple[float, ...]  # in units of the guaranteed speed
    place: int
    fixed: bool
    large: bool

    @property
    def share(self) -> int:
        """The devices it holds."""
        return self.levels[self.place] if self.place >= 0 else 0

    def slope(self, place: int) -> float:
        """Speed gained per device by the step up from `place`; infinite from nothing, none at the top."""
        if place < 0:
            return inf
        if place + 1 >= len(self.levels):
            return -inf
        return (self.speeds[place + 1] - self.speeds[place]) / (self.levels[place + 1] - self.levels[place])

    @property
    def step(self) -> int:
        """Devices that the step up takes."""
        return self.levels[self.place + 1] - self.share


def rubick(now_s: float, snapshot: Snapshot) -> Decision:
    """Minimum shares by arrival, then growth and exchange along the slopes of the jobs' curves."""
    answers = answer_arrivals(snapshot, minimum_share)
    views = list(remaining_views(snapshot, answers))
    history = snapshot.memory.get("jobs", {})
    devices = snapshot.cluster.total
    holders = [open_holder(now_s, view, history.get(view.job.id, [0, 0])[1], devices) for view in views]
    free = serve_waiting(holders, count_free(snapshot))
    exchange(holders, free)
    chosen = {holder.id: holder.share for holder in holders if holder.share}
    shares = change_shares(views, chosen)
    is_settled = all(holder.place + 1 == len(holder.levels) for holder in holders)
    return Decision(
        answers=answers,
        shares=shares,
        wake_at_s=inf if is_settled else now_s + LOOK_S,
        memory={"jobs": remember(views, shares, history)},
    )


def minimum_share(job: Job) -> int:
    """The fewest devices on which a job is as fast as on those it requested."""
    guaranteed = job.curve.rate(gang_share(job))
    return next(share for share in job.curve.levels if job.curve.rate(share) >= guaranteed)


def open_holder(now_s: float, view: JobView, restarts: int, devices: int) -> Holder:
    """A job as it stands: fixed if another change would take too much of its time."""
    curve, least = view.job.curve, minimum_share(view.job)
    levels = tuple(share for share in curve.levels if share >= least)
    speeds = tuple(curve.rate(share) / curve.rate(least) for share in levels)
    # a share that is not a level, as another policy may have left it, counts as the one below it
    place = max((number for number, share in enumerate(levels) if share <= view.share), default=-1)
    fixed = view.share > 0 and not is_changeable(now_s, view, restarts)
    large = 2 * view.share >= devices and restarts < MOST_STOPS and not fixed
    return Holder(view.job.id, levels, speeds, place, fixed, large)


def is_changeable(now_s: float, view: JobView, restarts: int) -> bool:
    """Whether one change more keeps all changes within the part of its time that they may take."""
    pause_s = view.job.overhead.pause_s(view.share)
    return (restarts + 1) * pause_s <= LARGEST_LOSS * (now_s - view.first_start_s)


def serve_waiting(holders: list[Holder], free: int) -> int:
    """Give waiting jobs their minimum in order, taking from the flattest slopes; returns what is still free."""
    for waiting in [holder for holder in holders if holder.place < 0]:
        given = shrink_flattest(holders, waiting.levels[0] - free, inf)
        stopped = next((holder for holder in holders if holder.large and holder.place >= 0), None)
        if given is None and stopped is not None and 2 * waiting.levels[0] <= stopped.share:
            free += stopped.share
            stopped.place = -1
            given = 0
        if given is not None:
            free += given - waiting.levels[0]
            waiting.place = 0
    return free


def shrink_flattest(holders: list[Holder], needed: int, limit: float) -> int | None:
    """Take at least so many devices from the jobs that lose least by it; None, and nothing taken, if that is not to be.

    Nobody goes below its minimum, nor loses `limit` per device or more.
    """
    taken: list[Holder] = []
    given = 0
    while given < needed:
        able = [holder for holder in holders if holder.place > 0 and not holder.fixed]
        flattest = min(able, key=lambda holder: holder.slope(holder.place - 1), default=None)
        if flattest is None or flattest.slope(flattest.place - 1) >= limit:
            for holder in taken:
                holder.place += 1
            return None
        flattest.place -= 1
        given += flattest.step
        taken.append(flattest)
    return given


def exchange(holders: list[Holder], free: int) -> None:
    """Grow the steepest while devices are free, or can be had from flatter slopes; who cannot grow is passed over."""
    growing = [holder for holder in holders if holder.place >= 0 and not holder.fixed]
    while growing:
        steepest = max(growing, key=lambda holder: holder.slope(holder.place))
        slope = steepest.slope(steepest.place)
        if slope <= 0:
            return
        others = [holder for holder in holders if holder is not steepest]
        given = shrink_flattest(others, steepest.step - free, slope)
        if given is None:
            growing.remove(steepest)
            continue
        free += given - steepest.step
        steepest.place += 1
