"""What follows a decision: one change a job, with the reason for every change of devices, no false promise."""

from pathlib import Path

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.cli.job_views import list_notes
from springtide.client.replies import JobInfo
from springtide.control.api.documents import write_event, write_job
from springtide.control.api.explanations import count_spare, explain
from springtide.control.api.platform.prometheus import write_metrics
from springtide.control.scheduling.live_jobs import build_job
from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.scheduling.submissions import Submission
from springtide.control.storage.records import EventRecord
from springtide.core.job_file import check_job
from springtide.core.job_states import JobState
from springtide.core.moments import tell_moments
from springtide.executors.fake import FakeJob

SCRIPTS = {"long": FakeJob(total_steps=400, speeds={1: 10.0, 2: 18.0})}
RUN = "python train.py long"
CHANGES = ("placed", "grows", "shrinks", "moves", "suspended")


def make_server(folder: Path, policy: str = "springtide") -> HandClockServer:
    return HandClockServer(folder, scripts=SCRIPTS, options=ServerOptions(policy=policy))


def make_known(hand_server: HandClockServer) -> None:
    hand_server.submit(run=RUN, deadline="10m", user="carol")
    hand_server.pass_s(100)


def list_changes(hand_server: HandClockServer, job: str) -> list[EventRecord]:
    return [event for event in hand_server.store.events(job) if event.kind in CHANGES]


@pytest.mark.parametrize("user", ["ann", "bob"])
def test_every_change_of_devices_says_why_and_for_whom(tmp_path: Path, user: str) -> None:
    hand_server = make_server(tmp_path)
    make_known(hand_server)
    first = hand_server.submit(run=RUN, name="first").id
    hand_server.pass_s(3)
    second = hand_server.submit(run=RUN, deadline="60s", name="second", user=user).id
    hand_server.pass_s(120)
    changes = [*list_changes(hand_server, first), *list_changes(hand_server, second)]
    assert changes and all(event.data["cause"] and event.data["why"] in event.sentence for event in changes)
    given = next(event for event in changes if event.job == first and event.data["cause"] == "yields")
    assert given.data["other"] == second
    assert ("second, due " if user == "ann" else "another user's job") in given.sentence
    shown = write_event(given, given.at_s, "ann")["data"]
    assert (shown.get("other"), shown.get("other_name")) == ((second, "second") if user == "ann" else (None, None))
    assert write_event(given, given.at_s)["data"]["other_name"] == "second", "an admin sees all"
    told = explain(hand_server.job(first), [], hand_server.store.events(first), [], hand_server.source.wall)
    assert any(tell_moments(given.data["why"], hand_server.source.wall) in fact for fact in told.facts)


def test_why_does_not_say_that_every_device_is_taken_beside_a_free_one(tmp_path: Path) -> None:
    hand_server = make_server(tmp_path)
    first, pair = (hand_server.submit(run=RUN, devices=devices, priority=2 - devices) for devices in (1, 2))
    hand_server.pass_s(1)
    active = [hand_server.job(record.id) for record in (first, pair)]
    assert [len(record.devices) for record in active] == [1, 0]
    inventory, now_s = hand_server.reconciler.inventory, hand_server.source.wall
    told = explain(active[1], [], [], active, now_s, spare=count_spare(active[1], active, inventory))
    assert told.sentence == "it is best effort, and it needs 2 devices at least; 1 device is free now"
    single = hand_server.submit(run=RUN, devices=1)
    hand_server.pass_s(1)
    active.append(hand_server.job(single.id))
    told = explain(active[1], [], [], active, now_s, spare=count_spare(active[1], active, inventory))
    assert told.sentence == "it is best effort, and every device serves a job that goes before it now"


@pytest.mark.parametrize("policy", ["fifo", "edf", "tiresias"])
def test_where_nothing_is_promised_nobody_says_so(tmp_path: Path, policy: str) -> None:
    hand_server = make_server(tmp_path, policy)
    make_known(hand_server)
    jobs = [hand_server.submit(run=RUN, deadline="10m", devices=2) for _ in range(2)]
    for record in jobs:
        assert (record.promised, record.reason) == (False, "no_promise")
        assert record.sentence.startswith("admitted without a promise")
        shown = JobInfo.read(write_job(record, record.submitted_s))
        assert "not promised" in list_notes(shown) and shown.promised_finish is None
    waiting = next(record for record in jobs if not hand_server.job(record.id).devices)
    told = explain(hand_server.job(waiting.id), [], hand_server.store.events(waiting.id), [], hand_server.source.wall)
    assert told.sentence.startswith("nothing is promised to it") and "deadline" not in told.remedy
    asked = Submission(check_job({"run": RUN, "deadline": "10m"}, "test"), hand_server.code(), "ann")
    plan = hand_server.operations.plan(asked)
    assert (plan.state, plan.promised) == ("admitted", False) and "promised to finish" not in plan.sentence
    hand_server.pass_s(200)
    assert [hand_server.job(record.id).state for record in jobs] == [JobState.SUCCEEDED] * 2
    page = write_metrics(hand_server.store, hand_server.reconciler.inventory, hand_server.source.wall)
    assert "springtide_deadline_met_total 0.0" in page and "springtide_jobs_at_risk 0.0" in page


def test_a_promise_without_a_plan_keeps_its_deadline(tmp_path: Path) -> None:
    hand_server = make_server(tmp_path, "chronus")
    make_known(hand_server)
    record = hand_server.submit(run=RUN, deadline="10m")
    assert record.promised and record.plan is None and not record.endangered
    for _ in range(2):
        view = hand_server.reconciler.context.world.jobs[record.id]  # type: ignore[index]
        assert view.job.deadline_s == record.deadline_s
        known, inventory = hand_server.reconciler.context.staging.speeds, hand_server.reconciler.inventory
        assert build_job(hand_server.job(record.id), known, inventory).deadline_s == record.deadline_s
        hand_server.pass_s(3)
        hand_server.restart()
    hand_server.pass_s(100)
    assert (hand_server.job(record.id).state, hand_server.job(record.id).missed) == (JobState.SUCCEEDED, "")
