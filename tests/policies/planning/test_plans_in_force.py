"""A plan that is planned again and comes out as it was stays as it is: only plans that change are told."""

from benchmarks.scale import draw

from springtide.core.decisions import Decision, Plan, Snapshot
from springtide.core.devices import parse_cluster
from springtide.policies import decide, find_policy
from springtide.policies.planning.filling import GUARD_S
from springtide.simulator.engine import Simulation
from springtide.simulator.reports import MetricsObserver


def is_same(old: Plan, new: Plan, now_s: float) -> bool:
    """Whether two plans hold the same from now on, and end within a rounding of each other."""
    to_come = [[part for part in plan.segments if part.start_s > now_s] for plan in (old, new)]
    ends_s = abs(old.finish_s - new.finish_s), abs(old.held_until_s - new.held_until_s)
    return old.share_at(now_s) == new.share_at(now_s) and to_come[0] == to_come[1] and max(ends_s) <= GUARD_S


def test_only_plans_that_change_are_told() -> None:
    """Of rigid gangs that are all planned again for many a newcomer, most run on or begin when they were to."""
    entry, told = find_policy("springtide"), []

    def watch(now_s: float, snapshot: Snapshot) -> Decision:
        decision = decide(entry, now_s, snapshot)
        for job_id, promise in decision.promises.items():
            before = snapshot.jobs[job_id].promise
            told.append(before is not None and is_same(before.plan, promise.plan, now_s))
        return decision

    Simulation(parse_cluster("8x8:a100"), watch, MetricsObserver()).run(draw(60, 64, seed=1).jobs)
    assert len(told) > 60 and not any(told)
