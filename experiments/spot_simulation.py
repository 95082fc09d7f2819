"""Runs one job on the cloud in virtual time, with spot machines that come and go: what `simulate --cloud` shows.

The job trains under a plan; when its machines are taken away it loses the work since its last checkpoint and
`reoptimise.decide_move` says where it goes on, exactly as it does live. True step times differ from the predicted ones
by a seeded factor; spot is billed at the price of each moment. Nothing is rented, and synthetic traces are labelled so
in every result.
"""

from dataclasses import dataclass, replace
from math import exp

import numpy as np

from experiments.spot_traces import Market, SpotTrace
from springtide.cloud.catalog import Catalog, Machine
from springtide.cloud.planner import search_plans
from springtide.cloud.plans import HOUR_S, Limits, Range, RentalPlan, Work
from springtide.cloud.reoptimise import Move, RentalProgress, correct_speeds, decide_move
from springtide.cloud.step_times import Speeds
from springtide.errors import CatalogError

LONGEST_S = 90 * 86400.0
OBSERVED_AFTER_S = 600.0


@dataclass(frozen=True, slots=True)
class SpotEvent:
    """Something that happened to the job."""

    at_s: float
    what: str
    plan: str
    why: str


@dataclass(frozen=True, slots=True)
class SpotOutcome:
    """How a simulated job ended: when, at what cost, after how many revocations and moves."""

    finish_s: float
    cost_usd: float
    met: bool | None
    revocations: int
    moves: int
    lost_s: float
    trace: str
    synthetic: bool
    events: tuple[SpotEvent, ...]


@dataclass(frozen=True, slots=True)
class SpotScenario:
    """What a simulated job runs in: machines and their speeds, the trace, the truth behind the estimates."""

    catalog: Catalog
    speeds: Speeds
    trace: SpotTrace
    truth_spread: float = 0.0
    switch_s: float = 300.0
    seed: int = 0


def simulate_job(work: Work, limits: Limits, setting: SpotScenario) -> SpotOutcome:
    """The job from its first plan to its last step."""
    job = _Job(work, limits, setting)
    while job.steps_left > 0 and job.now_s < LONGEST_S:
        job.advance()
    return job.finish()


