"""What a search found, for people: why a plan, why not the obvious ones, and a picture of time and cost.

The obvious ones are the cheapest per hour, the biggest GPU and the most GPUs. matplotlib is imported only to draw.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil, floor
from pathlib import Path
from typing import Any

import numpy as np

from springtide.cloud.candidates import Candidates, find_feasible, make_plan, measure_limits
from springtide.cloud.planner import PlanSearch
from springtide.cloud.plans import HOUR_S, Limits, RentalPlan, Work, describe_plan

MOST_LABELS = 6


@dataclass(frozen=True, slots=True)
class PlanComparison:
    """An obvious choice, as a plan, and why it is no better than the best."""

    choice: str
    plan: RentalPlan
    why: str


def explain_plan(plan: RentalPlan, search: PlanSearch, limits: Limits) -> str:
    """What speaks for a plan, in a few words."""
    best = search.best[0]
    if plan is best:
        fast = limits.deadline_s is None and limits.budget_usd is not None
        return "fastest within the budget" if fast else "cheapest that respects every limit"
    longer = plan.time_s.value / best.time_s.value - 1
    dearer = plan.cost_usd.value / best.cost_usd.value - 1
    time = f"{longer:.0%} longer" if longer > 0.005 else f"{-longer:.0%} shorter" if longer < -0.005 else "as long"
    price = f"{dearer:.0%} dearer" if dearer > 0.005 else f"{-dearer:.0%} cheaper" if dearer < -0.005 else "as dear"
    return f"{time}, {price} than the best"


def explain_miss(plan: RentalPlan, limits: Limits) -> str:
    """Which limits a plan breaks, and by how much; or that it keeps them, but not as surely as was asked."""
    wanted = [
        ("deadline", plan.time_s.value, limits.deadline_s),
        ("budget", plan.cost_usd.value, limits.budget_usd),
        ("max $/h", plan.usd_per_h, limits.most_usd_per_h),
        ("min throughput", plan.step_s.value, None if not limits.fewest_steps_per_s else 1 / limits.fewest_steps_per_s),
    ]
    broken = [f"{value / most:.3g} x the {name}" for name, value, most in wanted if most and value > most]
    return ", ".join(broken) or f"keeps the limits on average, but not with {limits.confidence:.0%} confidence"


def list_remarks(search: PlanSearch, limits: Limits) -> list[str]:
    """What was not planned for want of measurements, and how to have it planned."""
    speeds = {found.machines[0].speed for found in search.alone}
    blind = sorted(s.device_type for s in speeds if s.basis == "measured" and not s.knows_network)
    if not blind or limits.guess_network:
        return []
    return [
        f"several nodes of {', '.join(blind)} were not planned, because only one was measured; measure 3 or more, or "
        "ask for a guess with --guess-network"
    ]


def describe_search(
    search: PlanSearch, work: Work, limits: Limits, obvious: Sequence[PlanComparison]
) -> dict[str, Any]:
    """What was found, for JSON."""
    plans = [describe_plan(plan) | {"why": explain_plan(plan, search, limits)} for plan in search.best]
    return {
        "schema": 1,
        "feasible": bool(search.best),
        "job": asdict(work),
        "limits": asdict(limits),
        "plans": plans,
        "obvious": [{"choice": found.choice, "why": found.why, "plan": describe_plan(found.plan)} for found in obvious],
        "front": [describe_plan(plan) for plan in search.front],
        "nearest": [describe_plan(plan) | {"why": explain_miss(plan, limits)} for plan in search.nearest],
        "binding": list(search.binding),
        "remarks": list_remarks(search, limits),
        "considered": search.considered,
    }


def offer_rent(search: PlanSearch) -> str | None:
    """What renting would take, in one line for a job that the cluster must decline; None if no plan fits.

    As `meets the deadline with 2 x g5.12xlarge spot, $31-38`: the 90 % interval of the cost, in whole dollars outwards.
    """
    if not search.best:
        return None
    plan = search.best[0]
    machines = plan.name.rsplit(" (", 1)[0]
    return f"meets the deadline with {machines}, ${floor(plan.cost_usd.low)}-{ceil(plan.cost_usd.high)}"


def tell_nearest(search: PlanSearch) -> str | None:
    """How near renting comes to the limits where it cannot keep them; None if nothing can be rented at all."""
    if not search.nearest:
        return None
    plan = search.nearest[0]
    hours = f"{plan.time_s.low / HOUR_S:.1f}-{plan.time_s.high / HOUR_S:.1f} h"
    dollars = f"${floor(plan.cost_usd.low)}-{ceil(plan.cost_usd.high)}"
    broken = " and the ".join(search.binding)
    return f"would not keep the {broken} either; the nearest is {plan.name}: {hours}, {dollars}"


def compare_obvious(search: PlanSearch, work: Work, limits: Limits) -> list[PlanComparison]:
    """The obvious choices that the search did not take, each with what is wrong with it."""
    if not search.best:
        return []
    chosen = [(name, *found) for name, found in _list_obvious(search.alone) if found is not None]
    comparisons = []
    for name, found, row in chosen:
        plan = make_plan(found, row, work, limits)
        if plan.parts[0].machine != search.best[0].parts[0].machine or plan.devices != search.best[0].devices:
            comparisons.append(PlanComparison(name, plan, _blame(found, row, plan, search.best[0], limits)))
    return comparisons


def _list_obvious(alone: Sequence[Candidates]) -> list[tuple[str, tuple[Candidates, int] | None]]:
    """The candidate of each obvious rule: by price per hour, by speed of one device, by number of devices."""
    on_demand = [found for found in alone if not found.spot] or list(alone)
    rows = [(found, int(row)) for found in on_demand for row in np.flatnonzero(np.isfinite(found.time_s))]
    if not rows:
        return []
    biggest = min(on_demand, key=lambda found: float(found.machines[0].speed.one_device_s(np.array([32.0]))[0]))
    of_biggest = [(found, row) for found, row in rows if found.machines[0].speed is biggest.machines[0].speed]
    return [
        ("cheapest per hour", min(rows, key=lambda item: (item[0].usd_per_h[item[1]], item[0].time_s[item[1]]))),
        ("biggest GPU", min(of_biggest, key=lambda item: item[0].usd_per_h[item[1]], default=None)),
        ("most GPUs", max(rows, key=lambda item: (_devices(*item), -item[0].usd_per_h[item[1]]))),
    ]


def _devices(found: Candidates, row: int) -> float:
    return float(found.nodes[0][row]) * found.machines[0].per_node


def _blame(found: Candidates, row: int, plan: RentalPlan, best: RentalPlan, limits: Limits) -> str:
    if not find_feasible(found, limits)[row]:
        broken = [name for name, ratio in measure_limits(found, limits).items() if ratio[row] > 1]
        hours = f"{plan.time_s.low / HOUR_S:.1f}-{plan.time_s.high / HOUR_S:.1f} h"
        dollars = f"${plan.cost_usd.low:.2f}-{plan.cost_usd.high:.2f}"
        return (
            f"does not keep the {' and the '.join(broken)} with {limits.confidence:.0%} confidence: {hours}, {dollars}"
        )
    costs = tell_ratio(plan.cost_usd.value / best.cost_usd.value, "as much")
    takes = tell_ratio(plan.time_s.value / best.time_s.value, "as long")
    return f"compared with the best it costs {costs} and takes {takes}"


def tell_ratio(ratio: float, equal: str) -> str:
    """How many times as much something is, or by how many per cent more or less: `equal` is how equal is said."""
    if ratio >= 1.995:
        return f"{ratio:.{0 if ratio >= 9.95 else 1}f} times {equal}"
    change = round(100 * (ratio - 1))
    if not change:
        return equal
    noun = "" if equal == "as much" else " time"
    return f"{abs(change)} % {'more' if change > 0 else 'less'}{noun}"


def draw_front(search: PlanSearch, limits: Limits, target: Path) -> None:
    """Save a picture of every plan of one machine type, the front with its intervals, and the limits."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    times = np.concatenate([found.time_s for found in search.alone]) / HOUR_S
    costs = np.concatenate([found.cost_usd for found in search.alone])
    usable = np.isfinite(times)
    axes.plot(times[usable], costs[usable], ".", color="0.8", ms=3, label="one type", zorder=1)
    front = search.front
    hours = [plan.time_s.value / HOUR_S for plan in front]
    dollars = [plan.cost_usd.value for plan in front]
    axes.errorbar(
        hours, dollars, xerr=_find_errors(front), fmt="o-", color="C0", ms=4, lw=1, elinewidth=0.6, label="front"
    )
    _label(axes, front)
    if limits.deadline_s is not None:
        axes.axvline(limits.deadline_s / HOUR_S, color="C3", lw=1, ls="--", label="deadline")
    if limits.budget_usd is not None:
        axes.axhline(limits.budget_usd, color="C1", lw=1, ls="--", label="budget")
    axes.set(xscale="log", yscale="log", xlabel="hours to finish", ylabel="cost, $")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    if front:
        axes.set_xlim(min(hours) / 2, max(hours) * 6)
        axes.set_ylim(min(dollars) / 2, max(dollars) * 6)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(target, dpi=150)


def _find_errors(front: Sequence[RentalPlan]) -> list[list[float]]:
    below = [(plan.time_s.value - plan.time_s.low) / HOUR_S for plan in front]
    above = [(plan.time_s.high - plan.time_s.value) / HOUR_S for plan in front]
    return [below, above]


def _label(axes: Any, front: Sequence[RentalPlan]) -> None:
    """Name a few plans of the front, evenly spread."""
    for place in sorted({round(i) for i in np.linspace(0, len(front) - 1, min(MOST_LABELS, len(front)))}):
        plan = front[place]
        at = plan.time_s.value / HOUR_S, plan.cost_usd.value
        axes.annotate(plan.name, at, xytext=(5, 5), textcoords="offset points", fontsize=7)
