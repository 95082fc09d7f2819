"""A policy that fails costs the decision it was asked for and nothing else: newcomers wait, and it is asked again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.control.hand_clock import HandClockServer
from tests.control.http_servers import OPTIONS, connect, run_server, write_project
from tests.control.scheduling.test_reconciler import check_consistency

from springtide.control.api.explanations import explain
from springtide.control.api.prometheus import write_metrics
from springtide.control.scheduling.context import ServerOptions
from springtide.control.scheduling.reconciler import FAILURES, RETRY_S
from springtide.control.scheduling.submissions import Submission
from springtide.core.decisions import Answer, Decision, Snapshot, Status
from springtide.core.job_file import check_job
from springtide.core.job_states import JobState
from springtide.executors.fake import FakeJob
from springtide.policies.springtide import springtide

FAULTS: list[str] = []  # what goes wrong with the next calls of the policy, the last one first
SCRIPTS = {"long": FakeJob(total_steps=400, speeds={1: 10.0, 2: 18.0})}


def faulty(now_s: float, snapshot: Snapshot) -> Decision:
    """The policy of the platform, as long as nothing goes wrong with it."""
    fault = FAULTS.pop() if FAULTS else ""
    if fault == "raises":
        raise ZeroDivisionError("no devices at all")
    if fault == "refused":
        return Decision(answers={job_id: Answer(Status.FINISHED) for job_id in snapshot.changes.arrived})
    return springtide(now_s, snapshot)


@pytest.fixture(autouse=True)
def faults() -> Iterator[None]:
    FAULTS.clear()
    yield
    FAULTS.clear()


@pytest.fixture
def stage(tmp_path: Path) -> HandClockServer:
    return HandClockServer(tmp_path, scripts=SCRIPTS, options=ServerOptions(policy=f"{__name__}:faulty"))


@pytest.mark.parametrize("fault", ["raises", "refused"])
def test_a_newcomer_waits_and_is_answered_soon(stage: HandClockServer, fault: str) -> None:
    running = stage.submit(run="python train.py long").id
    stage.pass_s(5)
    before, jobs = stage.job(running).devices, dict(stage.reconciler.context.world.jobs)
    FAULTS.append(fault)
    record = stage.submit(run="python train.py long")
    assert (record.state, record.reason, record.answered_s) == (JobState.WAITLISTED, "policy_failed", None)
    assert "nothing was decided, and it is asked again" in record.sentence
    assert stage.job(running).devices == before
    assert {job: stage.reconciler.context.world.jobs[job].devices for job in jobs} == {
        job: view.devices for job, view in jobs.items()
    }
    check_consistency(stage)
    stage.pass_s(2 * RETRY_S)
    assert stage.job(record.id).state in (JobState.ADMITTED, JobState.RUNNING)
    stage.pass_s(100)
    assert [stage.job(job).state for job in (running, record.id)] == [JobState.SUCCEEDED, JobState.SUCCEEDED]


def test_it_is_told_in_why_an_event_the_log_and_a_metric(
    stage: HandClockServer, caplog: pytest.LogCaptureFixture
) -> None:
    FAULTS.extend(["raises"] * 3)
    record = stage.submit(run="python train.py long")
    stage.pass_s(0.5)
    told = explain(stage.job(record.id), [], stage.store.events(record.id), [], stage.source.wall)
    assert told.reason == "policy_failed" and "ZeroDivisionError: no devices at all" in told.sentence
    kinds = [event.kind for event in stage.store.events(None)]
    assert kinds.count("policy_failed") == stage.store.fact(FAILURES) == 1
    assert "ZeroDivisionError" in caplog.text
    page = write_metrics(stage.store, stage.reconciler.context.inventory, stage.source.wall)
    assert "springtide_policy_failures_total 1.0" in page
    stage.pass_s(30)
    assert stage.store.fact(FAILURES) == 3
    assert stage.event_kinds(record.id).count("waitlisted") == 1, "it is told once"


def test_a_change_asks_again_at_once(stage: HandClockServer) -> None:
    FAULTS.append("raises")
    first = stage.submit(run="python train.py long")
    second = stage.submit(run="python train.py long")
    assert [stage.job(one.id).state for one in (first, second)] == [JobState.ADMITTED, JobState.ADMITTED]


def test_a_server_that_starts_anew_asks_again(stage: HandClockServer) -> None:
    FAULTS.append("raises")
    record = stage.submit(run="python train.py long")
    stage.restart()
    stage.reconciler.step()
    assert stage.job(record.id).state is JobState.ADMITTED


def test_a_drain_goes_on_when_the_policy_fails(tmp_path: Path) -> None:
    options = ServerOptions(policy=f"{__name__}:faulty")
    stage = HandClockServer(tmp_path, devices=4, nodes=2, scripts=SCRIPTS, options=options)
    job = stage.submit(run="python train.py long", deadline="10m").id
    stage.pass_s(10)
    assert stage.job(job).promised
    FAULTS.extend(["raises"] * 2)
    future = stage.reconciler.call(lambda: stage.operations.drain("node-1", 5.0))
    stage.pass_s(10)
    future.result(timeout=0)
    assert not {"cpu:2", "cpu:3"} & {name for one in stage.executor.running() for name in one.devices}
    stage.pass_s(120)
    assert (stage.job(job).state, stage.job(job).missed) == (JobState.SUCCEEDED, "")


def test_a_plan_says_that_the_policy_fails(stage: HandClockServer) -> None:
    stage.submit(run="python train.py long", deadline="10m")
    stage.pass_s(100)
    FAULTS.append("raises")
    job = check_job({"run": "python train.py long", "deadline": "10m"}, "test")
    told = stage.operations.plan(Submission(job, stage.code(), "ann"))
    assert (told.state, told.reason, told.promised) == ("waitlisted", "policy_failed", False)


def test_over_http_nobody_gets_an_error(tmp_path: Path) -> None:
    options = ServerOptions(policy=f"{__name__}:faulty", rate_per_s=OPTIONS.rate_per_s, burst=OPTIONS.burst)
    with run_server(tmp_path, options) as server, connect(server) as client:
        FAULTS.append("raises")
        answer = client.submit(write_project(tmp_path / "p"), wait=False)
        assert (answer.state, answer.reason) == ("waitlisted", "policy_failed")
        assert client.wait(answer.id).state == "succeeded"
        assert client.server().document["promises"] is False
