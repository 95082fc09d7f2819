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
def stage(tmp_path: Path) -> HandClockServer:
    return HandClockServer(tmp_path, scripts={"short": FakeJob(total_steps=400, speeds={1: 10.0, 2: 18.0})})


def measure(stage: HandClockServer, **keys: object) -> str:
    job = check_job({"run": RUN, "name": "mine", **keys}, "test")
    future = stage.reconciler.call(lambda: stage.operations.measure(Submission(job, stage.code(), "ann")))
    stage.reconciler.step()
    return future.result(timeout=0)


def plan(stage: HandClockServer, **keys: object) -> str:
    return stage.operations.plan(Submission(check_job({"run": RUN, **keys}, "test"), stage.code(), "ann")).state


@pytest.mark.parametrize("restarts", [False, True])
def test_it_is_measured_and_ends(stage: HandClockServer, restarts: bool) -> None:
    assert plan(stage, deadline="1s") == "unknown"
    job_id = measure(stage, deadline="1s")
    assert (stage.job(job_id).name, stage.job(job_id).state) == ("plan-mine", JobState.PROBING)
    if restarts:
        stage.restart()
    stage.pass_s(20)
    record = stage.job(job_id)
    assert (record.state, record.reason, record.first_start_s) == (JobState.CANCELLED, "measured", None)
    assert stage.event_kinds(job_id) == ["submitted", "probing", "probed", "cancelled"]
    assert stage.executor.running() == ()
    assert record.measure_only
    assert (plan(stage, deadline="1s"), plan(stage, deadline="1h")) == ("declined", "admitted")


def test_where_promises_hold_every_device_it_waits(stage: HandClockServer) -> None:
    first = stage.submit(run=RUN, deadline="1h", devices=2)
    stage.pass_s(20)
    assert stage.job(first.id).state is JobState.RUNNING
    tight = stage.submit(run=RUN, deadline="40s", devices=2)
    assert tight.state in (JobState.ADMITTED, JobState.OFFERED, JobState.WAITLISTED)
    waiting = measure(stage, run="python train.py other")
    assert stage.job(waiting).state in (JobState.PROBING, JobState.WAITLISTED)
    stage.pass_s(200)
    assert stage.job(waiting).reason == "measured"
