"""How jobs without a deadline share what promises leave: small mean completion, fair between users, nobody starves.

Devices first start jobs, the smallest first; what is left then makes them grow. Who grows is heSRPT's rule (Berg,
Vesilo and Harchol-Balter, 2020), optimal for jobs of one speed-up k^p: with the i-th largest weighing
(i^q - (i-1)^q)^(1/q), q = 1/(1-p), devices go where they add most weighted speed. Jobs that hardly scale share alike;
of jobs that scale perfectly the smallest takes all; between them the small get more and the large the rest. Real curves
differ from job to job, so a job grows one level at a time by what that adds, if it then ends earlier by more than its
pause, and p is the mean of the jobs' own.

Between users: each user's smallest job weighs the same, less what the user has used lately beyond its part; the users
of a project count as one. Priorities and long waits come before all that, for the first devices of a job. Devices that
a promise needs are not its business.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any

from springtide.core.decisions import JobView
from springtide.core.jobs import JobId
from springtide.placement.move_costs import ROUNDING_S

STARVED_S = 3 * 86_400.0  # a job that has waited so long in all runs before others of its priority
HALF_LIFE_S = 86_400.0  # after which device-seconds count half in fair sharing
PAUSED = 2  # jobs that pause where devices go from one to another
AFTER_STARTS = inf  # rank of growth beside those of starts, which are minus the priorities
LEAST_SCALING, MOST_SCALING = 0.05, 0.95  # bounds of p
# key in a policy's memory: {"at_s": ..., "users": {user: device-seconds, decayed to at_s}, "holding": {user: devices}}
USAGE = "usage"


@dataclass(frozen=True, slots=True)
class Usage:
    """The device-seconds of each user, older ones counting less, up to an instant."""

    at_s: float = 0.0
    users: Mapping[str, float] = field(default_factory=dict)

    def favour(self, weights: Mapping[str, float]) -> dict[str, float]:
        """What each user's jobs count: 1 for who has used nothing, a half for who has used exactly its part."""
        used, entitled = sum(self.users.values()), sum(weights.values())
        return {
            user: 0.5 ** (self.users.get(user, 0.0) / used * entitled / weight) if used > 0 else 1.0
            for user, weight in weights.items()
        }


def read_usage(memory: Mapping[str, Any], now_s: float, views: Iterable[JobView]) -> Usage | None:
    """The usage up to now: as remembered, and what all jobs have held since; None where there is but one user.

    What was held is remembered too: a job that has just ended is in no view any more.
    """
    known, present = memory.get(USAGE), {view.job.party for view in views}
    if known is None:
        return Usage(now_s) if len(present) > 1 else None
    holding: Mapping[str, int] = known.get("holding", {})
    passed_s = max(now_s - float(known["at_s"]), 0.0)
    decayed = {user: used * 0.5 ** (passed_s / HALF_LIFE_S) for user, used in known["users"].items()}
    for user, share in holding.items():
        decayed[user] = decayed.get(user, 0.0) + share * passed_s
    return Usage(now_s, {user: used for user, used in decayed.items() if used >= 1.0 or user in present})


def write_usage(usage: Usage, views: Iterable[JobView], shares: Mapping[JobId, int]) -> dict[str, Any]:
    """The usage as a policy remembers it, with what its users hold from now on; `shares` are those that change."""
    holding: dict[str, int] = {}
    for view in views:
        share = shares.get(view.job.id, view.share)
        if share:
            holding[view.job.party] = holding.get(view.job.party, 0) + share
    return {"at_s": usage.at_s, "users": dict(usage.users), "holding": holding}


def share_out(now_s: float, views: Sequence[JobView], devices: int, usage: Usage | None) -> dict[JobId, int]:
    """The share of each job that gets devices, given how many there are for all of them."""
    weights = weigh_jobs(now_s, views, usage)
    queue: list[tuple[float, float, float, int, int]] = [
        (*rank_steadily(view, now_s), -weights[position], position, 0) for position, view in enumerate(views)
    ]
    heapify(queue)
    chosen: dict[JobId, int] = {}
    while queue and devices > 0:
        *_, position, level = heappop(queue)
        view = views[position]
        curve = view.job.curve
        share, wanted = curve.levels[level], curve.growths[level][1]
        if wanted > devices or not is_worth_changing(view, share, now_s):
            continue
        chosen[view.job.id] = share
        devices -= wanted
        if level + 1 < len(curve.levels):
            added, more = curve.growths[level + 1]
            heappush(queue, (AFTER_STARTS, 0.0, -weights[position] * added / more, position, level + 1))
    return keep_shares(views, chosen, devices)


