"""EasyScale's scheduling: who starts, grows, shrinks, is preempted and gives back."""

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.policies.replays import JobSketch, Replay
from tests.policies.replays import run as run_plain

from springtide.control.scheduling.live_world import LiveWorld
from springtide.core.curves import Curve
from springtide.core.decisions import Decision, Snapshot
from springtide.core.devices import Cluster, parse_cluster
from springtide.core.jobs import FREE, Job, JobId, Overhead
from springtide.policies import Policy, decide
from springtide.policies.easyscale.easyscale import GROWN, LIMITS, easyscale_heter, easyscale_homo
from springtide.simulator.engine import Lending, Simulation
from springtide.throughput.blends import mix_curves
from springtide.throughput.heterogeneous import DeviceSpeed, Level, LogicalWorkers

CLUSTER = parse_cluster("1x4:fast,1x4:slow")
SPEEDS = {"fast": DeviceSpeed(1.0), "slow": DeviceSpeed(2.0)}
MIXES, KEEPS = Level(mixes=True, preferred="fast"), Level(preferred="fast")


def build_job(index: int, steps: float, workers: int, level: Level, submit_s: float = 0.0, pause_s: float = 0.0) -> Job:
    typed = LogicalWorkers(workers, SPEEDS).type_curves(CLUSTER.totals, level)
    curve = typed.curves[typed.preferred or typed.fastest]
    overhead = Overhead(pause_s) if pause_s else FREE
    return Job(JobId(f"j{index}"), index, submit_s, steps, curve, requested=workers, overhead=overhead, typed=typed)


def run(policy: Policy, *jobs: Job) -> Replay:
    replay = Replay()
    Simulation(CLUSTER, partial(decide, policy), replay).run(jobs)
    return replay


def test_a_job_that_may_mix_uses_every_type_and_others_the_preferred_one() -> None:
    # 6 workers: 4 fast and 1 slow devices take a step in 2 s, 4 fast ones alone need 2 s too, so growth stops there
    assert run(easyscale_heter, build_job(0, 10, 6, MIXES)).finishes == {"j0": 20.0}
    # 12 workers: 4 x 2 on fast devices and 4 x 1 on slow ones
    assert run(easyscale_heter, build_job(0, 10, 12, MIXES)).finishes == {"j0": 20.0}
    assert run(easyscale_heter, build_job(0, 10, 12, KEEPS)).finishes == {"j0": 30.0}
    assert run(easyscale_homo, build_job(0, 10, 12, MIXES)).finishes == {"j0": 30.0}


def test_waiting_jobs_start_on_devices_that_others_give_back() -> None:
    replay = run(easyscale_homo, build_job(0, 100, 4, KEEPS), build_job(1, 10, 4, KEEPS, 5.0))
    assert replay.changes["j0"][:2] == [(0.0, 4), (5.0, 2)]
    assert replay.first_start("j1") == 5.0
    assert replay.changes["j0"][2] == (replay.finishes["j1"], 4)


def test_growth_that_does_not_pay_for_its_pause_is_not_done() -> None:
    first, second = build_job(0, 20, 4, KEEPS, pause_s=10.0), build_job(1, 20, 4, KEEPS, pause_s=10.0)
    replay = run(easyscale_homo, first, second)
    assert all(len(changes) == 1 for changes in replay.changes.values())
    longer = build_job(1, 100, 4, KEEPS, pause_s=10.0)
    assert run(easyscale_homo, first, longer).changes["j1"][1:] == [(50.0, 4)]


def test_guaranteed_devices_are_taken_from_those_who_hold_more() -> None:
    greedy = [build_job(n, 100, 2, KEEPS) for n in range(2)]
    owed = build_job(2, 10, 4, replace(KEEPS, guaranteed=4), 5.0)
    replay = run(easyscale_homo, *greedy, owed)
    assert replay.changes["j2"] == [(5.0, 4)]
    assert replay.changes["j0"][1] == replay.changes["j1"][1] == (5.0, 0)
    assert replay.finishes["j2"] == 15.0


def test_a_guarantee_is_not_touched_for_others() -> None:
    owed = build_job(0, 100, 4, replace(KEEPS, guaranteed=4))
    assert run(easyscale_homo, owed, build_job(1, 10, 4, KEEPS, 5.0)).first_start("j1") == 100.0


def grown_world() -> LiveWorld:
    """Two jobs on the fast devices; one ends, and the other grows."""
    world = LiveWorld(CLUSTER)
    for job in (build_job(0, 1000, 4, KEEPS), build_job(1, 1000, 4, KEEPS)):
        world.arrive(job, 0.0)
    world.apply(decide(easyscale_homo, 0.0, world.snapshot()), 0.0)
    world.finish(JobId("j1"), 50.0)
    world.apply(decide(easyscale_homo, 50.0, world.snapshot()), 50.0)
    return world