class _Job:
    """The job's clock, its bill and its log."""

    def __init__(self, work: Work, limits: Limits, setting: SpotScenario) -> None:
        self.work, self.limits, self.setting = work, limits, setting
        self.now_s = self.cost_usd = self.lost_s = 0.0
        self.steps_left = float(work.steps)
        self.revocations = self.moves = 0
        self.events: list[SpotEvent] = []
        self.truths: dict[str, float] = {}
        self.speeds = setting.speeds
        self.draws = np.random.default_rng(setting.seed)
        machines = setting.catalog.machines if limits.spot else ()
        self.zones = [(machine, setting.trace.find_zones(machine)) for machine in machines]
        self.plan = self._first_plan()
        self.observed = False
        self._start("start", "first plan")

    def _first_plan(self) -> RentalPlan:
        search = search_plans(self._find_offers(), self.setting.speeds, self.work, self.limits)
        found = search.best or search.nearest
        if not found:
            raise CatalogError("no machine of the catalog can run this job; measure it on a type that can be rented")
        return found[0]

    def _find_offers(self) -> Catalog:
        """What can be rented now: every machine on demand, and as spot in each zone that has it."""
        on_demand = [replace(machine, spot_usd_per_h=None) for machine in self.setting.catalog.machines]
        spot = [found for machine, zones in self.zones for zone in zones if (found := self._price(machine, zone))]
        return Catalog((*on_demand, *spot), self.setting.trace.name)

    def _price(self, machine: Machine, zone: str) -> Machine | None:
        available, usd_per_h = self.setting.trace.markets[machine.instance_type, zone].at(self.now_s)
        if not available:
            return None
        return replace(machine, region=zone, on_demand_usd_per_h=None, spot_usd_per_h=usd_per_h, spot_is_traded=True)

    def _start(self, what: str, why: str) -> None:
        truths = [self._find_truth(part.machine.device_type) for part in self.plan.parts]
        self.step_s = self.plan.step_s.value * max(truths)
        self.events.append(SpotEvent(self.now_s, what, self.plan.name, why))
        self.rented_s = self.now_s
        self._pass(self.limits.startup_s if what == "start" else self.setting.switch_s)
        self.observed = False

    def _find_truth(self, device_type: str) -> float:
        """True over predicted step time of a device type, drawn when it is first used."""
        if device_type not in self.truths:
            self.truths[device_type] = exp(self.setting.truth_spread * float(self.draws.standard_normal()))
        return self.truths[device_type]

    def _pass(self, seconds: float) -> None:
        if self.plan.spot:
            end_s = self.now_s + seconds
            self.cost_usd += sum(
                part.nodes * market.bill_usd(self.now_s, end_s)
                for part, market in zip(self.plan.parts, self._find_markets(), strict=True)
            )
        else:
            self.cost_usd += seconds * self.plan.usd_per_h / HOUR_S
        self.now_s += seconds

    def _find_markets(self) -> list[Market]:
        """The market of each part of a spot plan; its machines are named by zone (`_price`)."""
        markets = self.setting.trace.markets
        return [markets[part.machine.instance_type, part.machine.region] for part in self.plan.parts]

    def advance(self) -> None:
        """Train until the job ends, is first observed, or loses a machine."""
        end_s = self.now_s + self.steps_left * self.step_s / self._work_share()
        loss_s = self._next_loss_s()
        look_s = self.now_s + OBSERVED_AFTER_S if not self.observed else float("inf")
        until_s = min(end_s, loss_s, look_s)
        self._train(until_s - self.now_s)
        if until_s == end_s:
            self.steps_left = 0
        elif until_s == loss_s:
            self._lose()
        else:
            self._observe()

    def _work_share(self) -> float:
        """The share of time outside checkpoints."""
        every_s = self.plan.checkpoint_every_s
        return 1.0 if every_s is None else every_s / (every_s + self.limits.terms.checkpoint_s)

    def _train(self, seconds: float) -> None:
        self.steps_left -= seconds * self._work_share() / self.step_s
        self._pass(seconds)

    def _next_loss_s(self) -> float:
        if not self.plan.spot:
            return float("inf")
        # From when they were rented: machines can go while the job starts on them, and that shows now.
        losses = [market.next_loss_s(self.rented_s) for market in self._find_markets()]
        return max(self.now_s, min((loss for loss in losses if loss is not None), default=float("inf")))

    def _lose(self) -> None:
        """Go back to the last checkpoint and plan again; on average half an interval is lost, here the drawn part."""
        every_s = self.plan.checkpoint_every_s or 0.0
        lost_s = min(float(self.draws.uniform(0, every_s)), self.now_s)
        self.steps_left = min(self.steps_left + lost_s * self._work_share() / self.step_s, float(self.work.steps))
        self.lost_s += lost_s
        self.revocations += 1
        self._replan(machines_lost=True)

    def _observe(self) -> None:
        self.observed = True
        self._replan(machines_lost=False)

    def _replan(self, machines_lost: bool) -> None:
        progress, move = self._ask(machines_lost)
        while machines_lost and move.plan is None and self.now_s < LONGEST_S:
            self.now_s += self.setting.switch_s  # nothing to rent: wait, unpaid, and look again
            self.events.append(SpotEvent(self.now_s, "wait", "", move.why))
            progress, move = self._ask(machines_lost)
        self._learn(progress)
        if move.plan is not None:
            self.plan = move.plan
            self.moves += 1
            self._start("move", move.why)

    def _ask(self, machines_lost: bool) -> tuple[RentalProgress, Move]:
        due_s = None if self.limits.deadline_s is None else self.limits.deadline_s - self.now_s
        progress = RentalProgress(self.plan, int(self.steps_left) + 1, due_s, self.step_s, machines_lost)
        offers = self._find_offers()
        return progress, decide_move(progress, offers, self.speeds, self.work, self.limits, self.setting.switch_s)

    def _learn(self, progress: RentalProgress) -> None:
        """Let later plans start from what was observed: the machines in use have shown their true speed."""
        self.speeds = correct_speeds(self.speeds, progress)
        ratio = self.step_s / self.plan.step_s.value
        step = self.plan.step_s
        self.plan = replace(self.plan, step_s=Range(step.value * ratio, step.low * ratio, step.high * ratio))
        for part in self.plan.parts:
            self.truths[part.machine.device_type] = 1.0

    def finish(self) -> SpotOutcome:
        """The outcome, when the last step is done."""
        met = None if self.limits.deadline_s is None else self.now_s <= self.limits.deadline_s
        trace = self.setting.trace
        counts = (self.revocations, self.moves, self.lost_s)
        return SpotOutcome(self.now_s, self.cost_usd, met, *counts, trace.name, trace.synthetic, tuple(self.events))
