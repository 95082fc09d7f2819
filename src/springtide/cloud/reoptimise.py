"""Whether a running job should move to other machines: the one decision that the simulation and the platform share.

A job is planned again when its observed step time leaves the predicted interval, or when it loses machines. It moves
only if that saves more than the move costs: by money while the deadline is safe, by the deadline when it is not.
"""

from dataclasses import dataclass, replace
from math import log

from springtide.cloud.catalog import Catalog
from springtide.cloud.planner import PlanSearch, search_plans
from springtide.cloud.plans import HOUR_S, Limits, RentalPlan, Work
from springtide.cloud.step_times import Speeds, find_speed

# A saving smaller than this share of what is left to pay is within the error of the estimate.
SMALLEST_SAVING = 0.05


@dataclass(frozen=True, slots=True)
class RentalProgress:
    """A running job: its plan, the steps it has left, and seconds to the deadline (None without one)."""

    plan: RentalPlan
    steps_left: int
    deadline_in_s: float | None
    observed_step_s: float | None = None
    machines_lost: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """What to do: keep the present plan (None) or take another, and why."""

    plan: RentalPlan | None
    why: str


def needs_replanning(progress: RentalProgress) -> str | None:
    """Why the job must be planned again, or None if all goes as predicted."""
    if progress.machines_lost:
        return "machines were lost"
    observed, predicted = progress.observed_step_s, progress.plan.step_s
    if observed is None or predicted.low <= observed <= predicted.high:
        return None
    side = "slower" if observed > predicted.high else "faster"
    return f"a step takes {observed:.4g} s, {side} than {predicted.low:.4g}-{predicted.high:.4g} s"


def decide_move(
    progress: RentalProgress, catalog: Catalog, speeds: Speeds, work: Work, limits: Limits, switch_s: float
) -> Move:
    """Keep or move. `switch_s` is what a move costs in time: checkpoint, new machines, restart; it is paid for too."""
    cause = needs_replanning(progress)
    if cause is None:
        return Move(None, "as predicted")
    left = replace(work, steps=max(progress.steps_left, 1))
    # What a new plan must do: train what is left, after the switch, before the same deadline; one that has passed binds
    # nobody any more, and the cheapest plan is wanted.
    due_s = progress.deadline_in_s if progress.deadline_in_s is not None and progress.deadline_in_s > 0 else None
    ahead = replace(limits, deadline_s=due_s, startup_s=switch_s)
    search = search_plans(catalog, correct_speeds(speeds, progress), left, ahead)
    if progress.machines_lost:
        return _replace_lost(search, cause)
    return _weigh(progress, search, cause)


def correct_speeds(speeds: Speeds, progress: RentalProgress) -> Speeds:
    """The speeds with those of the machines in use scaled to what was observed on them."""
    if progress.observed_step_s is None:
        return speeds
    shift = log(progress.observed_step_s / progress.plan.step_s.value)
    in_use = {id(find_speed(speeds, part.machine)) for part in progress.plan.parts}
    return {key: speed.slowed(shift) if id(speed) in in_use else speed for key, speed in speeds.items()}


def _replace_lost(search: PlanSearch, cause: str) -> Move:
    """The best plan for what is left, since staying is no choice; the nearest if none meets the limits."""
    if search.best:
        return Move(search.best[0], cause)
    if search.nearest:
        return Move(search.nearest[0], f"{cause}; no plan respects the {' and the '.join(search.binding)} any more")
    return Move(None, f"{cause}; nothing can be rented instead")


def _weigh(progress: RentalProgress, search: PlanSearch, cause: str) -> Move:
    stay_s = progress.steps_left * (progress.observed_step_s or progress.plan.step_s.value)
    stay_usd = stay_s * progress.plan.usd_per_h / HOUR_S
    late = progress.deadline_in_s is not None and stay_s > progress.deadline_in_s
    if not search.best:
        return Move(None, f"{cause}; no other plan respects the limits")
    best = search.best[0]
    if best.name == progress.plan.name:
        return Move(None, f"{cause}; the present plan is still the best")
    if late:
        return Move(
            best, f"{cause}; staying would miss the deadline by {(stay_s - (progress.deadline_in_s or 0)):.0f} s"
        )
    saving = stay_usd - best.cost_usd.value
    if saving > SMALLEST_SAVING * stay_usd:
        return Move(best, f"{cause}; moving saves ${saving:.2f} of ${stay_usd:.2f}")
    return Move(None, f"{cause}; moving would not pay: ${best.cost_usd.value:.2f} against ${stay_usd:.2f}")