def slow_down(world: LiveWorld, rate: float) -> None:
    """Let the remaining job be seen to run at this rate."""
    view = world.jobs[JobId("j0")]
    world.observe(view.job.id, replace(view.progress, rate=rate), view.progress.since_s)


def test_growth_that_did_not_help_is_returned_and_not_repeated() -> None:
    world = grown_world()
    assert world.jobs[JobId("j0")].mix == {"fast": 4}
    slow_down(world, 0.5)
    decision = decide(easyscale_homo, 110.0, world.snapshot())
    assert decision.mixes == {JobId("j0"): {"fast": 2}}
    world.apply(decision, 110.0)
    assert world.snapshot().memory == {GROWN: {}, LIMITS: {"j0": 3}}
    later = decide(easyscale_homo, 500.0, world.snapshot())
    assert later.mixes == {}


def test_growth_that_helped_is_kept() -> None:
    world = grown_world()
    decision = decide(easyscale_homo, 110.0, world.snapshot())
    assert decision.mixes == {} and decision.memory == {GROWN: {}, LIMITS: {}}


def test_jobs_with_a_plain_curve_on_one_type() -> None:
    # equal shares first; what b leaves is of no use beyond a's own levels
    replay = run_plain(easyscale_heter, [JobSketch(40, 0), JobSketch(4, 0)])
    assert replay.changes["a"][0] == (0.0, 2) and replay.changes["b"] == [(0.0, 2)]
    assert replay.finishes["a"] == 2.0 + 36 / 4


def test_claimed_devices_are_left_at_once_and_replaced_where_others_are_free() -> None:
    cluster = parse_cluster("2x2:fast")
    typed = LogicalWorkers(2, SPEEDS).type_curves({"fast": 4}, KEEPS)
    job = Job(JobId("a"), 0, 0.0, 100.0, typed.curves["fast"], requested=2, typed=typed)
    replay = Replay()
    lendings = [Lending(0.0, (3, 0)), Lending(10.0, (0, 3)), Lending(20.0, (0, 1)), Lending(30.0, (0, 0))]
    Simulation(cluster, partial(decide, easyscale_homo), replay, [*lendings, Lending(40.0, (3, 3))], 60.0).run([job])
    assert replay.changes["a"] == [(0.0, 2), (10.0, 2), (20.0, 1), (30.0, 0), (40.0, 2)]
    # 20 s at full speed, 10 at half, none for 10: 75 steps are left at 40
    assert replay.finishes["a"] == pytest.approx(115.0)


levels = st.sampled_from((MIXES, KEEPS, Level(), Level(mixes=True), Level(preferred="slow", guaranteed=2)))
rows = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 60), st.integers(2, 9), levels), min_size=1, max_size=8)


def check(policy: Policy, cluster: Cluster, now_s: float, snapshot: Snapshot) -> Decision:
    """A decision that keeps to the devices there are, and does not depend on a cache."""
    decision = decide(policy, now_s, snapshot)
    assert replace(decision, cache=None) == replace(decide(policy, now_s, replace(snapshot, cache=None)), cache=None)
    mixes = {job_id: view.mix or {} for job_id, view in snapshot.jobs.items()} | dict(decision.mixes)
    for device_type, total in cluster.totals.items():
        assert sum(mix.get(device_type, 0) for mix in mixes.values()) <= total
    return decision


@pytest.mark.parametrize("policy", [easyscale_homo, easyscale_heter])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=rows, pause_s=st.sampled_from((0.0, 20.0)))
def test_every_job_ends_and_holds_no_more_than_there_is(
    policy: Policy, drawn: list[tuple[int, int, int, Level]], pause_s: float
) -> None:
    drawn.sort(key=lambda row: row[0])
    jobs = [
        build_job(index, float(steps), workers, level, 10.0 * submit, pause_s)
        for index, (submit, steps, workers, level) in enumerate(drawn)
    ]
    replay = Replay()
    Simulation(CLUSTER, partial(check, policy, CLUSTER), replay).run(jobs)
    assert len(replay.finishes) == len(jobs)


def test_a_job_left_with_a_share_it_cannot_use_gives_back_the_rest() -> None:
    curve = Curve((1, 2, 4), (1.0, 2.0, 4.0))
    typed = mix_curves({"fast": curve, "slow": curve.scaled(0.5)}, CLUSTER.totals, slowdown=1.0)
    job = Job(JobId("a"), 0, 0.0, 100.0, curve, requested=4, typed=typed)
    replay = Replay()
    lendings = [Lending(0.0, (15, 0)), Lending(10.0, (7, 0))]
    Simulation(CLUSTER, partial(decide, easyscale_heter), replay, lendings, 60.0).run([job])
    assert replay.changes["a"] == [(0.0, 4), (10.0, 2)]
    assert replay.finishes["a"] == 40.0
