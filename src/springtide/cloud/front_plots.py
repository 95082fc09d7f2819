"""Draws plans by time and cost, and the front of those that no other beats. matplotlib is imported only to draw."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from springtide.cloud.planner import PlanSearch
from springtide.cloud.plans import HOUR_S, Limits, RentalPlan

MOST_LABELS = 6


def draw_front(search: PlanSearch, limits: Limits, target: Path) -> None:
    """Save a picture of every plan of one kind, the front with its intervals, and the limits."""
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


def _label(axes: "object", front: Sequence[RentalPlan]) -> None:
    """Name a few plans of the front, evenly spread."""
    for place in sorted({round(i) for i in np.linspace(0, len(front) - 1, min(MOST_LABELS, len(front)))}):
        plan = front[place]
        at = plan.time_s.value / HOUR_S, plan.cost_usd.value
        axes.annotate(plan.name, at, xytext=(5, 5), textcoords="offset points", fontsize=7)  # type: ignore[attr-defined]
