"""Finds the machines to rent: every type, count and two-type mix, exactly, after pruning what cannot win.

Of regions and machines with the same devices only the cheapest can win alone; of mixes only what can still beat the
plans already found is evaluated whole (`mixes`). The result equals that of evaluating everything, which a test does.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from springtide.cloud.candidates import (
    Candidates,
    Name,
    PricedMachine,
    find_feasible,
    find_front,
    make_plan,
    measure_limits,
    prefers_speed,
    price,
    select,
)
from springtide.cloud.catalog import Catalog, Machine
from springtide.cloud.machine_pairs import Bars, MachinePair, MixTimes, evaluate_mix
from springtide.cloud.plans import DEFAULT_WANTED, Limits, RentalPlan, Wanted, Work
from springtide.cloud.splitting import cut_alone
from springtide.cloud.step_times import Speeds, find_speed


@dataclass(frozen=True)
class PlanSearch:
    """What was found: plans that respect the limits by merit, the front of time and cost, and the near misses."""

    best: tuple[RentalPlan, ...]
    front: tuple[RentalPlan, ...]
    nearest: tuple[RentalPlan, ...]
    binding: tuple[str, ...]
    considered: int
    evaluated: int
    alone: tuple[Candidates, ...]


def search_plans(
    catalog: Catalog, speeds: Speeds, work: Work, limits: Limits, wanted: Wanted = DEFAULT_WANTED
) -> PlanSearch:
    """The best plans, and the front of time and cost if it is wanted."""
    alone = [
        _evaluate_alone(priced, work, limits, spot) for spot, priced in _list_cheapest(catalog, speeds, work, limits)
    ]
    pool = [select(found, find_feasible(found, limits)) for found in alone]
    considered = evaluated = sum(map(len, alone))
    if limits.mixes and work.mixes_types:
        bars, times = Bars(pool, limits, wanted), MixTimes(work, limits)
        for mix in _list_mixes(catalog, speeds, work, limits):
            considered += len(times)
            found = evaluate_mix(mix, times, bars.current)
            if found is not None:
                evaluated += len(found)
                pool.append(select(found, find_feasible(found, limits)))
                bars.add(pool[-1])
    best = _rank(pool, work, limits)[: wanted.best]
    front = _rank_front(pool, work, limits) if wanted.front else []
    nearest, binding = ((), ()) if best else _find_nearest(alone, work, limits)
    return PlanSearch(tuple(best), tuple(front), nearest, binding, considered, evaluated, tuple(alone))


def _list_cheapest(catalog: Catalog, speeds: Speeds, work: Work, limits: Limits) -> list[tuple[bool, PricedMachine]]:
    """The cheapest machine of each (speed, devices per node), on demand and as spot: the rest cannot win alone."""
    cheapest: dict[tuple[bool, str, int], PricedMachine] = {}
    for spot in (False, True):
        for priced in _price_machines(catalog.machines, speeds, work, limits, spot):
            key = spot, priced.speed.device_type, priced.per_node
            if key not in cheapest or priced.usd_per_h < cheapest[key].usd_per_h:
                cheapest[key] = priced
    return [(key[0], priced) for key, priced in sorted(cheapest.items(), key=lambda item: item[0])]


def _list_mixes(catalog: Catalog, speeds: Speeds, work: Work, limits: Limits) -> Iterator[MachinePair]:
    """In every region, on demand or as spot, every two of the cheapest machines of each (speed, devices per node)."""
    regions: dict[tuple[str, str], list[Machine]] = {}
    for machine in catalog.machines:
        regions.setdefault((machine.cloud, machine.region), []).append(machine)
    for _, machines in sorted(regions.items()):
        cheapest = _list_cheapest(Catalog(tuple(machines), catalog.origin), speeds, work, limits)
        for spot in (False, True):
            mixable = [priced for is_spot, priced in cheapest if is_spot is spot and priced.speed.knows_network]
            yield from (MachinePair(one, other, spot) for one, other in combinations(mixable, 2))


def _price_machines(
    machines: Iterable[Machine], speeds: Speeds, work: Work, limits: Limits, spot: bool
) -> Iterator[PricedMachine]:
    """Machines of known speed and price that can hold the model, on demand or as spot, where the limits allow it."""
    if not (limits.spot if spot else limits.on_demand):
        return
    for machine in machines:
        speed = find_speed(speeds, machine)
        price = machine.trusted_spot_usd_per_h if spot else machine.on_demand_usd_per_h
        if speed is not None and price is not None and machine.devices >= 1 and _holds(machine, work):
            yield PricedMachine(machine, price, speed, int(machine.devices))


def _holds(machine: Machine, work: Work) -> bool:
    """Whether the model fits a device; an unknown memory is not held against a machine."""
    needed, has = work.device_memory_gib, machine.device_memory_gib
    return needed is None or has is None or needed <= has


def _evaluate_alone(priced: PricedMachine, work: Work, limits: Limits, spot: bool) -> Candidates:
    most = limits.most_nodes if priced.speed.knows_network or limits.guess_network else 1
    nodes = np.arange(1, most + 1, dtype=np.float64)
    cut = cut_alone(priced.speed, nodes, priced.per_node, work)
    return price((priced,), (nodes,), cut, work, limits, spot)


def _rank(pool: Sequence[Candidates], work: Work, limits: Limits) -> list[RentalPlan]:
    """Feasible plans by merit, the best of each set of types: cheapest, or fastest if only money is limited."""
    fast = prefers_speed(limits)
    plans: dict[Name, RentalPlan] = {}
    for found in pool:
        if len(found):
            merit = np.lexsort((found.cost_usd, found.time_s) if fast else (found.time_s, found.cost_usd))
            plan = make_plan(found, int(merit[0]), work, limits)
            if found.name not in plans or _merit(plan, fast) < _merit(plans[found.name], fast):
                plans[found.name] = plan
    return sorted(plans.values(), key=lambda plan: _merit(plan, fast))


def _merit(plan: RentalPlan, fast: bool) -> tuple[float, float, str]:
    time_s, cost_usd = plan.time_s.value, plan.cost_usd.value
    return (time_s, cost_usd, plan.name) if fast else (cost_usd, time_s, plan.name)


def _rank_front(pool: Sequence[Candidates], work: Work, limits: Limits) -> list[RentalPlan]:
    """Every feasible plan that no other beats in both time and cost, fastest first."""
    front = {(time_s, cost_usd) for time_s, cost_usd in find_front(pool)}
    plans = {}
    for found in pool:
        for row in range(len(found)):
            key = found.time_s[row], found.cost_usd[row]
            if key in front and key not in plans:
                plans[key] = make_plan(found, row, work, limits)
    return [plans[key] for key in sorted(plans)]


def _find_nearest(
    alone: Sequence[Candidates], work: Work, limits: Limits
) -> tuple[tuple[RentalPlan, ...], tuple[str, ...]]:
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
    nearest: dict[int, RentalPlan] = {}
    for _, index, place in sorted(worst):
        if index not in nearest and len(nearest) < 3:
            nearest[index] = make_plan(alone[index], place, work, limits)
    set_limits = [name for found in alone[:1] for name in measure_limits(found, limits)]
    return tuple(nearest.values()), tuple(name for name in set_limits if name in alone_in_the_way) or tuple(set_limits)
