"""A policy that fails costs the decision it was asked for and nothing else: newcomers wait, and it is asked again."""

from collections.abc import Iterator
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import pytest
from tests.control.hand_clock import HandClockServer
from tests.control.http_servers import OPTIONS, connect, run_server, write_project
from tests.control.scheduling.test_reconciler import check_consistency

from springtide.control.api.explanations import explain
from springtide.control.api.platform.prometheus import write_metrics
from springtide.control.scheduling import job_changes
from springtide.control.scheduling.loop.alarms import RETRY_S
from springtide.control.scheduling.reconciler import FAILURES
from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.scheduling.submissions import Submission
from springtide.control.storage.staging import Effects, Staging
from springtide.core.decisions import Answer, Decision, Snapshot, Status
from springtide.core.job_file import check_job
from springtide.core.job_states import JobState
from springtide.core.jobs import Job
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
    decision = springtide(now_s, snapshot)
    return replace(decision, wake_at_s=nan) if fault == "no number" else decision


@pytest.fixture(autouse=True)
def faults() -> Iterator[None]:
    FAULTS.clear()
    yield
    FAULTS.clear()


@pytest.fixture
def hand_server(tmp_path: Path) -> HandClockServer:
    return HandClockServer(tmp_path, scripts=SCRIPTS, options=ServerOptions(policy=f"{__name__}:faulty"))


@pytest.mark.parametrize("fault", ["raises", "refused", "no number"])
def test_a_newcomer_waits_and_is_answered_soon(hand_server: HandClockServer, fault: str) -> None:
    running = hand_server.submit(run="python train.py long").id
    hand_server.pass_s(5)
    before, jobs = hand_server.job(running).devices, dict(hand_server.reconciler.context.world.jobs)
    FAULTS.append(fault)
    record = hand_server.submit(run="python train.py long")
    assert (record.state, record.reason, record.answered_s) == (JobState.WAITLISTED, "policy_failed", None)
    assert "nothing was decided, and it is asked again" in record.sentence
    assert hand_server.job(running).devices == before
    assert {job: hand_server.reconciler.context.world.jobs[job].devices for job in jobs} == {
        job: view.devices for job, view in jobs.items()
    }
    check_consistency(hand_server)
    hand_server.pass_s(2 * RETRY_S)
    assert hand_server.job(record.id).state in (JobState.ADMITTED, JobState.RUNNING)
    hand_server.pass_s(100)
    assert [hand_server.job(job).state for job in (running, record.id)] == [JobState.SUCCEEDED, JobState.SUCCEEDED]


def test_it_is_told_in_why_an_event_the_log_and_a_metric(
    hand_server: HandClockServer, caplog: pytest.LogCaptureFixture
) -> None:
    FAULTS.extend(["raises"] * 3)
    record = hand_server.submit(run="python train.py long")
    hand_server.pass_s(0.5)
    told = explain(hand_server.job(record.id), [], hand_server.store.events(record.id), [], hand_server.source.wall)
    assert told.reason == "policy_failed" and "ZeroDivisionError: no devices at all" in told.sentence
    kinds = [event.kind for event in hand_server.store.events(None)]
    assert kinds.count("policy_failed") == hand_server.store.fact(FAILURES) == 1
    assert "ZeroDivisionError" in caplog.text
    page = write_metrics(hand_server.store, hand_server.reconciler.inventory, hand_server.source.wall)
    assert "springtide_policy_failures_total 1.0" in page
    hand_server.pass_s(30)
    assert hand_server.store.fact(FAILURES) == 3
    assert hand_server.event_kinds(record.id).count("waitlisted") == 1, "it is told once"


def test_a_change_asks_again_at_once(hand_server: HandClockServer) -> None:
    FAULTS.append("raises")
    first = hand_server.submit(run="python train.py long")
    second = hand_server.submit(run="python train.py long")
    assert [hand_server.job(one.id).state for one in (first, second)] == [JobState.ADMITTED, JobState.ADMITTED]


def test_a_server_that_starts_anew_asks_again(hand_server: HandClockServer) -> None:
    FAULTS.append("raises")
    record = hand_server.submit(run="python train.py long")
    hand_server.restart()
    hand_server.reconciler.step()
    assert hand_server.job(record.id).state is JobState.ADMITTED


def test_a_drain_goes_on_when_the_policy_fails(tmp_path: Path) -> None:
    options = ServerOptions(policy=f"{__name__}:faulty")
    hand_server = HandClockServer(tmp_path, devices=4, nodes=2, scripts=SCRIPTS, options=options)
    job = hand_server.submit(run="python train.py long", deadline="10m").id
    hand_server.pass_s(10)
    assert hand_server.job(job).promised
    FAULTS.extend(["raises"] * 2)
    future = hand_server.reconciler.call(lambda: hand_server.operations.drain("node-1", 5.0))
    hand_server.pass_s(10)
    future.result(timeout=0)
    assert not {"cpu:2", "cpu:3"} & {name for one in hand_server.executor.running() for name in one.devices}
    hand_server.pass_s(120)
    assert (hand_server.job(job).state, hand_server.job(job).missed) == (JobState.SUCCEEDED, "")


