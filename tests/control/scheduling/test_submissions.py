"""Limits of one user, wherever a promise could exceed them: submitted, planned, just measured, resumed."""

from pathlib import Path

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.control.scheduling import submissions
from springtide.control.scheduling.submissions import LimitError, Submission
from springtide.control.storage.records import JobRecord, UserRecord
from springtide.core.curves import Curve
from springtide.core.job_file import check_job
from springtide.core.job_states import JobState
from springtide.core.jobs import Job, JobId, Overhead
from springtide.executors.fake import FakeJob

RUN = "python train.py short"


@pytest.fixture
def stage(tmp_path: Path) -> HandClockServer:
    return HandClockServer(tmp_path, scripts={"short": FakeJob(total_steps=400, speeds={1: 10.0, 2: 18.0})})


def limit(stage: HandClockServer, device_s: float | None = None, most_active: int | None = None) -> None:
    stage.store.put_user(UserRecord("ann", "hash", quota_device_s=device_s, most_active=most_active))


def make_known(stage: HandClockServer) -> None:
    stage.submit(run=RUN, deadline="1h", user="bob", devices=1)
    stage.pass_s(120)


def test_a_job_that_was_unknown_is_measured_and_then_declined(stage: HandClockServer) -> None:
    limit(stage, 10.0)
    record = stage.submit(run=RUN, deadline="1h")
    assert record.state is JobState.PROBING
    stage.pass_s(20)
    record = stage.job(record.id)
    assert (record.state, record.reason) == (JobState.DECLINED, "quota_exceeded")
    assert "of the quota of 10, 10 are left for user ann, which is enough for" in record.sentence
    assert stage.executor.running() == ()
    assert stage.submit(run=RUN, deadline="1h", user="bob").state is JobState.ADMITTED


def test_jobs_that_come_together_count_together(stage: HandClockServer) -> None:
    make_known(stage)
    limit(stage, 70.0)
    code = stage.code()
    asked = [
        stage.reconciler.call(
            lambda: stage.operations.submit(Submission(check_job({"run": RUN, "deadline": "1h"}, "test"), code, "ann"))
        )
        for _ in range(4)
    ]
    stage.reconciler.step()
    states = [stage.job(future.result(timeout=0)).state for future in asked]
    assert states == [JobState.ADMITTED, JobState.DECLINED, JobState.DECLINED, JobState.DECLINED]


def test_a_plan_says_what_a_submission_would_be_told(stage: HandClockServer) -> None:
    make_known(stage)
    limit(stage, 10.0)
    job = check_job({"run": RUN, "deadline": "1h"}, "test")
    told = stage.operations.plan(Submission(job, stage.code(), "ann"))
    assert (told.state, told.reason) == ("declined", "quota_exceeded")
    assert stage.operations.plan(Submission(job, stage.code(), "bob")).state == "admitted"


def test_a_job_goes_on_only_within_the_limits(stage: HandClockServer) -> None:
    make_known(stage)
    record = stage.submit(run=RUN, deadline="1h", devices=1)
    cancel(stage, record)
    limit(stage, 10.0)
    with pytest.raises(LimitError, match="of the quota of 10"):
        stage.operations.resume(record.id)
    limit(stage, most_active=0)
    with pytest.raises(LimitError, match="the limit is 0"):
        stage.operations.resume(record.id)
    assert stage.job(record.id).state is JobState.CANCELLED
    limit(stage)
    stage.operations.resume(record.id)


def cancel(stage: HandClockServer, record: JobRecord) -> None:
    stage.reconciler.call(lambda: stage.operations.cancel(record.id, "ann"))
    stage.reconciler.step()


def test_the_work_that_fits_takes_what_is_left() -> None:
    curve = Curve((1, 2, 4), (10.0, 15.0, 20.0))
    job = Job(JobId("a"), 1, 0.0, 400.0, curve, overhead=Overhead(start_s=5.0))
    assert submissions.least_device_s(job) == 45.0
    assert submissions.most_work(job, 45.0) == 400.0
    assert submissions.most_work(job, 3.0) == 0.0
    assert submissions.least_device_s(job, 100.0) == 15.0
