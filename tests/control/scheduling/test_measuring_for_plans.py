"""Plans that have unknown code measured: nothing but a probe runs, and it waits for its turn like any other."""

from pathlib import Path

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.control.scheduling.submissions import Submission
from springtide.core.job_file import check_job
from springtide.core.job_states import JobState
from springtide.executors.fake import FakeJob

RUN = "python train.py short"


@pytest.fixture
def hand_server(tmp_path: Path) -> HandClockServer:
    return HandClockServer(tmp_path, scripts={"short": FakeJob(total_steps=400, speeds={1: 10.0, 2: 18.0})})


def measure(hand_server: HandClockServer, **keys: object) -> str:
    job = check_job({"run": RUN, "name": "mine", **keys}, "test")
    future = hand_server.reconciler.call(
        lambda: hand_server.operations.measure(Submission(job, hand_server.code(), "ann"))
    )
    hand_server.reconciler.step()
    return future.result(timeout=0)


def plan(hand_server: HandClockServer, **keys: object) -> str:
    return hand_server.operations.plan(
        Submission(check_job({"run": RUN, **keys}, "test"), hand_server.code(), "ann")
    ).state


@pytest.mark.parametrize("restarts", [False, True])
def test_it_is_measured_and_ends(hand_server: HandClockServer, restarts: bool) -> None:
    assert plan(hand_server, deadline="1s") == "unknown"
    job_id = measure(hand_server, deadline="1s")
    assert (hand_server.job(job_id).name, hand_server.job(job_id).state) == ("plan-mine", JobState.PROBING)
    if restarts:
        hand_server.restart()
    hand_server.pass_s(20)
    record = hand_server.job(job_id)
    assert (record.state, record.reason, record.first_start_s) == (JobState.CANCELLED, "measured", None)
    assert hand_server.event_kinds(job_id) == ["submitted", "probing", "probed", "cancelled"]
    assert hand_server.executor.running() == ()
    assert record.measure_only
    assert (plan(hand_server, deadline="1s"), plan(hand_server, deadline="1h")) == ("declined", "admitted")


def test_where_promises_hold_every_device_it_waits(hand_server: HandClockServer) -> None:
    first = hand_server.submit(run=RUN, deadline="1h", devices=2)
    hand_server.pass_s(20)
    assert hand_server.job(first.id).state is JobState.RUNNING
    tight = hand_server.submit(run=RUN, deadline="40s", devices=2)
    assert tight.state in (JobState.ADMITTED, JobState.OFFERED, JobState.WAITLISTED)
    waiting = measure(hand_server, run="python train.py other")
    assert hand_server.job(waiting).state in (JobState.PROBING, JobState.WAITLISTED)
    hand_server.pass_s(200)
    assert hand_server.job(waiting).reason == "measured"
