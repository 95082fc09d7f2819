"""Finds the machines to rent: every type, count and two-type mix, exactly, after pruning what cannot win.

Time = start-up + steps x step time / share of the time that a spot job works; cost = time x price. A limit on time or
cost must hold with the asked confidence. Of regions and machines with the same devices only the cheapest can win. A
mix is dropped unevaluated when even a bound on its step time (no device is faster than alone) leaves it behind the
plans of one kind; what survives is timed, compared again, and only then given a spread. Storage and egress are not
counted.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import nsmallest
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from springtide.cloud.catalog import Catalog, Machine
from springtide.cloud.plans import HOUR_S, Limits, Part, Plan, Range, Work
from springtide.cloud.speeds import Speed, Speeds, chance_below, find_speed, quantile, spread_range
from springtide.cloud.splitting import Cut, Pair, bound_step, cut_alone, cut_mix
from springtide.cloud.spot import NO_LOSS, SpotTerms, find_loss
from springtide.throughput.samples import Array

Flags = NDArray[np.bool_]
Name = tuple[tuple[str, ...], bool]
SLACK = 1 + 1e-9  # bounds are compared with rounding in their favour


@dataclass(frozen=True)
class Kind:
    """A machine at one price, with the speed of its devices."""

    machine: Machine
    usd_per_h: float
    speed: Speed
    per_node: int


@dataclass(frozen=True)
class Candidates:
    """Layouts of one kind, or of a mix of two, as columns with what to expect of each."""

    kinds: tuple[Kind, ...]
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
        return tuple(kind.machine.instance_type for kind in self.kinds), self.spot


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a search is to bring: how many plans, the front or not. Without `prune` every mix is evaluated."""

    best: int = 5
    front: bool = False
    prune: bool = True


DEFAULT_WANTED = Wanted()


@dataclass(frozen=True)
class Search:
    """What was found: plans that respect the limits by merit, the front of time and cost, and the near misses."""

    best: tuple[Plan, ...]
    front: tuple[Plan, ...]
    nearest: tuple[Plan, ...]
    binding: tuple[str, ...]
    considered: int
    evaluated: int
    alone: tuple[Candidates, ...]


def search_plans(
    catalog: Catalog, speeds: Speeds, work: Work, limits: Limits, wanted: Wanted = DEFAULT_WANTED
) -> Search:
    """The best plans, and the front of time and cost if it is wanted."""
    alone = [_evaluate_alone(kind, work, limits, spot) for spot, kind in _list_kinds(catalog, speeds, work, limits)]
    pool = [_select(found, find_feasible(found, limits)) for found in alone]
    considered = evaluated = sum(map(len, alone))
    if limits.mixes and work.mixes_types:
        bars = Bars(pool, limits, wanted)
        for kinds, spot in _list_regions(catalog, speeds, work, limits):
            for mix in _list_mixes(kinds, spot, limits):
                considered += len(mix.first)
                found = _evaluate_mix(mix, work, limits, bars.current)
                if found is not None:
                    evaluated += len(found)
                    pool.append(_select(found, find_feasible(found, limits)))
                    bars.add(pool[-1])
    best = _rank(pool, work, limits)[: wanted.best]
    front = _rank_front(pool, work, limits) if wanted.front else []
    nearest, binding = ((), ()) if best else _find_nearest(alone, work, limits)
    return Search(tuple(best), tuple(front), nearest, binding, considered, evaluated, tuple(alone))


def _list_kinds(catalog: Catalog, speeds: Speeds, work: Work, limits: Limits) -> list[tuple[bool, Kind]]:
    """The cheapest kind of each (speed, devices per node), on demand and as spot: the rest cannot win alone."""
    cheapest: dict[tuple[bool, str, int], Kind] = {}
    for spot in (False, True):
        for kind in _offer(catalog.machines, speeds, work, limits, spot):
            key = spot, kind.speed.device_type, kind.per_node
            if key not in cheapest or kind.usd_per_h < cheapest[key].usd_per_h:
                cheapest[key] = kind
    return [(key[0], kind) for key, kind in sorted(cheapest.items(), key=lambda item: item[0])]


