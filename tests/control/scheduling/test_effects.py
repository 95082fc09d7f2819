"""What follows a decision: one change a job, with the reason for every change of devices, no false promise."""

from pathlib import Path

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.cli.job_views import list_notes
from springtide.client.replies import JobInfo
from springtide.control.api.documents import write_event, write_job
from springtide.control.api.explanations import explain
from springtide.control.api.prometheus import write_metrics
from springtide.control.scheduling.context import ServerOptions
from springtide.control.scheduling.submissions import Submission
from springtide.control.storage.records import EventRecord
from springtide.core.job_file import check_job
from springtide.core.job_states import JobState
from springtide.executors.fake import FakeJob

SCRIPTS = {"long": FakeJob(total_steps=400, speeds={1: 10.0, 2: 18.0})}
RUN = "python train.py long"
CHANGES = ("placed", "grows", "shrinks", "moves", "suspended")


def make_server(folder: Path, policy: str = "springtide") -> HandClockServer:
    return HandClockServer(folder, scripts=SCRIPTS, options=ServerOptions(policy=policy))


def make_known(stage: HandClockServer) -> None:
    stage.submit(run=RUN, deadline="10m", user="carol")
    stage.pass_s(100)


def list_changes(stage: HandClockServer, job: str) -> list[EventRecord]:
    return [event for event in stage.store.events(job) if event.kind in CHANGES]


@pytest.mark.parametrize("user", ["ann", "bob"])
def test_every_change_of_devices_says_why_and_for_whom(tmp_path: Path, user: str) -> None:
    stage = make_server(tmp_path)
    make_known(stage)
    first = stage.submit(run=RUN, name="first").id
    stage.pass_s(3)
    second = stage.submit(run=RUN, deadline="60s", name="second", user=user).id
    stage.pass_s(120)
    changes = [*list_changes(stage, first), *list_changes(stage, second)]
    assert changes and all(event.data["cause"] and event.data["why"] in event.sentence for event in changes)
    given = next(event for event in changes if event.job == first and event.data["cause"] == "yields")
    assert given.data["other"] == second
    assert ("second, due in" if user == "ann" else "another user's job") in given.sentence
    shown = write_event(given, "ann")["data"]
    assert (shown.get("other"), shown.get("other_name")) == ((second, "second") if user == "ann" else (None, None))
    assert write_event(given)["data"]["other_name"] == "second", "an admin sees all"
    told = explain(stage.job(first), [], stage.store.events(first), [], stage.source.wall)
    assert any(given.data["why"] in fact for fact in told.facts)


@pytest.mark.parametrize("policy", ["fifo", "edf", "tiresias"])
def test_where_nothing_is_promised_nobody_says_so(tmp_path: Path, policy: str) -> None:
    stage = make_server(tmp_path, policy)
    make_known(stage)
    jobs = [stage.submit(run=RUN, deadline="10m", devices=2) for _ in range(2)]
    for record in jobs:
        assert (record.promised, record.reason) == (False, "no_promise")
        assert record.sentence.startswith("admitted without a promise")
        shown = JobInfo.read(write_job(record, record.submitted_s))
        assert "not promised" in list_notes(shown) and shown.promised_finish is None
    waiting = next(record for record in jobs if not stage.job(record.id).devices)
    told = explain(stage.job(waiting.id), [], stage.store.events(waiting.id), [], stage.source.wall)
    assert told.sentence.startswith("nothing is promised to it") and "deadline" not in told.remedy
    asked = Submission(check_job({"run": RUN, "deadline": "10m"}, "test"), stage.code(), "ann")
    plan = stage.operations.plan(asked)
    assert (plan.state, plan.promised) == ("admitted", False) and "promised to finish" not in plan.sentence
    stage.pass_s(200)
    assert [stage.job(record.id).state for record in jobs] == [JobState.SUCCEEDED] * 2
    page = write_metrics(stage.store, stage.reconciler.context.inventory, stage.source.wall)
    assert "springtide_deadline_met_total 0.0" in page and "springtide_jobs_at_risk 0.0" in page


def test_a_promise_without_a_plan_keeps_its_deadline(tmp_path: Path) -> None:
    stage = make_server(tmp_path, "chronus")
    make_known(stage)
    record = stage.submit(run=RUN, deadline="10m")
    assert record.promised and record.plan is None and not record.endangered
    for _ in range(2):
        view = stage.reconciler.context.world.jobs[record.id]  # type: ignore[index]
        assert view.job.deadline_s == record.deadline_s
        assert stage.reconciler.context.build_job(stage.job(record.id)).deadline_s == record.deadline_s
        stage.pass_s(3)
        stage.restart()
    stage.pass_s(100)
    assert (stage.job(record.id).state, stage.job(record.id).missed) == (JobState.SUCCEEDED, "")
