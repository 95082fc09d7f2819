"""A platform with devices of several types: measured on each, promised on one, mixed at D2 by the speed of each."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.control.scheduling.live_jobs import look_up
from springtide.control.scheduling.submissions import Submission
from springtide.core.job_file import check_job
from springtide.core.job_states import JobState
from springtide.executors.fake import FakeJob
from springtide.executors.protocol import Failed, Probed, Resize, Start

#: A mini-batch takes twice as long on a T4; eight workers on one device: 10 and 5 steps a second.
SECONDS = {"a100": 0.0125, "t4": 0.025}
QUICK = FakeJob(total_steps=400, logical_workers=8, seconds=SECONDS, startup_s=0.5)
LONG = FakeJob(total_steps=40_000, logical_workers=8, seconds=SECONDS, startup_s=0.5)


@pytest.fixture
def hand_server(tmp_path: Path) -> HandClockServer:
    return HandClockServer(tmp_path, types=("a100", "t4"), scripts={"quick": QUICK, "long": LONG})


def sort_types(hand_server: HandClockServer, job_id: str) -> dict[str, int]:
    return hand_server.reconciler.inventory.count_types(hand_server.job(job_id).devices)


def watch(hand_server: HandClockServer) -> list[Start | Resize]:
    """The orders that give a job devices, as the executor gets them."""
    seen: list[Start | Resize] = []
    obey = hand_server.executor.obey

    def listen(order: Any) -> None:
        if isinstance(order, Start | Resize):
            seen.append(order)
        obey(order)  # type: ignore[no-untyped-call]

    hand_server.executor.obey = listen  # type: ignore[method-assign]
    return seen


def test_a_new_job_is_measured_on_every_type_that_is_free_and_then_answered(hand_server: HandClockServer) -> None:
    job = hand_server.submit(run="python train.py quick", deadline="10m")
    assert job.state is JobState.PROBING
    hand_server.pass_s(40)
    measured = [event.sentence for event in hand_server.store.events(job.id) if event.kind == "probed"]
    assert [text.split()[-1] for text in measured] == ["a100", "t4"]
    assert hand_server.job(job.id).promised
    again = hand_server.submit(run="python train.py quick", deadline="10m")
    assert again.promised, "its speed is known on both types"


def test_a_type_that_is_busy_is_not_waited_for(hand_server: HandClockServer) -> None:
    known = hand_server.submit(run="python train.py long", deadline="10h", device_types=["t4"])
    hand_server.pass_s(20)
    assert sort_types(hand_server, known.id) == {"t4": 2}
    job = hand_server.submit(run="python train.py quick", deadline="10m")
    hand_server.pass_s(20)
    assert hand_server.job(job.id).promised
    assert hand_server.event_kinds(job.id).count("probed") == 1
    assert [*sort_types(hand_server, job.id)] == ["a100"]


def test_below_d2_a_job_goes_on_only_where_it_began(hand_server: HandClockServer) -> None:
    job = hand_server.submit(run="python train.py long")
    hand_server.pass_s(10)
    home = hand_server.job(job.id).first_device_type
    assert sort_types(hand_server, job.id) == {home: 2}
    node = hand_server.reconciler.inventory.types.index(home)
    hand_server.reconciler.call(lambda: hand_server.operations.drain(f"node-{node}", 5.0))
    hand_server.pass_s(20)
    assert hand_server.job(job.id).devices == (), "the other type has idle devices, but would give other bits"
    hand_server.restart()
    hand_server.pass_s(5)
    assert hand_server.job(job.id).devices == ()
    hand_server.reconciler.call(lambda: hand_server.operations.undrain(f"node-{node}"))
    hand_server.pass_s(5)
    assert sort_types(hand_server, job.id) == {home: 2}


def test_at_d2_a_job_moves_to_the_other_type_when_its_own_is_drained(hand_server: HandClockServer) -> None:
    job = hand_server.submit(run="python train.py long", determinism="D2", device_types=["a100", "t4"], devices=2)
    hand_server.pass_s(10)
    (device_type,) = sort_types(hand_server, job.id)
    node = hand_server.reconciler.inventory.types.index(device_type)
    hand_server.reconciler.call(lambda: hand_server.operations.drain(f"node-{node}", 5.0))
    hand_server.pass_s(20)
    (other,) = sort_types(hand_server, job.id)
    assert other != device_type


def test_at_d2_faster_devices_run_more_logical_workers(hand_server: HandClockServer) -> None:
    orders = watch(hand_server)
    hand_server.submit(run="python train.py quick", deadline="10m", determinism="D2", name="measure")
    hand_server.pass_s(120)
    orders.clear()
    job = hand_server.submit(run="python train.py quick", determinism="D2")
    hand_server.pass_s(3)
    assert sort_types(hand_server, job.id) == {"a100": 2, "t4": 2}
    last = [order for order in orders if order.job == job.id][-1]
    given = dict(zip(last.devices, last.workers, strict=True))
    assert sum(given.values()) == 8
    assert given["a100:0"] == 3 and given["t4:0"] == 1


def test_a_promise_on_a_type_survives_a_restart_of_the_server(hand_server: HandClockServer) -> None:
    hand_server.submit(run="python train.py long", deadline="10h", name="measure")
    hand_server.pass_s(40)
    job = hand_server.submit(run="python train.py long", deadline="9h")
    assert job.promised and job.plan is not None and job.plan.device_type in ("a100", "t4")
    before = {name: view.promise for name, view in hand_server.reconciler.context.world.jobs.items()}
    hand_server.restart()
    assert {name: view.promise for name, view in hand_server.reconciler.context.world.jobs.items()} == before
    hand_server.pass_s(10)
    assert hand_server.job(job.id).promised and not hand_server.job(job.id).missed


def test_a_type_that_is_not_here_is_named(hand_server: HandClockServer) -> None:
    job = hand_server.submit(run="python train.py quick", device_types=["h100"])
    assert (job.state, job.reason) == (JobState.DECLINED, "no_such_device")
    assert "a100 and t4" in job.sentence


def test_more_devices_than_any_type_has_are_refused_below_d2(hand_server: HandClockServer) -> None:
    job = hand_server.submit(run="python train.py quick", devices=3)
    assert (job.state, job.reason) == (JobState.DECLINED, "exceeds_cluster")
    assert "2 a100, 2 t4" in job.sentence


def test_speeds_are_learned_from_a_job_on_several_types_and_its_workers_dealt_out_anew(
    hand_server: HandClockServer,
) -> None:
    hand_server.submit(run="python train.py quick", deadline="10m", determinism="D2", name="measure")
    hand_server.pass_s(120)
    hand_server.executor.scripts["quick"] = replace(LONG, seconds={**SECONDS, "a100": 0.02})
    orders = watch(hand_server)
    job = hand_server.submit(run="python train.py quick", determinism="D2", steps=100_000)
    hand_server.pass_s(60)
    reconciler = hand_server.reconciler
    known = look_up(hand_server.job(job.id), reconciler.context.staging.speeds, reconciler.inventory).speeds
    assert sort_types(hand_server, job.id) == {"a100": 2, "t4": 2}
    assert known["a100"].points[1][1] == pytest.approx(1 / (8 * 0.02), rel=0.15)
    assert known["t4"].points[1][1] == pytest.approx(5.0, rel=0.15)
    assert [order.workers for order in orders if order.job == job.id] == [(3, 3, 1, 1), (2, 2, 2, 2)]
    assert orders[-1].devices == orders[-2].devices, "no process is started or ended for it"


def test_a_job_that_fails_on_one_type_is_answered_by_the_other(hand_server: HandClockServer) -> None:
    job = hand_server.submit(run="python train.py quick", deadline="10m")
    while hand_server.event_kinds(job.id).count("probed") == 0:
        hand_server.pass_s(0.5)
    record = hand_server.job(job.id)
    assert sort_types(hand_server, job.id) == {"t4": 2}
    failed = Failed(
        job=job.id, generation=record.generation, step=0, exit_code=1, reason="out of memory", user_fault=True
    )
    hand_server.reconciler.dirty |= hand_server.reconciler.event_handler.handle(failed)
    hand_server.pass_s(1)
    assert "probe_failed" in hand_server.event_kinds(job.id)
    assert hand_server.job(job.id).promised
    assert [*sort_types(hand_server, job.id)] == ["a100"]


def test_a_job_without_a_step_fails_and_is_not_measured_for_ever(hand_server: HandClockServer) -> None:
    job = hand_server.submit(run="python train.py quick", deadline="10m")
    generation = hand_server.job(job.id).generation
    hand_server.reconciler.event_handler.handle(
        Probed(job=job.id, generation=generation, points=(), startup_s=1.0, pause_s=None)
    )
    record = hand_server.reconciler.context.staging.jobs[job.id]
    assert (record.state, record.reason) == (JobState.FAILED, "no_steps")


def test_speed_on_a_type_that_a_job_may_not_use_is_no_speed(hand_server: HandClockServer) -> None:
    hand_server.submit(run="python train.py quick", deadline="10m", device_types=["a100"])
    hand_server.submit(run="python train.py long", deadline="10h", device_types=["t4"], devices=2)
    hand_server.pass_s(60)
    hand_server.submit(run="python train.py long", deadline="160s", device_types=["t4"], devices=2, steps=2000)
    planned = check_job({"run": "python train.py quick", "device_types": ["t4"], "deadline": "1h"}, "test")
    assert hand_server.operations.plan(Submission(planned, hand_server.code(), "ann")).reason == "unknown_speed"
    bound = hand_server.submit(run="python train.py quick", deadline="1h", device_types=["t4"])
    hand_server.pass_s(1)
    assert (hand_server.job(bound.id).state, hand_server.job(bound.id).reason) == (
        JobState.WAITLISTED,
        "no_device_for_probe",
    )
    assert not hand_server.reconciler.dirty, "nothing is to be decided until a device is free"
