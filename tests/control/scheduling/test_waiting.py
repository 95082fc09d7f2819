"""Jobs that wait for others, are held, run for too long, stand still, or come as an array; on hand-moved clocks."""

from pathlib import Path

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.control.api.documents import write_job
from springtide.control.api.explanations import explain
from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.scheduling.submissions import Submission
from springtide.control.storage.records import JobRecord, ProjectRecord, UserRecord
from springtide.core.job_file import check_job
from springtide.core.job_states import JobState
from springtide.errors import ConflictError, JobError, LimitError
from springtide.executors.fake import FakeJob
from springtide.executors.protocol import InputsSeen

SCRIPTS = {
    "short": FakeJob(speeds={1: 10.0, 2: 18.0}),
    "long": FakeJob(total_steps=4000, speeds={1: 10.0, 2: 18.0}),
    "bad": FakeJob(crashes_at=5),
}


@pytest.fixture
def hand_server(tmp_path: Path) -> HandClockServer:
    return HandClockServer(tmp_path, scripts=SCRIPTS)


def submit_array(hand_server: HandClockServer, **keys: object) -> list[JobRecord]:
    job = check_job({"run": "python train.py short", **keys}, "test")
    future = hand_server.reconciler.call(
        lambda: hand_server.operations.submit_array(Submission(job, hand_server.code(), "ann"))
    )
    hand_server.reconciler.step()
    return [hand_server.job(job_id) for job_id in future.result(timeout=0)]


def call(hand_server: HandClockServer, operation: str, job_id: str, *words: str | int) -> JobRecord:
    future = hand_server.reconciler.call(lambda: getattr(hand_server.operations, operation)(job_id, *words))
    hand_server.reconciler.step()
    future.result(timeout=0)
    return hand_server.job(job_id)


def test_a_job_waits_for_another_and_its_deadline_counts_from_then(hand_server: HandClockServer) -> None:
    first = hand_server.submit(run="python train.py short", name="first")
    second = hand_server.submit(run="python train.py short", name="second", after="first", deadline="60s")
    assert (second.state, second.reason, second.deadline_s) == (JobState.WAITLISTED, "waits_for_jobs", None)
    assert second.sentence == f"waits for first ({first.id}) to succeed"
    assert write_job(second, hand_server.source.wall)["best_effort"] is False
    hand_server.restart()
    hand_server.pass_s(2)
    assert hand_server.job(second.id).waits_for, "a new server lets it wait as well"
    hand_server.pass_s(60)
    ended, later = hand_server.job(first.id), hand_server.job(second.id)
    assert (ended.state, later.state) == (JobState.SUCCEEDED, JobState.SUCCEEDED)
    assert later.promised and not later.missed and later.deadline_s is not None and ended.finished_s is not None
    assert later.deadline_s == pytest.approx(ended.finished_s + 60, abs=1)
    assert later.first_start_s is not None and later.first_start_s >= ended.finished_s


@pytest.mark.parametrize(
    ("script", "end", "state", "reason"),
    [
        ("bad", "ok", JobState.CANCELLED, "dependency_failed"),
        ("bad", "failed", JobState.SUCCEEDED, "finished"),
        ("bad", "any", JobState.SUCCEEDED, "finished"),
        ("short", "failed", JobState.CANCELLED, "dependency_failed"),
    ],
)
def test_the_end_that_was_waited_for_decides(
    hand_server: HandClockServer, script: str, end: str, state: JobState, reason: str
) -> None:
    first = hand_server.submit(run=f"python train.py {script}", name="first", retry={"max": 0})
    second = hand_server.submit(run="python train.py short", after={"first": end})
    hand_server.pass_s(60)
    second = hand_server.job(second.id)
    assert (second.state, second.reason) == (state, reason)
    if state is JobState.CANCELLED:
        assert first.id in second.sentence
        hand_server.operations.resume(second.id, hand_server.find_step(second.id))
        hand_server.pass_s(60)
        assert hand_server.job(second.id).state is JobState.SUCCEEDED, "who resumes it waits no more"


def test_a_job_that_waits_for_itself_for_nobody_or_for_several_is_refused(hand_server: HandClockServer) -> None:
    for name in ("pre-one", "pre-two"):
        hand_server.submit(run="python train.py long", name=name)
    for keys, message in (
        ({"name": "a", "after": "a"}, "the job itself"),
        ({"after": "nobody"}, "there is no such job; submit that one first"),
        ({"after": "pre"}, "stands for several jobs"),
    ):
        with pytest.raises(JobError, match=message):
            hand_server.submit(run="python train.py short", **keys)  # type: ignore[arg-type]
    with pytest.raises(JobError, match="there is no such job"):
        hand_server.submit(user="bob", after="pre-one")