def keep_shares(views: Iterable[JobView], chosen: dict[JobId, int], devices: int) -> dict[JobId, int]:
    """The same, but whoever would shrink to devices that nobody takes stays as it is."""
    for view in views:
        share = chosen.get(view.job.id, 0)
        if view.share - devices <= share < view.share and view.share in view.job.curve.levels:
            devices -= view.share - share
            chosen[view.job.id] = view.share
    return chosen


def rank(view: JobView, now_s: float) -> tuple[float, float]:
    """Who goes before others for its first devices: higher priorities, then who has waited too long, longest first."""
    starving_s = starves_at_s(view, now_s)
    return -view.job.priority, starving_s if starving_s <= now_s else inf


def rank_steadily(view: JobView, now_s: float) -> tuple[float, float]:
    """The same where nobody pauses without need: who starved and runs gives way to who starved `STARVED_S` before."""
    first, starving_s = rank(view, now_s)
    return first, starving_s - STARVED_S if view.share else starving_s


def seat_starved(now_s: float, views: Sequence[JobView], devices: Iterable[int]) -> list[tuple[bool, ...]]:
    """For each number of devices: whose least share fits of those that have starved, in order, behind who goes first.

    One entry stands for all numbers where nobody has starved.
    """
    if all(starves_at_s(view, now_s) > now_s for view in views):
        return [()]  # the usual case
    ranked = sorted(views, key=lambda view: rank_steadily(view, now_s))
    wants = [(view.job.curve.levels[0], starves_at_s(view, now_s) <= now_s) for view in ranked]
    return [_seat_in_turn(wants, left) for left in devices]


def _seat_in_turn(wants: Iterable[tuple[int, bool]], devices: int) -> tuple[bool, ...]:
    seated = []
    for least, has_starved in wants:
        fits = least <= devices
        devices -= least if fits else 0
        if has_starved:
            seated.append(fits)
    return tuple(seated)


def find_urgent(now_s: float, views: Iterable[JobView]) -> list[JobView]:
    """The jobs that hold nothing and have starved, or go before one that runs by priority; the first ones first."""
    seen = list(views)
    lowest = min((view.job.priority for view in seen if view.share), default=inf)
    urgent = [
        view for view in seen if not view.share and (view.job.priority > lowest or starves_at_s(view, now_s) <= now_s)
    ]
    return sorted(urgent, key=lambda view: (rank(view, now_s), size(view, now_s)))


def keep_held(
    now_s: float, views: Iterable[JobView], devices: int, urgent: Sequence[JobView] = (), clears: bool = False
) -> dict[JobId, int]:
    """What each job holds, or the most of it that is left, the important first: nobody else moves.

    Jobs that hold nothing and are `urgent`, and those that have starved and run, get their least share before others
    keep more than theirs, and before those that come after them keep anything; if it `clears`, none of those after the
    first urgent one that starts does.
    """
    running = sorted([view for view in views if view.share], key=lambda view: rank_steadily(view, now_s))
    chosen = seat_first(now_s, running, devices, urgent)
    starting = [view for view in urgent if view.job.id in chosen]
    if starting and clears:
        first = rank_steadily(starting[0], now_s)
        running = [view for view in running if rank_steadily(view, now_s) <= first]
        chosen = seat_first(now_s, running, devices, urgent)
    devices -= sum(chosen.values())
    for view in running:
        held = chosen.pop(view.job.id, 0)
        fitting = [share for share in view.job.curve.levels if share <= min(view.share, devices + held)]
        if fitting:
            chosen[view.job.id] = fitting[-1]
            devices -= fitting[-1] - held
    return chosen


