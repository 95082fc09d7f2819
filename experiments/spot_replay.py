"""Replays a job on a recorded spot market under a policy of `cloud.spot_policies`: what it costs, and whether it ends.

Machines boot while those held work on; a change of machines pauses all; lost machines undo work. Every machine is paid
from its order to its release at the price of each moment. After the end of a trace nothing changes any more.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from experiments.spot_counts import SpotZone, read_spot_counts
from springtide.cloud.spot_policies import ASK_S, HOUR_S, NOTHING, POLICIES, Fleet, SpotJob, SpotPolicy, SpotStanding
from springtide.errors import InputError

if TYPE_CHECKING:
    from springtide.cli.outputs import OutputForm
    from springtide.cli.simulate_cloud import RentalOptions

PRIOR_S = HOUR_S  # the weight of what is believed of a market before anything was seen of it
ROUNDING = 1e-9
TOLERANCE_S = 1e-3


@dataclass(frozen=True, slots=True)
class MarketOutcome:
    """How a job ended: when, at what cost, and what it went through."""

    zone: str
    policy: str
    finish_s: float
    met: bool
    cost_usd: float
    spot_h: float
    on_demand_h: float
    losses: int
    changes: int


@dataclass(slots=True)
class _Rental:
    """A job's clock and bill, and what it has seen of the market."""

    job: SpotJob
    zone: SpotZone
    policy: SpotPolicy
    work_left: float
    now_s: float = 0.0
    held: Fleet = NOTHING
    coming: Fleet | None = None  # the fleet once its new machines are up
    up_s: float = inf
    resumes_s: float = 0.0
    unsaved: float = 0.0  # work since the last pause, which a loss may undo
    cost_usd: float = 0.0
    spot_s: float = 0.0
    on_demand_s: float = 0.0
    losses: int = 0
    changes: int = 0
    seen_s: float = PRIOR_S
    seen: float = 0.5 * PRIOR_S  # share offered x seconds
    drops: int = 1
    offer: int = field(default=-1)

    def step(self) -> None:
        """Look at the market, decide, and go on to whatever happens next."""
        place = self.zone.place(self.now_s)
        available, usd_per_h = self.zone.counts[place], self.zone.usd_per_h[place]
        self._lose(available)
        if self.coming is not None and self.now_s >= self.up_s:
            self._arrive(self.coming)
        standing = SpotStanding(
            self.now_s,
            self.work_left,
            self.held,
            available,
            usd_per_h,
            self.seen / self.seen_s,
            self.seen_s / self.drops,
        )
        order = self.policy(self.job, standing)
        self._order(order.fleet)
        until_s = min(self.zone.next_change_s(self.now_s), self.up_s, self._finish_s())
        until_s = min(until_s, max(order.ask_again_s, self.now_s + ASK_S))
        self._pass(max(until_s, self.now_s + ROUNDING), available, usd_per_h)

    def _lose(self, available: int) -> None:
        """Notice machines that are gone."""
        if available < self.offer:
            self.drops += 1
        self.offer = available
        if self.coming is not None and self.coming.spot > available:
            self.coming = replace(self.coming, spot=available)
        if self.held.spot > available:
            undone = min(self.job.undone_s * self.job.speed(self.held.size), self.unsaved)
            self.work_left += undone
            self.held = replace(self.held, spot=available)
            self.losses += 1
            self._pause()

    def _pause(self) -> None:
        self.unsaved = 0.0
        self.changes += 1
        self.resumes_s = max(self.resumes_s, self.now_s + self.job.changeover_s)

    def _arrive(self, fleet: Fleet) -> None:
        self.held, self.coming, self.up_s = fleet, None, inf
        self._pause()

    def _order(self, fleet: Fleet) -> None:
        target = self.held if self.coming is None else self.coming
        if fleet == target:
            return
        if fleet.spot <= self.held.spot and fleet.on_demand <= self.held.on_demand:
            self._arrive(fleet)  # nothing to wait for
            return
        is_on_the_way = (
            self.coming is not None and fleet.spot <= self.coming.spot and fleet.on_demand <= self.coming.on_demand
        )
        self.up_s = self.up_s if is_on_the_way else self.now_s + self.job.boot_s
        self.coming = fleet

    def _finish_s(self) -> float:
        speed = self.job.speed(self.held.size)
        return max(self.now_s, self.resumes_s) + self.work_left / speed if speed > 0 else inf

    def _pass(self, until_s: float, available: int, usd_per_h: float) -> None:
        seconds = until_s - self.now_s
        working_s = max(0.0, until_s - max(self.now_s, self.resumes_s))
        done = min(self.job.speed(self.held.size) * working_s, self.work_left)
        self.work_left -= done
        self.unsaved += done
        paid = self.held if self.coming is None else Fleet(
            max(self.held.spot, self.coming.spot), max(self.held.on_demand, self.coming.on_demand)
        )  # fmt: skip
        self.spot_s += paid.spot * seconds
        self.on_demand_s += paid.on_demand * seconds
        self.cost_usd += (paid.spot * usd_per_h + paid.on_demand * self.job.on_demand_usd_per_h) * seconds / HOUR_S
        self.seen_s += seconds
        self.seen += min(available / self.job.machines, 1.0) * seconds
        self.now_s = until_s


