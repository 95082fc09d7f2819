"""Which machines a job with a deadline holds on a spot market: how many spot ones, how many on demand, right now.

Three policies know nothing of the future: `on_demand` rents all machines for good; `uniform_progress` ("Can't Be Late",
NSDI 2024) and `greedy` run a rigid gang on spot when all of it is to be had; `elastic` takes as many as there are, 5 of
16 now and 11 later, because a job of ours trains on any number of machines with equal bits, and fills up with machines
on demand only when its slack is nearly used up.

Slack is what could be waited before a full set on demand must be ordered: deadline - now - (boot + changeover) - work
left / full speed. A policy that holds spot machines only while slack covers the work that a loss may undo cannot miss
a deadline that on demand would meet: machines on demand are not lost, and are assumed to be had.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

HOUR_S = 3600.0
ASK_S = 1.0  # a policy is asked again by its own wish after this at the earliest


@dataclass(frozen=True, slots=True)
class Fleet:
    """Machines of each kind."""

    spot: int = 0
    on_demand: int = 0

    @property
    def size(self) -> int:
        """Machines in all."""
        return self.spot + self.on_demand


NOTHING = Fleet()


@dataclass(frozen=True, slots=True)
class SpotJob:
    """Work to be done by a deadline on up to `len(speeds)` machines; `speeds[n - 1]` is that on n, steps per second.

    New machines take `boot_s` to come up, while those held work on; then every change of machines costs all of them
    `changeover_s`. A loss of machines undoes up to `undone_s` of work.
    """

    work: float
    deadline_s: float
    speeds: tuple[float, ...]
    on_demand_usd_per_h: float
    boot_s: float = 180.0
    changeover_s: float = 60.0
    undone_s: float = 60.0

    @property
    def machines(self) -> int:
        """The most machines it can use."""
        return len(self.speeds)

    def speed(self, machines: int) -> float:
        """Steps per second on so many machines."""
        return self.speeds[machines - 1] if machines else 0.0

    @property
    def restart_s(self) -> float:
        """Seconds without a step when it begins on new machines."""
        return self.boot_s + self.changeover_s

    @property
    def alone_s(self) -> float:
        """Seconds that it takes on demand."""
        return self.restart_s + self.work / self.speeds[-1]


@dataclass(frozen=True, slots=True)
class SpotStanding:
    """Where a job stands: what is left, what it holds and is getting, and what the market offers and has offered.

    `offered` is the mean share of the machines it could use that was to be had so far; `stay_s` how long an offer
    lasted in the mean.
    """

    now_s: float
    work_left: float
    held: Fleet
    available: int
    spot_usd_per_h: float
    offered: float = 0.5
    stay_s: float = HOUR_S

    def slack_s(self, job: SpotJob) -> float:
        """What can be waited before a full set on demand must be ordered."""
        return job.deadline_s - self.now_s - job.restart_s - self.work_left / job.speeds[-1]


@dataclass(frozen=True, slots=True)
class FleetOrder:
    """The machines to hold from now on, and when to ask again at the latest."""

    fleet: Fleet
    ask_again_s: float = inf


SpotPolicy: TypeAlias = Callable[[SpotJob, SpotStanding], FleetOrder]


def on_demand(job: SpotJob, _standing: SpotStanding) -> FleetOrder:
    """All machines on demand, from the first moment to the last step."""
    return FleetOrder(Fleet(on_demand=job.machines))


def greedy(job: SpotJob, standing: SpotStanding) -> FleetOrder:
    """A rigid gang on spot whenever all of it is to be had, waiting otherwise, until the slack is used up."""
    if _must_be_safe(job, standing):
        return FleetOrder(Fleet(on_demand=job.machines))
    fleet = Fleet(spot=job.machines) if _offers_gang(job, standing) else NOTHING
    return FleetOrder(fleet, _safe_until_s(job, standing))


def uniform_progress(job: SpotJob, standing: SpotStanding) -> FleetOrder:
    """A rigid gang that is to be as far as time has passed: spot if there is any; on demand when behind without spot.

    Once on demand it stays until it is ahead by two restarts or spot comes back (the paper's hysteresis), and with the
    slack used up it stays for good.
    """
    if _must_be_safe(job, standing):
        return FleetOrder(Fleet(on_demand=job.machines))
    if _offers_gang(job, standing):
        return FleetOrder(Fleet(spot=job.machines), _safe_until_s(job, standing))
    expected = job.work * standing.now_s / job.deadline_s
    ahead = (job.work - standing.work_left) - expected
    full = job.speeds[-1]
    pace = job.work / job.deadline_s
    if standing.held.on_demand:
        wanted = 2.0 * job.restart_s * full
        if ahead < wanted:
            return FleetOrder(Fleet(on_demand=job.machines), standing.now_s + (wanted - ahead) / (full - pace + 1e-12))
        return FleetOrder(NOTHING, min(_safe_until_s(job, standing), standing.now_s + ahead / pace))
    if ahead >= 0:
        return FleetOrder(NOTHING, min(_safe_until_s(job, standing), standing.now_s + ahead / pace + 1.0))
    return FleetOrder(Fleet(on_demand=job.machines), standing.now_s + job.restart_s)


def elastic(job: SpotJob, standing: SpotStanding) -> FleetOrder:
    """As many spot machines as are worth their price; on demand only for what the slack does not cover.

    When the slack is down to what the losses to come will take, machines on demand fill up the set beside the spot
    ones; only when not even one more loss is covered they replace them.
    """
    if _must_be_safe(job, standing):
        return FleetOrder(Fleet(on_demand=job.machines))
    slack_s = standing.slack_s(job)
    spot = _choose_spot(job, standing)
    fill_at_s = _cover_losses_s(job, standing)
    if slack_s <= fill_at_s + ASK_S:
        if standing.held.on_demand and spot > standing.held.spot and not _pays_to_swap(job, standing, spot):
            spot = standing.held.spot
        return FleetOrder(Fleet(spot, job.machines - spot), _safe_until_s(job, standing))
    if standing.held.on_demand and slack_s <= 2.0 * fill_at_s:  # filled up before: stay, to fill up no second time
        return FleetOrder(Fleet(spot, job.machines - spot), _safe_until_s(job, standing))
    return FleetOrder(Fleet(spot), standing.now_s + (slack_s - fill_at_s) / _slack_spent(job, standing, spot))


FEWEST_LOSSES = 6.0  # that the slack is to cover where hardly any are expected

POLICIES: Mapping[str, SpotPolicy] = {
    "on-demand": on_demand,
    "greedy": greedy,
    "uniform-progress": uniform_progress,
    "elastic": elastic,
}
RIGID = ("on-demand", "greedy", "uniform-progress")


def _must_be_safe(job: SpotJob, standing: SpotStanding) -> bool:
    """Whether what a loss undoes is no longer covered, or will not be when the policy is next asked."""
    return standing.slack_s(job) <= job.undone_s + ASK_S


def _safe_until_s(job: SpotJob, standing: SpotStanding) -> float:
    """When the slack is used up if nothing is done meanwhile."""
    return standing.now_s + max(standing.slack_s(job) - job.undone_s - ASK_S, 0.0)


def _cover_losses_s(job: SpotJob, standing: SpotStanding) -> float:
    """The slack at which machines on demand fill up the set: what the losses to come will take from it.

    As many as the market had so far in the time that is left; each undoes work, and brings two changes of machines:
    on demand comes, and goes when spot is back.
    """
    left_s = standing.work_left / job.speeds[-1]
    losses = max(left_s / standing.stay_s, FEWEST_LOSSES)
    return losses * (2.0 * job.restart_s + job.undone_s) + job.undone_s


def _slack_spent(job: SpotJob, standing: SpotStanding, spot: int) -> float:
    """Slack that a second costs at most: all of it while machines change, the missing speed otherwise."""
    steady = spot > 0 and standing.held == Fleet(spot)
    return max(1.0 - job.speed(spot) / job.speeds[-1], 1e-3) if steady else 1.0


def _offers_gang(job: SpotJob, standing: SpotStanding) -> bool:
    """Whether the market has all machines of a rigid job, at less than on demand."""
    return standing.available >= job.machines and standing.spot_usd_per_h < job.on_demand_usd_per_h


def _choose_spot(job: SpotJob, standing: SpotStanding) -> int:
    """How many spot machines to hold: up to the one whose work would be done cheaper later, and no growth in vain.

    Work left for later costs the full set's price per step, at spot as often as spot was offered so far, else on
    demand. A job grows only if the offer is likely to last until the steps of its pause are made good.
    """
    spot_usd, held = standing.spot_usd_per_h, standing.held.spot
    if spot_usd >= job.on_demand_usd_per_h:
        return 0
    later_usd_per_h = standing.offered * spot_usd + (1.0 - standing.offered) * job.on_demand_usd_per_h
    later = later_usd_per_h * job.machines / job.speeds[-1]
    most = min(standing.available, job.machines)
    spot = 0
    for count in range(1, most + 1):
        gained = job.speed(count) - job.speed(spot)
        if gained > 0 and (count - spot) * spot_usd / gained <= later:
            spot = count
    if held and spot > held:
        gained = (job.speed(spot) - job.speed(held)) * standing.stay_s
        if gained <= job.speed(spot) * job.changeover_s:
            return held
    return spot


def _pays_to_swap(job: SpotJob, standing: SpotStanding, spot: int) -> bool:
    """Whether spot machines in the place of ones on demand save more than the pause of all of them costs."""
    saved = (spot - standing.held.spot) * (job.on_demand_usd_per_h - standing.spot_usd_per_h) * standing.stay_s
    paused = job.machines * job.on_demand_usd_per_h * (job.changeover_s + job.boot_s)
    return saved > paused