def seat_first(now_s: float, running: Sequence[JobView], devices: int, urgent: Sequence[JobView]) -> dict[JobId, int]:
    """The least shares of the urgent jobs and of those that have starved and run, and of all that come before one."""
    ranks = {view.job.id: rank_steadily(view, now_s) for view in (*running, *urgent)}
    pressing = [*urgent, *(view for view in running if starves_at_s(view, now_s) <= now_s)]
    last = max((ranks[view.job.id] for view in pressing), default=(-inf, -inf))
    ahead = [view for view in (*running, *urgent) if ranks[view.job.id] <= last]
    chosen: dict[JobId, int] = {}
    for view in sorted(ahead, key=lambda view: ranks[view.job.id]):
        least = view.job.curve.levels[0]
        if least <= devices and (not view.share or least <= view.share):
            chosen[view.job.id] = least
            devices -= least
    return chosen


def is_worth_changing(view: JobView, share: int, now_s: float) -> bool:
    """Whether a job that runs ends earlier on more devices, by more than the pause costs it; others may start."""
    if not 0 < view.share < share:
        return True
    pause_s = view.job.overhead.pause_s(share)
    ends_s = now_s + pause_s + view.progress.work_left_at(now_s) / view.job.curve.rate(share)
    return ends_s + pause_s < view.progress.finish_s


def starves_at_s(view: JobView, now_s: float) -> float:
    """When a job will have waited so long that it goes first, if it gets nothing until then."""
    return view.job.submit_s + view.ran_at(now_s) + STARVED_S


def next_starving_s(now_s: float, views: Iterable[JobView], chosen: Mapping[JobId, int]) -> float:
    """When the next of those that get nothing has starved, or goes before one that has starved and runs."""
    waiting_s: list[float] = []
    running_s: list[float] = []
    for view in views:
        (running_s if view.job.id in chosen else waiting_s).append(starves_at_s(view, now_s))
    times_s = [at_s for at_s in waiting_s if at_s > now_s]
    starved_s = sorted([at_s for at_s in running_s if at_s <= now_s])
    for since_s in waiting_s if starved_s else ():
        # the instant of one that runs comes later as long as it runs: who is overtaken next has the latest before that
        position = bisect_left(starved_s, since_s + STARVED_S)
        if since_s <= now_s and position:
            times_s.append(now_s + since_s + STARVED_S - starved_s[position - 1] + ROUNDING_S)
    return min(times_s, default=inf)


def weigh_jobs(now_s: float, views: Sequence[JobView], usage: Usage | None) -> list[float]:
    """The weight of each job: by its place among its user's jobs, and by what its user has used lately."""
    power = 1.0 / (1.0 - estimate_scaling(views))
    weights = [0.0] * len(views)
    by_user: dict[str, list[int]] = {}
    for position, view in enumerate(views):
        by_user.setdefault(view.job.party if usage is not None else "", []).append(position)
    favours = usage.favour({user: views[jobs[0]].job.weight for user, jobs in by_user.items()}) if usage else {}
    for user, positions in by_user.items():
        largest_first = sorted([(-size(views[position], now_s), -position) for position in positions])
        favour, smallest = favours.get(user, 1.0), weigh_place(len(positions), power)
        for place, (_, minus_position) in enumerate(largest_first, start=1):
            weights[-minus_position] = weigh_place(place, power) * favour / smallest
    return weights


def weigh_place(place: int, power: float) -> float:
    """What the job at a place counts, the largest being the first."""
    return float((place**power - (place - 1) ** power) ** (1.0 / power))


def estimate_scaling(views: Iterable[JobView]) -> float:
    """The p of the mean speed-up k^p of the jobs that can grow."""
    found = [scaling for view in views if (scaling := view.job.curve.scaling) is not None]
    mean = sum(found) / len(found) if found else MOST_SCALING
    return min(max(mean, LEAST_SCALING), MOST_SCALING)


def size(view: JobView, now_s: float) -> float:
    """Device-seconds that a job still needs on its smallest share, the pause of a start included.

    Devices that change hands cost two jobs a pause. So whoever holds more than its smallest share counts as smaller by
    what is done on that in two pauses: of jobs that are equal but for it, those that have grown stay so.
    """
    job, least = view.job, view.job.curve.levels[0]
    rate, left = job.curve.rate(least), view.progress.work_left_at(now_s)
    if not view.share:
        return least * (job.overhead.pause_s(least, starting=True) + left / rate)
    if view.share > least:
        left -= PAUSED * job.overhead.pause_s(view.share) * view.progress.rate
    return least * left / rate