def _list_regions(catalog: Catalog, speeds: Speeds, work: Work, limits: Limits) -> Iterator[tuple[list[Kind], bool]]:
    """For every region, on demand and as spot, the cheapest kind of each (speed, devices per node) in it."""
    regions: dict[tuple[str, str], list[Machine]] = {}
    for machine in catalog.machines:
        regions.setdefault((machine.cloud, machine.region), []).append(machine)
    for _, machines in sorted(regions.items()):
        kinds = _list_kinds(Catalog(tuple(machines), catalog.origin), speeds, work, limits)
        for spot in (False, True):
            yield [kind for is_spot, kind in kinds if is_spot is spot and kind.speed.knows_network], spot


def _offer(machines: Iterable[Machine], speeds: Speeds, work: Work, limits: Limits, spot: bool) -> Iterator[Kind]:
    """Machines of known speed and price that can hold the model, on demand or as spot, where the limits allow it."""
    if not (limits.spot if spot else limits.on_demand):
        return
    for machine in machines:
        speed = find_speed(speeds, machine)
        price = machine.trusted_spot_usd_per_h if spot else machine.on_demand_usd_per_h
        if speed is not None and price is not None and machine.devices >= 1 and _holds(machine, work):
            yield Kind(machine, price, speed, int(machine.devices))


def _holds(machine: Machine, work: Work) -> bool:
    """Whether the model fits a device; an unknown memory is not held against a machine."""
    needed, has = work.device_memory_gib, machine.device_memory_gib
    return needed is None or has is None or needed <= has


def _evaluate_alone(kind: Kind, work: Work, limits: Limits, spot: bool) -> Candidates:
    most = limits.most_nodes if kind.speed.knows_network or limits.guess_network else 1
    nodes = np.arange(1, most + 1, dtype=np.float64)
    cut = cut_alone(kind.speed, nodes, kind.per_node, work)
    return _price((kind,), (nodes,), cut, work, limits, spot)


@dataclass(frozen=True)
class Mix:
    """Every pair of node counts of two kinds in one region."""

    one: Kind
    other: Kind
    first: Array
    second: Array
    spot: bool

    def keep(self, rows: Flags) -> "Mix":
        """Only these pairs of counts."""
        return Mix(self.one, self.other, self.first[rows], self.second[rows], self.spot)

    @property
    def usd_per_h(self) -> Array:
        """The hourly price of each pair of counts."""
        price: Array = self.first * self.one.usd_per_h + self.second * self.other.usd_per_h
        return price


@dataclass(frozen=True)
class Bar:
    """What a mix must beat: the last plan worth naming, and the front if that is wanted, as (time, cost) rows."""

    time_s: float
    cost_usd: float
    front: Array | None

    def beats(self, time_s: Array, cost_usd: Array) -> Flags:
        """Whether a candidate at best this fast and this cheap can neither be named nor join the front."""
        worse = (time_s > self.time_s * SLACK) | (cost_usd > self.cost_usd * SLACK)
        if self.front is None:
            return np.asarray(worse, dtype=bool)
        if not self.front.size:
            return np.zeros(len(time_s), dtype=bool)
        # The front is by rising time and falling cost: the last plan that is as fast is the cheapest of those.
        place = np.searchsorted(self.front[:, 0], time_s / SLACK, side="right") - 1
        behind = (place >= 0) & (self.front[np.maximum(place, 0), 1] * SLACK <= cost_usd)
        return np.asarray(worse & behind, dtype=bool)


class Bars:
    """The bar as plans are found: it rises with every better set of types. Without pruning there is none."""

    def __init__(self, pool: Sequence[Candidates], limits: Limits, wanted: Wanted) -> None:
        self.fast = _prefers_speed(limits)
        self.wanted = wanted
        self.front = _front_of(pool) if wanted.front else None
        self.merits: dict[Name, float] = {}
        self.current = Bar(np.inf, np.inf, self.front) if wanted.prune else None
        for found in pool:
            self.add(found)

    def add(self, found: Candidates) -> None:
        """Count these feasible candidates in."""
        if not len(found) or not self.wanted.prune:
            return
        merit = float((found.time_s if self.fast else found.cost_usd).min())
        if merit < self.merits.get(found.name, np.inf):
            self.merits[found.name] = merit
            best = nsmallest(self.wanted.best, self.merits.values())
            last = best[-1] if len(best) == self.wanted.best else np.inf
            self.current = Bar(last if self.fast else np.inf, np.inf if self.fast else last, self.front)