def test_a_held_job_does_nothing_until_it_is_released(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run="python train.py short", name="later", hold=True)
    hand_server.pass_s(30)
    record = hand_server.job(record.id)
    assert (record.state, record.reason, record.step) == (JobState.PAUSED, "held", 0)
    told = explain(record, [], hand_server.store.events(record.id), [], hand_server.source.wall)
    assert told.remedy == "springtide release later"
    call(hand_server, "release", record.id, hand_server.find_step(record.id))
    hand_server.pass_s(30)
    assert hand_server.job(record.id).state is JobState.SUCCEEDED
    with pytest.raises(ConflictError, match="not held"):
        call(hand_server, "release", record.id, hand_server.find_step(record.id))


def test_the_deadline_of_a_held_job_counts_from_its_release(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run="python train.py short", deadline="60s", hold=True)
    hand_server.pass_s(120)
    released = call(hand_server, "release", record.id, hand_server.find_step(record.id))
    assert released.deadline_s == pytest.approx(hand_server.source.wall + 60, abs=1)
    hand_server.pass_s(60)
    ended = hand_server.job(record.id)
    assert ended.state is JobState.SUCCEEDED and ended.promised and not ended.missed


def test_inputs_that_change_while_a_job_runs_are_told(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run="python train.py long", inputs={"digits": "/data/digits"})
    hand_server.pass_s(5)
    generation = hand_server.job(record.id).generation
    for fingerprint in ("files:a", "files:a", "files:b"):
        seen = InputsSeen(job=record.id, generation=generation, fingerprints={"digits": fingerprint})
        hand_server.reconciler.call(lambda seen=seen: hand_server.reconciler.handle(seen))  # type: ignore[misc]
        hand_server.reconciler.step()
    told = hand_server.job(record.id)
    assert told.inputs == {"digits": "files:b"} and hand_server.event_kinds(record.id).count("inputs_changed") == 1
    why = explain(told, [], hand_server.store.events(record.id), [], hand_server.source.wall)
    assert why.reason == "inputs_changed" and "its input digits changed while it was at step" in why.sentence


def test_a_projects_quota_holds_for_all_its_users(hand_server: HandClockServer) -> None:
    hand_server.store.put_project(ProjectRecord("vision", quota_device_s=20.0, most_active=2))
    for name in ("ann", "bob"):
        hand_server.store.put_user(UserRecord(name, f"hash-{name}", project="vision"))
    hand_server.submit(run="python train.py short")
    hand_server.pass_s(60)  # so that its speed is known
    first = hand_server.submit(run="python train.py short", user="ann")
    second = hand_server.submit(run="python train.py short", user="bob")
    assert first.state is not JobState.DECLINED and first.project == "vision"
    assert (second.state, second.reason) == (
        JobState.DECLINED,
        "quota_exceeded",
    ) and "project vision" in second.sentence
    hand_server.submit(run="python train.py new-one", user="bob")
    with pytest.raises(LimitError, match="project vision has 2 active jobs; the limit is 2"):
        hand_server.submit(run="python train.py new-two", user="ann")


def test_a_running_job_is_held_with_its_work_and_goes_on_from_there(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run="python train.py long")
    hand_server.pass_s(30)
    held = call(hand_server, "hold", record.id, "ann")
    assert (held.state, held.devices) == (JobState.PAUSED, ()) and "held by ann" in held.sentence
    hand_server.pass_s(5)
    step = hand_server.job(record.id).step
    assert step > 100
    call(hand_server, "release", record.id, hand_server.find_step(record.id))
    hand_server.pass_s(10)
    assert hand_server.job(record.id).step > step


def test_a_job_ends_after_its_max_runtime_and_gets_as_much_again(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run="python train.py long", max_runtime="20s")
    hand_server.pass_s(30)
    ended = hand_server.job(record.id)
    assert (ended.state, ended.reason, ended.devices) == (JobState.FAILED, "max_runtime", ())
    assert ended.ran_s == pytest.approx(20, abs=1.5) and ended.step > 100
    assert hand_server.executor.running() == ()
    hand_server.operations.resume(record.id, hand_server.find_step(record.id))
    hand_server.pass_s(10)
    assert hand_server.job(record.id).state is JobState.RUNNING
    hand_server.pass_s(20)
    again = hand_server.job(record.id)
    assert again.state is JobState.FAILED and again.ran_s == pytest.approx(40, abs=3) and again.step > ended.step


