"""Promised jobs that change pools: who may, for whom, and that nobody is lost by it."""

from math import inf

import pytest

from springtide.core.curves import Curve
from springtide.core.decisions import JobView, Plan, Progress, Promise, Segment, Snapshot, Status
from springtide.core.devices import parse_cluster
from springtide.core.jobs import FREE, Job, JobId, Overhead
from springtide.core.world import World
from springtide.placement.type_pools import pools_of
from springtide.policies import decide
from springtide.policies.planning import forecast
from springtide.policies.pools.pool_decisions import PoolDecisions, decide_in_turn
from springtide.policies.pools.transfers import list_pressing, make_way, rank_donors
from springtide.policies.springtide import propose, springtide
from springtide.throughput.blends import mix_curves


@pytest.fixture(autouse=True)
def promise_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are promised when they come, as on a calm cluster, so that there are some that have not started."""
    monkeypatch.setattr(forecast, "CALM", 1.0)


CLUSTER = parse_cluster("1x4:a100,1x4:t4")
LINEAR = Curve((1, 2, 4), (1.0, 2.0, 4.0))
BOTH = ("a100", "t4")


def make_job(
    name: str,
    work: float,
    submit_s: float,
    deadline_s: float,
    device_types: tuple[str, ...] = BOTH,
    movable: bool = False,
    overhead: Overhead = FREE,
) -> Job:
    """A job at half the speed on a T4."""
    totals = {device_type: CLUSTER.totals[device_type] for device_type in device_types}
    typed = mix_curves({"a100": LINEAR, "t4": LINEAR.scaled(0.5)}, totals, 1.0 if movable else None)
    return Job(JobId(name), ord(name) - ord("a"), submit_s, work, LINEAR, deadline_s, overhead=overhead, typed=typed)


def live(*jobs: Job) -> tuple[World, Snapshot]:
    """The world when the last of these jobs has come and waits for its answer."""
    world = World(CLUSTER)
    *earlier, last = jobs
    for job in earlier:
        world.arrive(job, job.submit_s)
        world.apply(decide(springtide, job.submit_s, world.snapshot()), job.submit_s)
    world.arrive(last, last.submit_s)
    return world, world.snapshot()


def set_table(*jobs: Job) -> PoolDecisions:
    """What the pools decide when the last of these jobs comes, if nobody makes way."""
    _, snapshot = live(*jobs)
    return decide_in_turn(jobs[-1].submit_s, snapshot, propose, {})


def list_donors(pooled: PoolDecisions, cost: float) -> set[tuple[str, str]]:
    """(job, new type) of all who could leave the A100."""
    pools = pools_of(CLUSTER)
    return {(job_id, device_type) for _, job_id, device_type in rank_donors(pooled, pools[0], pools, cost)}


RUNNING = make_job("a", 20, 0, 6, ("a100",))  # all four A100 for five seconds
PLANNED = make_job("b", 24, 1, 14.5)  # after it; the T4 would do, too
ASKER = make_job("c", 20, 2, 10.5)  # only the A100 is fast enough


def test_a_job_that_just_came_and_found_no_room_is_pressing() -> None:
    pooled = set_table(RUNNING, PLANNED, ASKER)
    assert list_pressing(pooled) == ["c"] and pooled.admitted == {}
    assert list_pressing(set_table(RUNNING, PLANNED)) == []


def test_the_one_that_has_not_started_makes_way_and_all_are_promised() -> None:
    pooled = make_way(set_table(RUNNING, PLANNED, ASKER), JobId("c"), propose)
    assert pooled is not None
    assert pooled.moves == {"b": "t4"} and pooled.admitted == {"c": "a100"}
    assert pooled.decisions["t4"].promises[JobId("b")].plan.finish_s <= PLANNED.deadline_s


def test_without_a_donor_that_fits_elsewhere_nobody_moves() -> None:
    bound = make_job("b", 24, 1, 14.5, ("a100",))
    assert make_way(set_table(RUNNING, bound, ASKER), JobId("c"), propose) is None


def test_a_job_that_runs_changes_its_type_only_at_level_d2_and_pays_for_it() -> None:
    started = make_job("a", 8, 0, 20)
    other = make_job("b", 4, 1, 20)
    assert list_donors(set_table(started, other), 0.0) == set()
    movable = make_job("a", 8, 0, 20, movable=True)
    assert list_donors(set_table(movable, other), 0.0) == {("a", "t4")}
    late_by_its_pause = make_job("a", 30, 0, 16, movable=True, overhead=Overhead(4.0))
    assert list_donors(set_table(late_by_its_pause, other), 0.0) == set()


def test_nobody_makes_way_for_a_dearer_job() -> None:
    pooled = set_table(RUNNING, PLANNED, ASKER)
    assert list_donors(pooled, 20.0) == {("b", "t4")}
    assert list_donors(pooled, 30.0) == set()


def test_a_move_that_would_cost_another_its_answer_is_not_made() -> None:
    """The T4 is promised, so b cannot go there without making somebody late."""
    held = make_job("b", 18, 0, 10, ("t4",))
    donor = make_job("c", 24, 1, 14.5)
    asker = make_job("d", 20, 2, 10.5)
    pooled = set_table(RUNNING, held, donor, asker)
    tried = make_way(pooled, JobId("d"), propose)
    assert tried is None or set(tried.admitted) >= {"d"} | set(pooled.admitted)
    world, snapshot = live(RUNNING, held, donor, asker)
    world.apply(decide(springtide, 2.0, snapshot), 2.0)
    assert all(
        view.promise is not None and view.promise.plan.finish_s <= view.job.deadline_s
        for view in world.jobs.values()
        if view.share and view.job.deadline_s < inf
    )


@pytest.mark.parametrize("promised_on", ["a100+t4", "h100", ""])
def test_a_job_promised_on_a_type_that_is_no_pool_is_promised_in_one(promised_on: str) -> None:
    """As a server finds it that has other devices than before, or a promise on two types that version 0.1 made."""
    job = make_job("a", 20, 0, 20, movable=True)
    plan = Plan((Segment(0.0, 2),), 12.0, 12.0)
    view = JobView(job, Progress(20.0), Status.ADMITTED, promise=Promise(20.0, plan, promised_on))
    decision = decide(springtide, 1.0, Snapshot(CLUSTER, {job.id: view}, (0b1111, 0b1111)))
    assert decision.promises[job.id].device_type == "a100"
    assert decision.promises[job.id].plan.finish_s <= 20.0 and decision.allocations[job.id]