def _list_mixes(kinds: Sequence[Kind], spot: bool, limits: Limits) -> Iterator[Mix]:
    """All mixes of two kinds: at least one node each, and at most so many together."""
    counts = np.arange(1.0, limits.most_nodes)
    first, second = np.meshgrid(counts, counts, indexing="ij")
    within = first + second <= limits.most_nodes
    for one, other in combinations(kinds, 2):
        yield Mix(one, other, first[within], second[within], spot)


def _evaluate_mix(mix: Mix, work: Work, limits: Limits, bar: Bar | None) -> Candidates | None:
    """The candidates of a mix that can still win, if any: dropped first by bounds, then by their own time and cost."""
    pair = Pair((mix.one.speed, mix.other.speed), (mix.one.per_node, mix.other.per_node))
    if bar is not None:
        mix = _drop(mix, bound_step(pair, mix.first, mix.second, work), work, limits, bar)
        if len(mix.first):
            means = cut_mix(pair, mix.first, mix.second, work, spread=False)
            mix = _drop(mix, np.exp(means.log_step), work, limits, bar)
    if not len(mix.first):
        return None
    cut = cut_mix(pair, mix.first, mix.second, work)
    return _price((mix.one, mix.other), (mix.first, mix.second), cut, work, limits, mix.spot)


def _drop(mix: Mix, step_s: Array, work: Work, limits: Limits, bar: Bar) -> Mix:
    """The mix without the counts that, at best this fast, break a limit or stay behind the bar."""
    share = _find_shares(mix.first + mix.second, limits, mix.spot) if mix.spot else 1.0
    time_s = limits.startup_s + work.steps * step_s / share
    usd_per_h = mix.usd_per_h
    cost_usd = time_s * (usd_per_h / HOUR_S)
    hopeless = bar.beats(time_s, cost_usd) | ~np.isfinite(time_s)
    for amount, most in (
        (time_s, limits.deadline_s),
        (cost_usd, limits.budget_usd),
        (usd_per_h, limits.most_usd_per_h),
    ):
        if most is not None and limits.confidence >= 0.5:
            hopeless |= amount > most * SLACK
    return mix.keep(~hopeless) if hopeless.any() else mix


def _price(
    kinds: tuple[Kind, ...], nodes: tuple[Array, ...], cut: Cut, work: Work, limits: Limits, spot: bool
) -> Candidates:
    usd_per_h = np.sum([count * kind.usd_per_h for count, kind in zip(nodes, kinds, strict=True)], axis=0)
    share = _find_shares(np.sum(nodes, axis=0), limits, spot)
    time_s = limits.startup_s + work.steps * np.exp(cut.log_step) / share
    sure_s = limits.startup_s + work.steps * quantile(cut.log_step, cut.spread, limits.confidence) / share
    hourly = usd_per_h / HOUR_S
    return Candidates(kinds, nodes, cut, time_s, time_s * hourly, sure_s, sure_s * hourly, usd_per_h, share, spot)


def _find_shares(nodes: Array, limits: Limits, spot: bool) -> Array:
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


