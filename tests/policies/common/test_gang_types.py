"""Rigid jobs on a mixed cluster: one type each, the preferred one, or the fastest with room."""

from functools import partial

from tests.policies.replays import Replay

from springtide.core.curves import Curve
from springtide.core.devices import parse_cluster
from springtide.core.jobs import Job, JobId
from springtide.core.typed_curves import TypedCurves
from springtide.policies import Policy, decide
from springtide.policies.fifo import fifo
from springtide.policies.fifo_backfill import fifo_backfill
from springtide.policies.srtf import srtf
from springtide.simulator.engine import Simulation

FAST, SLOW = Curve((1, 2, 4), (2.0, 4.0, 8.0)), Curve((1, 2, 4), (1.0, 2.0, 4.0))


def build_job(index: int, work: float, requested: int, preferred: str = "", submit_s: float = 0.0) -> Job:
    typed = TypedCurves({"fast": FAST, "slow": SLOW}, preferred=preferred)
    curve = SLOW if preferred == "slow" else FAST
    return Job(JobId("abcdefgh"[index]), index, submit_s, work, curve, requested=requested, typed=typed)


def run(policy: Policy, *jobs: Job) -> Replay:
    replay = Replay()
    Simulation(parse_cluster("1x4:fast,1x4:slow"), partial(decide, policy), replay).run(jobs)
    return replay


def test_the_fastest_type_with_room_is_taken_and_a_preferred_one_waited_for() -> None:
    assert run(fifo, build_job(0, 80, 4), build_job(1, 80, 4)).finishes == {"a": 10.0, "b": 20.0}
    assert run(fifo, build_job(0, 80, 4), build_job(1, 80, 4, "fast")).finishes == {"a": 10.0, "b": 20.0}


def test_a_blocked_head_blocks_other_types_in_fifo_but_not_in_backfill() -> None:
    jobs = build_job(0, 80, 4, "fast"), build_job(1, 80, 4, "fast"), build_job(2, 40, 4, "slow")
    assert run(fifo, *jobs).finishes == {"a": 10.0, "b": 20.0, "c": 20.0}
    assert run(fifo_backfill, *jobs).finishes == {"a": 10.0, "b": 20.0, "c": 10.0}


def test_backfill_keeps_the_reservation_on_the_type_of_the_head() -> None:
    jobs = (
        build_job(0, 40, 2, "fast"),
        build_job(1, 80, 4, "fast", 1.0),
        build_job(2, 80, 2, "fast", 2.0),
        build_job(3, 20, 2, "fast", 2.0),
    )
    assert run(fifo_backfill, *jobs).finishes == {"a": 10.0, "d": 7.0, "b": 20.0, "c": 40.0}


def test_srtf_preempts_on_the_type_it_needs_only() -> None:
    jobs = build_job(0, 80, 4, "fast"), build_job(1, 80, 4, "slow"), build_job(2, 8, 4, "fast", 1.0)
    assert run(srtf, *jobs).finishes == {"c": 2.0, "a": 11.0, "b": 20.0}