def test_a_plan_says_that_the_policy_fails(hand_server: HandClockServer) -> None:
    hand_server.submit(run="python train.py long", deadline="10m")
    hand_server.pass_s(100)
    FAULTS.append("raises")
    job = check_job({"run": "python train.py long", "deadline": "10m"}, "test")
    told = hand_server.operations.plan(Submission(job, hand_server.code(), "ann"))
    assert (told.state, told.reason, told.promised) == ("waitlisted", "policy_failed", False)


def test_over_http_nobody_gets_an_error(tmp_path: Path) -> None:
    options = ServerOptions(policy=f"{__name__}:faulty", rate_per_s=OPTIONS.rate_per_s, burst=OPTIONS.burst)
    with run_server(tmp_path, options) as server, connect(server) as client:
        server.reconciler.call(lambda: None).result(timeout=30)  # the first decision, of a server's start, is made
        FAULTS.append("raises")
        answer = client.submit(write_project(tmp_path / "p"), wait=False)
        assert (answer.state, answer.reason) == ("waitlisted", "policy_failed")
        assert client.wait(answer.id).state == "succeeded"
        assert client.server().document["promises"] is False


POISON: list[str] = []  # jobs of which the policy cannot bear to hear


def choking(now_s: float, snapshot: Snapshot) -> Decision:
    """A policy that fails whenever one of some jobs has no answer yet, in words that differ each time."""
    for job_id, view in snapshot.jobs.items():
        if job_id in POISON and view.status is Status.PENDING:
            raise ZeroDivisionError(f"at {now_s}")
    return faulty(now_s, snapshot)


@pytest.fixture
def choking_server(tmp_path: Path) -> Iterator[HandClockServer]:
    POISON.clear()
    yield HandClockServer(tmp_path, scripts=SCRIPTS, options=ServerOptions(policy=f"{__name__}:choking"))
    POISON.clear()


def submit_poison(server: HandClockServer) -> str:
    """A job that is poison from the moment it is there."""
    submission = Submission(check_job({"run": "python train.py long"}, "test"), server.code(), "ann")

    def submit() -> str:
        POISON.append(server.operations.submit(submission))
        return POISON[-1]

    future = server.reconciler.call(submit)
    server.reconciler.step()
    return future.result(timeout=0)


@pytest.mark.parametrize("before", [True, False], ids=["first", "last"])
def test_a_newcomer_with_which_no_decision_can_be_made_is_held(choking_server: HandClockServer, before: bool) -> None:
    server = choking_server
    known = server.submit(run="python train.py long")  # its speed is known afterwards
    server.pass_s(60)
    assert server.job(known.id).state is JobState.SUCCEEDED
    bad = submit_poison(server) if before else ""
    good = server.submit(run="python train.py long").id
    bad = bad or submit_poison(server)
    other = server.submit(run="python train.py long").id
    server.pass_s(120)
    assert [server.job(one).state for one in (good, other)] == [JobState.SUCCEEDED, JobState.SUCCEEDED]
    held = server.job(bad)
    assert (held.state, held.reason) == (JobState.PAUSED, "quarantined") and "no decision can be made" in held.sentence
    assert [(one.kind, one.job) for one in server.store.list_quarantine()] == [("decision", bad)]
    server.restart()
    server.pass_s(5)
    assert server.job(bad).state is JobState.PAUSED
    POISON.clear()
    server.reconciler.call(lambda: server.operations.resume(bad, server.find_step(bad)))
    server.pass_s(60)
    assert server.job(bad).state is JobState.SUCCEEDED


def test_a_policy_that_fails_by_itself_costs_no_newcomer_its_place(hand_server: HandClockServer) -> None:
    records = [hand_server.submit(run="python train.py long") for _ in range(2)]
    FAULTS.extend(["raises"] * 10**4)
    waiting = hand_server.submit(run="python train.py long")
    hand_server.pass_s(120)
    assert hand_server.job(waiting.id).state is JobState.WAITLISTED and hand_server.store.list_quarantine() == []
    FAULTS.clear()
    hand_server.pass_s(180)
    assert {hand_server.job(one.id).state for one in (*records, waiting)} == {JobState.SUCCEEDED}


def test_a_policy_that_failed_three_times_and_recovers_costs_nobody_a_place(hand_server: HandClockServer) -> None:
    FAULTS.extend(["raises"] * 3)
    record = hand_server.submit(run="python train.py long")
    hand_server.pass_s(90)
    assert hand_server.job(record.id).state is JobState.SUCCEEDED and hand_server.store.list_quarantine() == []


def is_held(server: HandClockServer, job_id: str) -> bool:
    """Whether a job was put aside."""
    return (server.job(job_id).state, server.job(job_id).reason) == (JobState.PAUSED, "quarantined")


def run_known(server: HandClockServer) -> None:
    """One job to its end, so that the speed of all that follow is known."""
    known = server.submit(run="python train.py long")
    server.pass_s(60)
    assert server.job(known.id).state is JobState.SUCCEEDED


