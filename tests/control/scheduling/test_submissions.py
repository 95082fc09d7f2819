"""Limits of one user, wherever a promise could exceed them: submitted, planned, just measured, resumed."""

from pathlib import Path
from typing import Any

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.control.scheduling import means
from springtide.control.scheduling.submissions import Submission
from springtide.control.storage.records import JobRecord, UserRecord
from springtide.core.curves import Curve
from springtide.core.job_file import check_job
from springtide.core.job_states import JobState
from springtide.core.jobs import Job, JobId, Overhead
from springtide.errors import LimitError
from springtide.executors.fake import FakeJob

RUN = "python train.py short"


@pytest.fixture
def hand_server(tmp_path: Path) -> HandClockServer:
    server = HandClockServer(tmp_path, scripts={"short": FakeJob(total_steps=400, speeds={1: 10.0, 2: 18.0})})
    for name in ("ann", "bob"):
        server.store.put_user(UserRecord(name, f"hash of {name}"))
    return server


def limit(hand_server: HandClockServer, device_s: float | None = None, most_active: int | None = None) -> None:
    hand_server.store.put_user(UserRecord("ann", "hash", quota_device_s=device_s, most_active=most_active))


def make_known(hand_server: HandClockServer) -> None:
    hand_server.submit(run=RUN, deadline="1h", user="bob", devices=1)
    hand_server.pass_s(120)


def test_a_job_that_was_unknown_is_measured_and_then_declined(hand_server: HandClockServer) -> None:
    limit(hand_server, 10.0)
    record = hand_server.submit(run=RUN, deadline="1h")
    assert record.state is JobState.PROBING
    hand_server.pass_s(20)
    record = hand_server.job(record.id)
    assert (record.state, record.reason) == (JobState.DECLINED, "quota_exceeded")
    assert "of the quota of 10, 10 are left for user ann, which is enough for" in record.sentence
    assert hand_server.executor.running() == ()
    assert hand_server.submit(run=RUN, deadline="1h", user="bob").state is JobState.ADMITTED


def test_jobs_that_come_together_count_together(hand_server: HandClockServer) -> None:
    make_known(hand_server)
    limit(hand_server, 70.0)
    code = hand_server.code()
    asked = [
        hand_server.reconciler.call(
            lambda: hand_server.operations.submit(
                Submission(check_job({"run": RUN, "deadline": "1h"}, "test"), code, "ann")
            )
        )
        for _ in range(4)
    ]
    hand_server.reconciler.step()
    states = [hand_server.job(future.result(timeout=0)).state for future in asked]
    assert states == [JobState.ADMITTED, JobState.DECLINED, JobState.DECLINED, JobState.DECLINED]


def test_best_effort_work_counts_too(hand_server: HandClockServer) -> None:
    make_known(hand_server)
    limit(hand_server, 70.0)
    assert hand_server.submit(run=RUN).active
    second = hand_server.submit(run=RUN)
    assert (second.state, second.reason) == (JobState.DECLINED, "quota_exceeded")
    assert hand_server.submit(run=RUN, user="bob").active
    hand_server.pass_s(60)
    assert hand_server.submit(run=RUN).active  # what was done is not outstanding any more


def test_unknown_code_waits_while_a_quota_is_spent(hand_server: HandClockServer) -> None:
    make_known(hand_server)
    limit(hand_server, 70.0)
    hand_server.submit(run=RUN)
    limit(hand_server, 1.0)
    unknown = hand_server.submit(run="python train.py unseen")
    assert unknown.sentence == "the quota of 1 device-seconds of user ann is taken up by their other jobs"


@pytest.mark.parametrize(
    ("told", "remedy"),
    [({"elastic": False, "devices": 1}, "duration: in its file would tell"), ({"run": RUN}, "steps: in its file")],
    ids=["rigid", "unmeasured"],
)
def test_a_job_that_tells_no_length_takes_up_the_rest_of_a_quota(
    hand_server: HandClockServer, told: dict[str, Any], remedy: str
) -> None:
    limit(hand_server, 100.0)
    first = hand_server.submit(**told)
    assert first.active
    for other in (told, {"elastic": False, "duration": "5s", "devices": 1}):
        second = hand_server.submit(**other)
        assert (second.state, second.reason) == (JobState.DECLINED, "quota_exceeded")
        assert f"taken up by job {first.name}, of which nobody knows how long it takes" in second.sentence
        assert remedy in second.sentence
    assert hand_server.submit(user="bob", **told).active
    cancel(hand_server, first)
    assert hand_server.submit(**told).active


def test_a_job_that_tells_its_length_leaves_the_rest_of_a_quota(hand_server: HandClockServer) -> None:
    limit(hand_server, 100.0)
    asked = [hand_server.submit(elastic=False, duration="30s", devices=1) for _ in range(4)]
    assert [record.active for record in asked] == [True, True, False, False]


def test_a_plan_says_what_a_submission_would_be_told(hand_server: HandClockServer) -> None:
    make_known(hand_server)
    limit(hand_server, 10.0)
    job = check_job({"run": RUN, "deadline": "1h"}, "test")
    told = hand_server.operations.plan(Submission(job, hand_server.code(), "ann"))
    assert (told.state, told.reason) == ("declined", "quota_exceeded")
    assert hand_server.operations.plan(Submission(job, hand_server.code(), "bob")).state == "admitted"


def test_the_plan_of_a_gang_shows_no_speed_that_nobody_measured(hand_server: HandClockServer) -> None:
    job = check_job({"run": RUN, "elastic": False, "devices": 1}, "test")
    told = hand_server.operations.plan(Submission(job, hand_server.code(), "ann"))
    assert (told.state, told.shares, told.total_steps, told.cost_usd) == ("admitted", (), None, None)


def test_a_job_goes_on_only_within_the_limits(hand_server: HandClockServer) -> None:
    make_known(hand_server)
    limit(hand_server)
    record = hand_server.submit(run=RUN, deadline="1h", devices=1)
    cancel(hand_server, record)
    limit(hand_server, 10.0)
    with pytest.raises(LimitError, match="of the quota of 10"):
        hand_server.operations.resume(record.id, hand_server.find_step(record.id))
    limit(hand_server, most_active=0)
    with pytest.raises(LimitError, match="the limit is 0"):
        hand_server.operations.resume(record.id, hand_server.find_step(record.id))
    assert hand_server.job(record.id).state is JobState.CANCELLED
    limit(hand_server)
    hand_server.operations.resume(record.id, hand_server.find_step(record.id))


def cancel(hand_server: HandClockServer, record: JobRecord) -> None:
    hand_server.reconciler.call(lambda: hand_server.operations.cancel(record.id, "ann"))
    hand_server.reconciler.step()


def test_the_work_that_fits_takes_what_is_left() -> None:
    curve = Curve((1, 2, 4), (10.0, 15.0, 20.0))
    job = Job(JobId("a"), 1, 0.0, 400.0, curve, overhead=Overhead(start_s=5.0))
    assert means.least_device_s(job) == 45.0
    assert means.most_work(job, 45.0) == 400.0
    assert means.most_work(job, 3.0) == 0.0
    assert means.least_device_s(job, 100.0) == 15.0