def replay_spot(job: SpotJob, zone: SpotZone, policy: str) -> MarketOutcome:
    """The job in a zone under a policy, from its submission at 0 to its last step."""
    rental = _Rental(job, zone, POLICIES[policy], job.work)
    while rental.work_left > ROUNDING * job.work:
        rental.step()
    return MarketOutcome(
        zone.name,
        policy,
        rental.now_s,
        rental.now_s <= job.deadline_s + TOLERANCE_S,
        rental.cost_usd,
        rental.spot_s / HOUR_S,
        rental.on_demand_s / HOUR_S,
        rental.losses,
        rental.changes,
    )


def scale_speeds(machines: int, exponent: float) -> tuple[float, ...]:
    """Speeds n^exponent, scaled so that all machines do one step a second."""
    return tuple((count / machines) ** exponent for count in range(1, machines + 1))


def simulate_market(asked: "RentalOptions", form: "OutputForm") -> None:
    """Replay the job in every zone of a recorded market under every policy, and print what it cost."""
    from springtide.core.durations import parse_span

    assert asked.spot_trace is not None
    if asked.length is None or asked.deadline is None:
        raise InputError("--spot-trace needs --length (on all machines, as 24h) and --deadline (as 36h)")
    length_s, deadline_s = parse_span(asked.length, "length"), parse_span(asked.deadline, "deadline")
    job = SpotJob(length_s, deadline_s, scale_speeds(asked.machines, asked.scaling), asked.on_demand_price)
    if job.alone_s > deadline_s:
        raise InputError(
            f"deadline {asked.deadline} cannot be met: {asked.length} and {job.restart_s:.0f} s to start take longer, "
            "even on demand; give a later one, or more machines"
        )
    zones = read_spot_counts(asked.spot_trace, asked.spot_price)
    runs = [replay_spot(job, zone, policy) for zone in zones for policy in POLICIES]
    if not form.write({"schema": 1, "job": asdict(job), "runs": [asdict(run) for run in runs]}):
        print_market(runs)


def print_market(runs: Sequence[MarketOutcome]) -> None:
    """One line per run: cost beside on demand, whether it was on time, and what it went through."""
    from springtide.cli.outputs import print_table

    print_table(
        ("zone", "policy", "cost $", "of on demand", "on time", "hours", "spot h", "on-demand h", "losses", "changes"),
        [show_outcome(run, runs) for run in runs],
        legend="of on demand: the cost as a share of that; losses: machines taken away; changes: of what is rented",
    )


def show_outcome(run: MarketOutcome, runs: Sequence[MarketOutcome]) -> tuple[str, ...]:
    """A run as one line."""
    (plain,) = [one for one in runs if one.zone == run.zone and one.policy == "on-demand"]
    return (
        run.zone,
        run.policy,
        f"{run.cost_usd:.2f}",
        f"{run.cost_usd / plain.cost_usd:.3f}",
        "yes" if run.met else "NO",
        f"{run.finish_s / HOUR_S:.1f}",
        f"{run.spot_h:.0f}",
        f"{run.on_demand_h:.0f}",
        str(run.losses),
        str(run.changes),
    )