def test_a_job_that_stands_still_says_so_and_when_it_goes_on(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run="python train.py long")
    hand_server.pass_s(20)
    step = hand_server.job(record.id).step
    for _ in range(60):  # time passes, the job does not move
        hand_server.source.pass_s(0.5)
        hand_server.reconciler.step()
    stalled = hand_server.job(record.id)
    assert stalled.condition("stalled") is not None and stalled.step == step
    told = explain(stalled, [], hand_server.store.events(record.id), [], hand_server.source.wall)
    assert told.reason == "stalled" and f"its last step, {step}," in told.sentence and "30s ago" in told.sentence
    later = explain(stalled, [], hand_server.store.events(record.id), [], hand_server.source.wall + 3600)
    assert "1h ago" in later.sentence, "a sentence is told as of when it is read"
    hand_server.pass_s(3)
    assert hand_server.job(record.id).condition("stalled") is None
    assert {"stalled", "stepping"} <= set(hand_server.event_kinds(record.id))


def test_a_sweep_is_an_array_of_jobs_with_their_own_values(hand_server: HandClockServer) -> None:
    jobs = submit_array(
        hand_server, name="lrs", run="python train.py --lr {lr} short", sweep={"grid": {"lr": [1, 2, 3]}}
    )
    assert [job.name for job in jobs] == ["lrs-1", "lrs-2", "lrs-3"]
    assert [job.spec.words[3] for job in jobs] == ["1", "2", "3"]
    assert len({job.array_place.id for job in jobs if job.array_place is not None}) == 1
    hand_server.pass_s(60)
    found = hand_server.store.find_array("lrs")
    assert [job.state for job in found] == [JobState.SUCCEEDED] * 3
    assert hand_server.store.find_array("lrs", "bob") == []


def test_an_array_that_breaks_a_limit_is_not_taken_at_all(tmp_path: Path) -> None:
    hand_server = HandClockServer(tmp_path, scripts=SCRIPTS, options=ServerOptions(most_active=2))
    with pytest.raises(Exception, match="the limit is 2"):
        submit_array(hand_server, sweep={"grid": {"lr": [1, 2, 3]}})
    assert hand_server.store.list_jobs() == []


def test_an_array_promised_whole_is_answered_when_all_of_it_is_measured(hand_server: HandClockServer) -> None:
    jobs = submit_array(
        hand_server,
        run="python train.py --lr {lr} short",
        deadline="5m",
        sweep={"grid": {"lr": [1, 2, 3]}, "promise": "whole"},
    )
    seen: set[tuple[bool, ...]] = set()
    for _ in range(200):
        hand_server.pass_s(0.5)
        seen.add(tuple(hand_server.job(job.id).promised for job in jobs))
    assert seen == {(False,) * 3, (True,) * 3}, "never some of them"
    assert [hand_server.job(job.id).state for job in jobs] == [JobState.SUCCEEDED] * 3


def test_an_array_of_which_one_cannot_be_promised_is_declined_whole(hand_server: HandClockServer) -> None:
    cases = [{"what": "short"}, {"what": "long"}]
    jobs = submit_array(
        hand_server, run="python train.py {what}", deadline="60s", sweep={"cases": cases, "promise": "whole"}
    )
    hand_server.pass_s(30)
    short, long = (hand_server.job(job.id) for job in jobs)
    assert (short.state, short.reason) == (JobState.DECLINED, "array_not_promised")
    assert long.state is JobState.DECLINED and not short.promised and not long.promised
    assert hand_server.executor.running() == () and not hand_server.reconciler.context.world.jobs
    each = submit_array(hand_server, run="python train.py {what}", deadline="60s", sweep={"cases": cases})
    hand_server.pass_s(1)
    assert hand_server.job(each[0].id).promised, "one by one it would have been"


def test_costs_are_counted_by_the_price_of_the_devices_and_a_budget_is_given_anew(tmp_path: Path) -> None:
    options = ServerOptions(prices={"cpu": 3.6})
    hand_server = HandClockServer(tmp_path, scripts=SCRIPTS, options=options)
    record = hand_server.submit(run="python train.py long", budget="0.04 USD", devices=2)
    hand_server.pass_s(10)
    running = write_job(hand_server.job(record.id), hand_server.source.wall)
    assert running["cost_usd"] == pytest.approx(0.001 * running["device_s"])
    hand_server.pass_s(20)
    paused = hand_server.job(record.id)
    assert (paused.state, paused.reason) == (JobState.PAUSED, "budget") and paused.cost_usd == pytest.approx(
        0.04, rel=0.1
    )
    hand_server.operations.resume(record.id, hand_server.find_step(record.id))
    hand_server.pass_s(30)
    again = hand_server.job(record.id)
    assert again.state is JobState.PAUSED and again.cost_usd == pytest.approx(0.08, rel=0.1)
    assert again.served == pytest.approx(1000 * again.cost_usd), "what was used is not forgotten"