def refusing_newcomers(now_s: float, snapshot: Snapshot) -> Decision:
    """A policy that fails with any newcomer at all, once there is poison."""
    if POISON and any(view.status is Status.PENDING for view in snapshot.jobs.values()):
        raise ZeroDivisionError(f"at {now_s}")
    return faulty(now_s, snapshot)


@pytest.mark.parametrize("count", [1, 2, 12])
def test_a_policy_that_fails_with_any_newcomer_holds_nobody(tmp_path: Path, count: int) -> None:
    options = ServerOptions(policy=f"{__name__}:refusing_newcomers")
    server = HandClockServer(tmp_path, scripts=SCRIPTS, options=options)
    run_known(server)
    running = server.submit(run="python train.py long").id
    POISON.append("anybody")
    waiting = [server.submit(run="python train.py long").id for _ in range(count)]
    server.pass_s(90)
    assert server.store.list_quarantine() == [] and server.job(running).state is JobState.SUCCEEDED
    POISON.clear()
    server.pass_s(120 + 50 * count)
    assert {server.job(one).state for one in waiting} == {JobState.SUCCEEDED}


def test_a_poisoned_newcomer_that_is_alone_does_not_keep_those_who_wait(choking_server: HandClockServer) -> None:
    server = choking_server
    run_known(server)
    rest = [server.submit(run="python train.py long", elastic=False, duration="10m", devices=2).id for _ in range(2)]
    bad = submit_poison(server)
    server.pass_s(180)
    assert is_held(server, bad)
    assert [server.job(one).state for one in rest] == [JobState.SUCCEEDED] * 2


@pytest.mark.parametrize("order", ["bgb", "bbg", "gbb"])
def test_two_poisoned_newcomers_are_held_and_the_good_one_runs(choking_server: HandClockServer, order: str) -> None:
    server = choking_server
    run_known(server)
    jobs = [(kind, submit_poison(server) if kind == "b" else submit_quietly(server)) for kind in order]
    server.pass_s(120)
    assert [is_held(server, job_id) for _, job_id in jobs] == [kind == "b" for kind, _ in jobs]
    assert [server.job(one).state for kind, one in jobs if kind == "g"] == [JobState.SUCCEEDED]


def submit_quietly(server: HandClockServer) -> str:
    """A job that is submitted while the policy fails, so that it has no answer yet."""
    if not POISON:
        FAULTS.append("raises")
    return server.submit(run="python train.py long").id


@pytest.mark.parametrize("before", [True, False], ids=["first", "last"])
def test_an_array_that_is_poison_counts_as_one(choking_server: HandClockServer, before: bool) -> None:
    server = choking_server
    run_known(server)
    good = "" if before else submit_quietly(server)
    job = check_job({"run": "python train.py long", "sweep": {"grid": {"lr": list(range(10))}}}, "test")
    submission = Submission(job, server.code(), "ann")

    def submit() -> None:
        POISON.extend(server.operations.submit_array(submission))

    future = server.reconciler.call(submit)
    server.reconciler.step()
    future.result(timeout=0)
    good = good or submit_quietly(server)
    server.pass_s(120)
    assert len(POISON) == 10 and all(is_held(server, one) for one in POISON)
    assert server.job(good).state is JobState.SUCCEEDED


def test_a_culprit_older_than_many_is_found(choking_server: HandClockServer) -> None:
    server = choking_server
    run_known(server)
    bad = submit_poison(server)
    good = [submit_quietly(server) for _ in range(12)]
    server.pass_s(400)
    assert is_held(server, bad) and len(server.store.list_quarantine()) == 1
    assert {server.job(one).state for one in good} == {JobState.SUCCEEDED}


def crowded(now_s: float, snapshot: Snapshot) -> Decision:
    """A policy that cannot bear two of some newcomers at a time."""
    if sum(view.status is Status.PENDING and job_id in POISON for job_id, view in snapshot.jobs.items()) > 1:
        raise ZeroDivisionError(f"at {now_s}")
    return faulty(now_s, snapshot)


def test_newcomers_that_are_poison_together_do_not_stop_others(tmp_path: Path) -> None:
    POISON.clear()
    server = HandClockServer(tmp_path, scripts=SCRIPTS, options=ServerOptions(policy=f"{__name__}:crowded"))
    run_known(server)
    FAULTS.extend(["raises"] * 2)
    first, second = submit_poison(server), submit_poison(server)
    good = server.submit(run="python train.py long").id
    server.pass_s(150)
    assert is_held(server, second)
    assert [server.job(one).state for one in (first, good)] == [JobState.SUCCEEDED] * 2


def test_a_newcomer_with_which_no_decision_can_be_stored_is_held(
    hand_server: HandClockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = hand_server
    run_known(server)
    real = job_changes.answer_job

    def answer(staging: Staging, job: Job, *told: Any) -> Effects:
        effects = real(staging, job, *told)
        return replace(effects, record=replace(effects.record, step=10**30)) if job.id in POISON else effects

    monkeypatch.setattr(job_changes, "answer_job", answer)
    POISON.clear()
    bad = submit_poison(server)
    good = server.submit(run="python train.py long").id
    server.pass_s(120)
    assert is_held(server, bad) and server.job(good).state is JobState.SUCCEEDED
