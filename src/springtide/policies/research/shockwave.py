"""Shockwave (NSDI 2023): rounds of the next hour bought in a market, so that fairness holds over a job's whole life.

Time is cut into rounds of 120 s, and a window of 20 of them is planned. A job that runs n of them ends the window at
the fraction u(n) of its work, and the plan is the equilibrium of a Fisher market over the window (the largest Nash
social welfare) with a pull on the makespan:
    maximise  1 / (jobs * T)  sum_j b_j log u_j(n_j)  -  1e-3 max_j remaining_j(n_j) / round,   sum_j g_j n_j <= G T.
The budget b_j is 1, and rho_j ^ 12 for a job whose finish-time fairness rho_j = (elapsed + left * max(1, jobs g / G)) /
(its finish with 1/n of the cluster, averaged over its life) exceeds 1: the paper's way when its constraint rho <= 1
cannot be kept by all, which is the rule where jobs wait.
Of the rounds bought, first come the jobs that could no longer use theirs later, then the worst-off. The plan is made
anew when a job comes or goes, or after five rounds (in the artifact after the window: a job that could not bid then
waits it out); free devices go to others meanwhile. Rigid gangs, deadline-blind.

Left out: the prediction of run times under a batch that changes while training (the traces fix it, so the future is
known). The search is ours: only how many rounds a job gets enters the welfare, so n_j replaces the boolean per round;
log u is concave, so handing out rounds by welfare gained per device finds the optimum up to the last gang that does
not fit, and the makespan is a floor under every n_j, tried at each of a few values. The artifact solves a mixed integer
program with Gurobi (15 s a plan), piecewise linear in u.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import ceil, inf, log

from springtide.core.decisions import Decision, JobView, Snapshot
from springtide.core.jobs import JobId
from springtide.policies.common.answers import count_free, remaining_views
from springtide.policies.common.gangs import (
    answer_gangs,
    change_shares,
    fit_in_order,
    gang_share,
    needed_s,
    stretch_round_s,
    wake_if_waiting,
)

ROUND_S = 120.0
WINDOW = 20  # rounds that are planned ahead
KEPT = 5  # rounds after which budgets are counted anew
MAKESPAN_PULL = 1e-3
FAIRNESS_POWER = 12.0
LARGEST_BUDGET = 1e6
MOMENTUM = 0.9  # of the running mean of a job's finish with an equal part
ORIGIN = 1e-3  # of the work: stands for 0 under the logarithm
FLOORS = 9  # makespans that are tried


@dataclass(frozen=True, slots=True)
class Bidder:
    """A job in the market: rounds it still needs, fraction of its work done, budget, gang."""

    id: JobId
    gang: int
    needs: float
    done: float
    budget: float

    @property
    def most(self) -> int:
        """The most rounds of the window that it can use."""
        return min(WINDOW, ceil(self.needs))

    def welfare(self, rounds: int) -> float:
        """b log u after so many rounds."""
        share = min(rounds / self.needs, 1.0) if self.needs > 0 else 1.0
        return self.budget * log(max(self.done + (1.0 - self.done) * share, ORIGIN))


def shockwave(now_s: float, snapshot: Snapshot) -> Decision:
    """Runs the jobs whose rounds come next in the plan, each on its requested devices."""
    answers = answer_gangs(snapshot)
    views = list(remaining_views(snapshot, answers))
    memory, devices = snapshot.memory, snapshot.cluster.total
    round_s = stretch_round_s(views, ROUND_S)
    ends_s, window_s = float(memory.get("round_ends_s", now_s)), float(memory.get("window_ends_s", now_s))
    fair = update_fair(views, memory.get("fair", {}), devices, keep=now_s < ends_s)
    rho = {view.job.id: find_rho(now_s, view, len(views), devices) / fair[view.job.id] for view in views}
    plan = {JobId(job_id): int(rounds) for job_id, rounds in memory.get("plan", {}).items()}
    if now_s >= ends_s:
        ends_s = now_s + round_s
        if now_s >= window_s - (WINDOW - KEPT) * round_s or plan.keys() != rho.keys():
            window_s = now_s + WINDOW * round_s
            plan = buy_rounds([bid(now_s, view, round_s, rho[view.job.id]) for view in views], devices)
        left = max(1, round((window_s - now_s) / round_s))
        chosen = fit_in_order(sorted(views, key=lambda view: rank_turn(view, plan, left, rho)), devices)
        plan = {job_id: max(rounds - (job_id in chosen), 0) for job_id, rounds in plan.items()}
    else:
        chosen = {view.job.id: view.share for view in views if view.share}
        waiting = sorted((view for view in views if not view.share), key=lambda view: rank_turn(view, plan, 0, rho))
        chosen |= fit_in_order(waiting, count_free(snapshot))
    return Decision(
        answers=answers,
        shares=change_shares(views, chosen),
        wake_at_s=wake_if_waiting(views, chosen, ends_s),
        memory={"round_ends_s": ends_s, "window_ends_s": window_s, "plan": plan, "fair": fair},
    )


def rank_turn(
    view: JobView, plan: Mapping[JobId, int], left: int, rho: Mapping[JobId, float]
) -> tuple[bool, bool, float, bool, int]:
    """The place of a job in a round with `left` of the window to go: rounds it would lose, rounds it has, unfairness.

    Those without a round take what is left: no device stays idle while somebody waits.
    """
    rounds = plan.get(view.job.id, 0)
    return not 0 < left <= rounds, rounds == 0, -rho[view.job.id], not view.share, view.job.index


def update_fair(views: list[JobView], before: Mapping[str, float], devices: int, keep: bool) -> dict[JobId, float]:
    """Seconds from submission to finish with an equal part of the cluster, averaged over the crowds of a job's life.

    The mean moves at the end of a round; with `keep` only newcomers get theirs.
    """
    fair: dict[JobId, float] = {}
    for view in views:
        gang = gang_share(view.job)
        alone_s = view.job.work / view.job.curve.rate(gang)
        now_fair_s = max(alone_s * max(1.0, len(views) * gang / devices), 1e-9)
        old_s = before.get(view.job.id, now_fair_s)
        fair[view.job.id] = old_s if keep else MOMENTUM * old_s + (1.0 - MOMENTUM) * now_fair_s
    return fair


def find_rho(now_s: float, view: JobView, jobs: int, devices: int) -> float:
    """Seconds from submission to finish if a job has an equal part of the cluster from now on."""
    crowd = max(1.0, jobs * gang_share(view.job) / devices)
    return now_s - view.job.submit_s + needed_s(view, now_s) * crowd


def bid(now_s: float, view: JobView, round_s: float, rho: float) -> Bidder:
    """A job as it enters the market."""
    needs = max(needed_s(view, now_s) / round_s, 1e-9)
    done = 1.0 - view.progress.work_left_at(now_s) / view.job.work
    budget = min(rho**FAIRNESS_POWER, LARGEST_BUDGET) if rho > 1.0 else 1.0
    return Bidder(view.job.id, gang_share(view.job), needs, done, budget)


def buy_rounds(bidders: list[Bidder], devices: int) -> dict[JobId, int]:
    """How many rounds of the window each job gets: the best of the plans under a few makespans."""
    if not bidders:
        return {}
    longest = max(bidder.needs for bidder in bidders)
    best: dict[JobId, int] = {}
    best_value = -inf
    for step in range(FLOORS):
        makespan = longest - WINDOW * step / (FLOORS - 1)
        floors = {bidder.id: min(max(ceil(bidder.needs - makespan), 0), bidder.most) for bidder in bidders}
        if sum(bidder.gang * floors[bidder.id] for bidder in bidders) > devices * WINDOW:
            break
        plan = fill_window(bidders, floors, devices)
        value = judge(bidders, plan)
        if value > best_value:
            best, best_value = plan, value
    return best


def judge(bidders: list[Bidder], plan: Mapping[JobId, int]) -> float:
    """The objective of a plan."""
    welfare = sum(bidder.welfare(plan[bidder.id]) for bidder in bidders) / (len(bidders) * WINDOW)
    return welfare - MAKESPAN_PULL * max(bidder.needs - plan[bidder.id] for bidder in bidders)


def fill_window(bidders: list[Bidder], floors: Mapping[JobId, int], devices: int) -> dict[JobId, int]:
    """Rounds above the floors by welfare gained per device, the largest gain first; ties by place in the list."""
    plan = dict(floors)
    left = devices * WINDOW - sum(bidder.gang * plan[bidder.id] for bidder in bidders)
    heap = [(-gain(bidder, plan[bidder.id]), place) for place, bidder in enumerate(bidders)]
    heapify(heap)
    while heap:
        _, place = heappop(heap)
        bidder = bidders[place]
        rounds = plan[bidder.id]
        if rounds < bidder.most and bidder.gang <= left:
            plan[bidder.id] = rounds + 1
            left -= bidder.gang
            heappush(heap, (-gain(bidder, rounds + 1), place))
    return plan


def gain(bidder: Bidder, rounds: int) -> float:
    """What one round more is worth per device."""
    return (bidder.welfare(rounds + 1) - bidder.welfare(rounds)) / bidder.gang
