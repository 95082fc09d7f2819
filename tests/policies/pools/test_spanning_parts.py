"""What a pool sees of a promise on two types: one share at the speed of the whole, and the news of other pools."""

from dataclasses import replace

import pytest

from springtide.core.curves import Curve
from springtide.core.decisions import Decision, JobView, Plan, Progress, Promise, Segment, Status
from springtide.core.devices import NodeSlice, parse_cluster
from springtide.core.jobs import Job, JobId, Overhead
from springtide.placement.type_pools import pools_of
from springtide.policies.pools.spanning_parts import (
    PartDecision,
    find_end_s,
    hear,
    is_spanning,
    narrow_newcomer,
    narrow_part,
    widen_promise,
)
from springtide.throughput.blends import mix_curves

CLUSTER = parse_cluster("1x4:a100,1x4:t4")
A100, T4 = pools_of(CLUSTER)
LINEAR = Curve((1, 2, 4, 8), (1.0, 2.0, 4.0, 8.0))
TYPED = mix_curves({"a100": LINEAR, "t4": LINEAR.scaled(0.5)}, CLUSTER.totals, 1.0)
JOB = Job(JobId("a"), 0, 0.0, 60.0, LINEAR, 40.0, overhead=Overhead(2.0, 1.0, start_s=3.0), typed=TYPED)
MIX = {"a100": 2, "t4": 4}  # 4 steps a second
PAUSE_S = JOB.overhead.pause_s(6)
PLAN = Plan((Segment(1.0, 6),), 24.0, 24.0 + PAUSE_S)
VIEW = JobView(
    JOB,
    Progress(60.0, 4.0, 1.0, 9.0),
    Status.ADMITTED,
    (NodeSlice(0, 0b0011), NodeSlice(1, 0b1111)),
    6,
    Promise(40.0, PLAN, "a100+t4"),
    mix=MIX,
    first_device_type="a100",
)


def test_both_parts_run_at_the_speed_of_the_whole_and_may_last_as_long_as_its_plan() -> None:
    assert is_spanning(VIEW) and not is_spanning(replace(VIEW, promise=None))
    for pool, share in ((A100, 2), (T4, 4)):
        part = narrow_part(pool, VIEW, 10.0, None)
        assert (part.share, part.devices[0].node) == (share, 0)
        assert part.job.curve == Curve((share,), (4.0,)) and part.job.typed is None
        assert part.job.overhead.pause_s(share) == PAUSE_S
        assert part.job.overhead.pause_s(share, starting=True) == PAUSE_S + 3.0
        assert part.promise is not None and part.promise.plan.segments == (Segment(1.0, share),)
        assert part.job.deadline_s == part.promise.deadline_s == PLAN.held_until_s


def test_a_pool_learns_that_the_job_pauses_for_a_move_elsewhere() -> None:
    later = Plan((Segment(10.0, 2),), 24.0 + PAUSE_S, 24.0 + PAUSE_S)
    part = narrow_part(T4, VIEW, 10.0, PartDecision(later, moved=True))
    assert part.progress == Progress(56.0, 4.0, 10.0, 10.0 + PAUSE_S)
    assert part.promise is not None and part.promise.plan.finish_s == later.finish_s
    kept = narrow_part(T4, VIEW, 10.0, PartDecision(later, moved=False))
    assert kept.progress == VIEW.progress


def test_a_newcomer_starts_now_and_ends_everywhere_when_the_first_pool_says() -> None:
    view = JobView(JOB, Progress(60.0))
    end_s = 1.0 + PAUSE_S + 3.0 + 15.0
    assert find_end_s(view, MIX, 1.0) == pytest.approx(end_s + PAUSE_S, abs=1e-6)  # with the reserve
    tight = replace(view, job=replace(JOB, deadline_s=end_s + 1.0))
    assert find_end_s(tight, MIX, 1.0) == pytest.approx(end_s, abs=1e-6)
    part = narrow_newcomer(view, MIX, "t4", 1.0, PartDecision(PLAN, moved=False))
    assert part.job.deadline_s == PLAN.held_until_s
    assert (part.status, part.share, part.promise) == (Status.ADMITTED, 0, None)


def test_what_a_pool_decided_is_heard_and_put_together_again() -> None:
    mine = Promise(24.0, Plan((Segment(10.0, 2),), 26.0, 26.0))
    jobs = {JOB.id: narrow_part(A100, VIEW, 10.0, None)}
    assert hear(Decision(), jobs, JOB.id) is None
    assert hear(Decision(promises={JOB.id: mine}), jobs, JOB.id) == PartDecision(mine.plan, moved=False)
    moved = Decision(promises={JOB.id: mine}, allocations={JOB.id: (NodeSlice(0, 0b1100),)})
    assert hear(moved, jobs, JOB.id) == PartDecision(mine.plan, moved=True)
    assert widen_promise(JOB, MIX, mine) == Promise(40.0, Plan((Segment(10.0, 6),), 26.0, 26.0), "a100+t4")