def _select(found: Candidates, rows: Flags) -> Candidates:
    cut = found.cut
    return Candidates(
        found.kinds,
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


def _front_of(pool: Sequence[Candidates]) -> Array:
    """The front of these candidates as (time, cost) rows, time rising and cost falling."""
    rows = np.array([(t, c) for found in pool for t, c in zip(found.time_s, found.cost_usd, strict=True)]).reshape(
        -1, 2
    )
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    cheapest = np.minimum.accumulate(rows[:, 1]) if len(rows) else rows[:, 1]
    front: Array = rows[np.concatenate([[True], rows[1:, 1] < cheapest[:-1]])] if len(rows) else rows
    return front


def _rank(pool: Sequence[Candidates], work: Work, limits: Limits) -> list[Plan]:
    """Feasible plans by merit, the best of each set of types: cheapest, or fastest if only money is limited."""
    fast = _prefers_speed(limits)
    plans: dict[Name, Plan] = {}
    for found in pool:
        if len(found):
            merit = np.lexsort((found.cost_usd, found.time_s) if fast else (found.time_s, found.cost_usd))
            plan = make_plan(found, int(merit[0]), work, limits)
            if found.name not in plans or _merit(plan, fast) < _merit(plans[found.name], fast):
                plans[found.name] = plan
    return sorted(plans.values(), key=lambda plan: _merit(plan, fast))


def _prefers_speed(limits: Limits) -> bool:
    """Whether the fastest plan is wanted rather than the cheapest: where money alone is limited."""
    return limits.deadline_s is None and limits.budget_usd is not None


def _merit(plan: Plan, fast: bool) -> tuple[float, float, str]:
    time_s, cost_usd = plan.time_s.value, plan.cost_usd.value
    return (time_s, cost_usd, plan.name) if fast else (cost_usd, time_s, plan.name)


def _rank_front(pool: Sequence[Candidates], work: Work, limits: Limits) -> list[Plan]:
    """Every feasible plan that no other beats in both time and cost, fastest first."""
    front = {(time_s, cost_usd) for time_s, cost_usd in _front_of(pool)}
    plans = {}
    for found in pool:
        for row in range(len(found)):
            key = found.time_s[row], found.cost_usd[row]
            if key in front and key not in plans:
                plans[key] = make_plan(found, row, work, limits)
    return [plans[key] for key in sorted(plans)]


def _find_nearest(alone: Sequence[Candidates], work: Work, limits: Limits) -> tuple[tuple[Plan, ...], tuple[str, ...]]:
    """The plans that break the limits least, and the limits that bind: those alone in the way, or else all."""
    worst: list[tuple[float, int, int]] = []
    alone_in_the_way: set[str] = set()
    for index, found in enumerate(alone):
        ratios = measure_limits(found, limits)
        if not ratios:
            continue
        table = np.array(list(ratios.values()))
        usable = np.isfinite(found.time_s)
        worst += [(float(table[:, row].max()), index, int(row)) for row in np.flatnonzero(usable)]
        for row in np.flatnonzero(usable & ((table > 1).sum(axis=0) == 1)):
            alone_in_the_way.add(list(ratios)[int(table[:, row].argmax())])
    nearest: dict[int, Plan] = {}
    for _, index, place in sorted(worst):
        if index not in nearest and len(nearest) < 3:
            nearest[index] = make_plan(alone[index], place, work, limits)
    set_limits = [name for found in alone[:1] for name in measure_limits(found, limits)]
    return tuple(nearest.values()), tuple(name for name in set_limits if name in alone_in_the_way) or tuple(set_limits)


def make_plan(found: Candidates, row: int, work: Work, limits: Limits) -> Plan:
    """One candidate as a plan, with intervals and the chance of meeting the deadline."""
    log_step, spread = float(found.cut.log_step[row]), float(found.cut.spread[row])
    step = spread_range(log_step, spread)
    share = float(found.share[row])
    times = [limits.startup_s + work.steps * end / share for end in (step.value, step.low, step.high)]
    hourly = float(found.usd_per_h[row]) / HOUR_S
    batches = (found.cut.first_batch[row], found.cut.second_batch[row])
    parts = tuple(
        Part(kind.machine, int(count[row]), float(batch))
        for kind, count, batch in zip(found.kinds, found.nodes, batches, strict=False)
    )
    chance = None
    if limits.deadline_s is not None:
        chance = chance_below(log_step, spread, (limits.deadline_s - limits.startup_s) * share / work.steps)
    loss = find_loss(sum(part.nodes for part in parts), limits.terms) if found.spot else NO_LOSS
    basis = "estimate" if any(kind.speed.basis == "estimate" for kind in found.kinds) else "measured"
    return Plan(
        parts,
        found.spot,
        float(found.usd_per_h[row]),
        step,
        Range(*times),
        Range(*(time_s * hourly for time_s in times)),
        chance if basis == "measured" else None,
        loss.checkpoint_every_s if found.spot else None,
        basis,
        _note(parts, found),
    )


def _note(parts: Sequence[Part], found: Candidates) -> str:
    remarks = []
    if sum(part.nodes for part in parts) > 1:
        if not all(kind.speed.knows_network for kind in found.kinds):
            remarks.append("only one node was measured: the step across nodes is a guess")
        elif any(part.machine.network_gbps is None for part in parts):
            remarks.append("network of this type unknown; taken as measured")
    if len(parts) > 1:
        remarks.append("mixed types: the slowest part sets the step")
    return "; ".join(remarks)
