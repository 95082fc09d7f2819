"""Candidates of the planner as columns: layouts with their time, cost and certainty, and the limits they break.

Time = start-up + steps x step time / share of the time that a spot job works; cost = time x price. A limit on time or
cost must hold with the asked confidence. Storage and egress are not counted. Which candidates there are is decided in
`planner` and `mixes`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from springtide.cloud.catalog import Machine
from springtide.cloud.plans import HOUR_S, Limits, Range, RentalPart, RentalPlan, Work
from springtide.cloud.splitting import Cut
from springtide.cloud.spot import NO_LOSS, SpotTerms, find_loss
from springtide.cloud.step_times import Speed, chance_below, quantile, spread_range
from springtide.throughput.tables.points import Array

Flags = NDArray[np.bool_]
Name = tuple[tuple[str, ...], bool]


@dataclass(frozen=True)
class PricedMachine:
    """A machine at one price, with the speed of its devices."""

    machine: Machine
    usd_per_h: float
    speed: Speed
    per_node: int


@dataclass(frozen=True)
class Candidates:
    """Layouts of one machine type, or of a mix of two, as columns with what to expect of each."""

    machines: tuple[PricedMachine, ...]
    nodes: tuple[Array, ...]
    cut: Cut
    time_s: Array
    cost_usd: Array
    sure_time_s: Array  # with the asked confidence
    sure_cost_usd: Array
    usd_per_h: Array
    share: Array
    spot: bool

    def __len__(self) -> int:
        return len(self.time_s)

    @property
    def name(self) -> Name:
        """What these are to a reader, whatever their counts and region: instance types, on demand or spot."""
        return tuple(priced.machine.instance_type for priced in self.machines), self.spot


def price(
    machines: tuple[PricedMachine, ...], nodes: tuple[Array, ...], cut: Cut, work: Work, limits: Limits, spot: bool
) -> Candidates:
    usd_per_h = np.sum([count * priced.usd_per_h for count, priced in zip(nodes, machines, strict=True)], axis=0)
    share = find_shares(np.sum(nodes, axis=0), limits, spot)
    time_s = limits.startup_s + work.steps * np.exp(cut.log_step) / share
    sure_s = limits.startup_s + work.steps * quantile(cut.log_step, cut.spread, limits.confidence) / share
    hourly = usd_per_h / HOUR_S
    return Candidates(machines, nodes, cut, time_s, time_s * hourly, sure_s, sure_s * hourly, usd_per_h, share, spot)


def find_shares(nodes: Array, limits: Limits, spot: bool) -> Array:
    """The share of the time that a job on so many nodes works."""
    if not spot:
        return np.ones(len(nodes))
    found: Array = _tabulate_shares(limits.most_nodes, limits.terms)[nodes.astype(int)]
    return found


@cache
def _tabulate_shares(most_nodes: int, terms: SpotTerms) -> Array:
    shares = [1.0, *(find_loss(count, terms).share for count in range(1, most_nodes + 1))]
    table: Array = np.maximum(np.array(shares), 1e-6)
    return table


def measure_limits(found: Candidates, limits: Limits) -> dict[str, Array]:
    """Every limit that is set, as what a candidate needs over what is allowed: above 1 it is broken."""
    ratios = {}
    if limits.deadline_s is not None:
        ratios["deadline"] = found.sure_time_s / limits.deadline_s
    if limits.budget_usd is not None:
        ratios["budget"] = found.sure_cost_usd / limits.budget_usd
    if limits.most_usd_per_h is not None:
        ratios["max $/h"] = found.usd_per_h / limits.most_usd_per_h
    if limits.fewest_steps_per_s is not None:
        ratios["min throughput"] = np.exp(found.cut.log_step) * limits.fewest_steps_per_s
    return ratios


def find_feasible(found: Candidates, limits: Limits) -> Flags:
    """Which candidates can train the job and respect every limit."""
    feasible = np.isfinite(found.time_s)
    for ratio in measure_limits(found, limits).values():
        feasible &= ratio <= 1
    return np.asarray(feasible, dtype=bool)


def select(found: Candidates, rows: Flags) -> Candidates:
    cut = found.cut
    return Candidates(
        found.machines,
        tuple(count[rows] for count in found.nodes),
        Cut(cut.log_step[rows], cut.spread[rows], cut.first_batch[rows], cut.second_batch[rows]),
        found.time_s[rows],
        found.cost_usd[rows],
        found.sure_time_s[rows],
        found.sure_cost_usd[rows],
        found.usd_per_h[rows],
        found.share[rows],
        found.spot,
    )


def find_front(pool: Sequence[Candidates]) -> Array:
    """The front of these candidates as (time, cost) rows, time rising and cost falling."""
    rows = np.array([(t, c) for found in pool for t, c in zip(found.time_s, found.cost_usd, strict=True)]).reshape(
        -1, 2
    )
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    cheapest = np.minimum.accumulate(rows[:, 1]) if len(rows) else rows[:, 1]
    front: Array = rows[np.concatenate([[True], rows[1:, 1] < cheapest[:-1]])] if len(rows) else rows
    return front


def prefers_speed(limits: Limits) -> bool:
    """Whether the fastest plan is wanted rather than the cheapest: where money alone is limited."""
    return limits.deadline_s is None and limits.budget_usd is not None


def make_plan(found: Candidates, row: int, work: Work, limits: Limits) -> RentalPlan:
    """One candidate as a plan, with intervals and the chance of meeting the deadline."""
    log_step, spread = float(found.cut.log_step[row]), float(found.cut.spread[row])
    step = spread_range(log_step, spread)
    share = float(found.share[row])
    times = [limits.startup_s + work.steps * end / share for end in (step.value, step.low, step.high)]
    hourly = float(found.usd_per_h[row]) / HOUR_S
    batches = (found.cut.first_batch[row], found.cut.second_batch[row])
    parts = tuple(
        RentalPart(priced.machine, int(count[row]), float(batch))
        for priced, count, batch in zip(found.machines, found.nodes, batches, strict=False)
    )
    chance = None
    if limits.deadline_s is not None:
        chance = chance_below(log_step, spread, (limits.deadline_s - limits.startup_s) * share / work.steps)
    loss = find_loss(sum(part.nodes for part in parts), limits.terms) if found.spot else NO_LOSS
    basis = "estimate" if any(priced.speed.basis == "estimate" for priced in found.machines) else "measured"
    return RentalPlan(
        parts,
        found.spot,
        float(found.usd_per_h[row]),
        step,
        Range(*times),
        Range(*(time_s * hourly for time_s in times)),
        chance if basis == "measured" else None,
        loss.checkpoint_every_s if isfinite(loss.checkpoint_every_s) else None,
        basis,
        _note(parts, found),
    )


def _note(parts: Sequence[RentalPart], found: Candidates) -> str:
    remarks = []
    if sum(part.nodes for part in parts) > 1:
        if not all(priced.speed.knows_network for priced in found.machines):
            remarks.append("only one node was measured: the step across nodes is a guess")
        elif any(part.machine.network_gbps is None for part in parts):
            remarks.append("network of this type unknown; taken as measured")
    if len(parts) > 1:
        remarks.append("mixed types: the slowest part sets the step")
    return "; ".join(remarks)
