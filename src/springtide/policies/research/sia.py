"""Sia (SOSP 2023): the set of configurations of largest goodput for its fairness, chosen anew every minute.

A configuration is a number of devices of one type. Goodputs of a job are divided by its smallest one, so that jobs
compare, and every configuration but the one a job is in is multiplied by r = max(age - restarts * d, 0) / (age + d), d
being its pause. The integer program of the paper picks at most one for each job (x binary) with the least
    sum_jc x_jc (r g_jc)^p + 1.1 (jobs - sum_jc x_jc),    p = -1/2,
within the devices of each type. A job starts in one of its smallest configurations and at most doubles its devices in
a round; a newcomer between rounds gets its smallest one if devices are free. Deadline-blind.

Left out: the choice of batch (the traces fix it, so goodput is throughput), the guess of speeds on types a job never
ran on (they are given here), pinned and pipelined jobs, and Sia's rounding of weights to two decimals, which its
solver wanted. A job of determinism D1 has no configurations on other types once it has started. The program is solved
exactly by dynamic programming on one type and by branch and bound on several (`configurations`), where the artifact
calls GLPK. Placement is the platform's own, which fits any shares that are within the cluster.
"""

from collections.abc import Mapping
from math import inf

from springtide.core.decisions import Decision, JobView, Snapshot
from springtide.core.jobs import JobId
from springtide.core.typed_curves import Mix
from springtide.policies.common.answers import answer_arrivals, remaining_views
from springtide.policies.common.gangs import Gang, stock_free
from springtide.policies.research.configurations import (
    PricedGang,
    choose_cheapest,
    count_totals,
    give_configurations,
    held_gang,
    list_configurations,
    rate_of,
    smallest_gang_size,
)
from springtide.policies.research.restarts import remember, restart_factor

ROUND_S = 60.0
POWER = -0.5  # the paper's p: below 0, so that the slowest jobs count most
IDLE = 1.1  # the price of a job without devices; a job in its smallest configuration costs 1
WORST = 3000.0  # the artifact's bound on one price


def sia(now_s: float, snapshot: Snapshot) -> Decision:
    """The configurations of least price every minute; between, the smallest one that is free for each newcomer."""
    answers = answer_arrivals(snapshot, smallest_gang_size)
    views = list(remaining_views(snapshot, answers))
    ends_s = float(snapshot.memory.get("round_ends_s", now_s))
    history = snapshot.memory.get("jobs", {})
    totals = count_totals(snapshot)
    if now_s >= ends_s:
        ends_s = now_s + ROUND_S
        chosen = choose_round(now_s, views, totals, history)
    else:
        chosen = {view.job.id: gang for view in views if (gang := held_gang(view))} | welcome(views, snapshot)
    decision = give_configurations(answers, views, chosen)
    changed = {**decision.shares, **{job_id: sum(mix.values()) for job_id, mix in decision.mixes.items()}}
    return Decision(
        answers=answers,
        shares=decision.shares,
        mixes=decision.mixes,
        wake_at_s=ends_s if may_improve(views, chosen, totals) else inf,
        memory={"round_ends_s": ends_s, "jobs": remember(views, changed, history)},
    )


def choose_round(
    now_s: float, views: list[JobView], totals: Mix, history: Mapping[str, list[int]]
) -> dict[JobId, Gang]:
    """The configuration of every job that is to hold one."""
    priced = [price_configurations(now_s, view, totals, history.get(view.job.id, [0, 0])) for view in views]
    chosen = choose_cheapest(priced, [IDLE] * len(views), totals)
    return {view.job.id: gang for view, gang in zip(views, chosen, strict=True) if gang is not None}


def price_configurations(now_s: float, view: JobView, totals: Mix, history: list[int]) -> list[PricedGang]:
    """The configurations within a job's reach, each with (r g)^p."""
    gangs = list_configurations(view, totals)
    if not gangs:
        return []
    largest, restarts = history
    slowest = min(rate_of(view, gang) for gang in gangs)
    held = held_gang(view)
    priced = []
    for gang in gangs:
        if gang.share <= max(2 * largest, gangs[0].share):
            kept = 1.0 if gang == held else restart_factor(now_s, view, gang.share, restarts)
            goodput = kept * rate_of(view, gang) / slowest
            priced.append(PricedGang(gang, min(goodput**POWER, WORST) if goodput > 0 else WORST))
    return priced


def welcome(views: list[JobView], snapshot: Snapshot) -> dict[JobId, Gang]:
    """The fastest of its smallest configurations for each job that never ran, in order of arrival, while they last."""
    stock, totals = stock_free(snapshot), count_totals(snapshot)
    chosen: dict[JobId, Gang] = {}
    for view in views:
        if view.first_start_s == inf:
            gangs = list_configurations(view, totals)
            small = [gang for gang in gangs if gang.share == gangs[0].share]
            fitting = [gang for gang in small if gang.share <= stock.left[gang.device_type]]
            if fitting:
                chosen[view.job.id] = stock.take(max(fitting, key=lambda gang: rate_of(view, gang)))
    return chosen


def may_improve(views: list[JobView], chosen: Mapping[JobId, Gang], totals: Mix) -> bool:
    """Whether another round could decide otherwise although nobody comes or goes: some job could be faster."""
    for view in views:
        gang = chosen.get(view.job.id)
        gangs = list_configurations(view, totals)
        if gangs and (gang is None or max(rate_of(view, other) for other in gangs) > rate_of(view, gang)):
            return True
    return False
