import pytest
from tests.policies.replays import JobSketch, run

from springtide.policies.common.gangs import Gang, Stock
from springtide.policies.fifo_backfill import End, Reservation, fifo_backfill, reserve


def test_a_short_job_passes_the_blocked_head_without_delaying_it() -> None:
    replay = run(
        fifo_backfill, [JobSketch(20, 0, requested=2), JobSketch(40, 1, requested=4), JobSketch(4, 2, requested=2)]
    )
    assert replay.finishes == {"a": 10.0, "c": 4.0, "b": 20.0}


def test_a_job_that_would_delay_the_head_waits() -> None:
    replay = run(
        fifo_backfill, [JobSketch(20, 0, requested=2), JobSketch(40, 1, requested=4), JobSketch(20, 2, requested=2)]
    )
    assert replay.finishes == {"a": 10.0, "b": 20.0, "c": 30.0}


def test_a_long_job_may_take_devices_the_head_will_not_need() -> None:
    jobs = [
        JobSketch(20, 0, requested=2),
        JobSketch(30, 0),
        JobSketch(20, 1, requested=2),
        JobSketch(50, 2),
        JobSketch(9, 3),
    ]
    replay = run(fifo_backfill, jobs)
    # c starts when a ends at 10, with one device to spare: d takes it for its 50 s, and e has to wait
    assert (replay.first_start("d"), replay.first_start("c"), replay.first_start("e")) == (2.0, 10.0, 20.0)


def test_reservations_wait_for_just_enough_ends() -> None:
    ends = [End(finish_s, Gang("", share)) for finish_s, share in ((9.0, 2), (5.0, 1), (7.0, 4))]
    assert reserve(ends, Gang("", 4), Stock({"": 1})) == Reservation(start_s=7.0, device_type="", spare=2)
    with pytest.raises(AssertionError, match="never free"):
        reserve(ends[:1], Gang("", 4), Stock({"": 1}))
