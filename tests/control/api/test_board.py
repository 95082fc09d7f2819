"""The board's document: what is told of the whole, and what was predicted of one."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.control.api import board, board_routes
from springtide.control.api.api import Api
from springtide.control.scheduling.expected_ends import has_moved
from springtide.control.scheduling.submissions import Submission
from springtide.control.storage.database.store_batches import Batch
from springtide.control.storage.records import UserRecord
from springtide.core.job_file import check_job
from springtide.executors.fake import FakeJob

ADMIN = UserRecord("root", "x", admin=True)
LONG = {"train.py": FakeJob(total_steps=6000, speeds={1: 10.0, 2: 18.0}, logical_workers=2)}


def open_server(folder: Path) -> HandClockServer:
    return HandClockServer(folder, devices=2, scripts=LONG)


def write(server: HandClockServer, choice: board.Choice | None = None) -> dict[str, Any]:
    api = Api(server.reconciler, lambda: None)
    return board.write_board(board_routes.gather(api, ADMIN, 3600.0), choice or board.Choice())


def test_the_past_of_a_job_and_of_its_devices_is_told(tmp_path: Path) -> None:
    server = open_server(tmp_path)
    job = server.submit(name="one", deadline="1h")
    server.pass_s(60)
    told = write(server)
    (row,) = told["jobs"]
    assert (row["id"], row["group"]) == (job.id, "promised")
    assert [share for _, share in row["shares"]][-1] == len(server.job(job.id).devices) > 0
    held = {name for lane in told["lanes"] for *_, name in lane["held"]}
    assert held == {"one"}
    assert told["sentence"] == "1 promise: safe."


def test_the_use_of_devices_is_counted_from_the_first_known_instant(tmp_path: Path) -> None:
    server = open_server(tmp_path)
    begin_s = server.source.wall_s()
    server.submit(name="one")
    server.pass_s(300)
    devices = write(server)["devices"]  # of an hour, of which nothing is known but the last five minutes
    assert devices["used_since_s"] == pytest.approx(begin_s, abs=1)
    assert devices["used"] > 0.9


def test_a_promise_in_danger_is_named_with_what_would_help(tmp_path: Path) -> None:
    server = open_server(tmp_path)
    job = server.submit(name="one", deadline="1h")
    server.pass_s(30)
    record = replace(server.job(job.id), predicted_s=(server.job(job.id).deadline_s or 0.0) + 720)
    danger = record.with_condition("at_risk", "faults", "late", server.source.wall_s())
    server.store.write(Batch(jobs={job.id: danger}))
    told = write(server)
    assert told["sentence"] == "1 promise: 0 safe, 1 at risk: one ends 12m late."
    assert told["groups"]["at_risk"] == 1


def test_jobs_are_found_by_group_and_by_words(tmp_path: Path) -> None:
    server = open_server(tmp_path)
    server.submit(name="alpha", deadline="1h")
    server.submit(name="beta")
    server.pass_s(30)
    assert [job["name"] for job in write(server, board.Choice(find="ALP"))["jobs"]] == ["alpha"]
    only = write(server, board.Choice(group=board.JobGroup.BEST_EFFORT))
    assert [job["name"] for job in only["jobs"]] == ["beta"]
    assert write(server, board.Choice(offset=1, limit=1))["count"] == 2


def test_records_at_hand_are_those_in_the_store(tmp_path: Path) -> None:
    server = open_server(tmp_path)
    api = Api(server.reconciler, lambda: None)
    assert api.recent.read(0.0, 10) == ([], [])
    job = server.submit(name="one", deadline="1h")
    server.pass_s(30)
    assert api.recent.read(0.0, 10) == ([server.job(job.id)], [])
    server.operations.cancel(job.id, "ann")
    server.reconciler.step()
    assert api.recent.read(0.0, 10) == ([], [server.job(job.id)])


def test_predictions_are_kept_when_they_move_and_go_with_their_job(tmp_path: Path) -> None:
    server = open_server(tmp_path)
    job = server.submit(name="one", deadline="1h")
    server.pass_s(120)
    kept = server.store.predictions(job.id)
    assert kept and all((one.late_s or 0.0) >= one.predicted_s for one in kept)
    for before, after in pairwise(kept):
        moved = has_moved(before.predicted_s, after.predicted_s, after.at_s)
        assert moved or has_moved(before.late_s, after.late_s, after.at_s)
    server.pass_s(1200)
    server.store.prune(server.source.wall_s() + 1)
    assert server.store.predictions(job.id) == []


def test_what_befell_jobs_that_are_forgotten_is_held_no_longer(tmp_path: Path) -> None:
    server = open_server(tmp_path)
    histories = Api(server.reconciler, lambda: None).histories
    gone = server.submit(name="one", run="python train.py")
    server.operations.cancel(gone.id, "ann")
    kept = server.submit(name="two")
    server.pass_s(10)
    assert {gone.id, kept.id} <= set(histories.read())
    server.store.prune(server.source.wall_s() + 1)
    assert set(histories.read()) == {kept.id}


def test_a_plan_tells_whom_it_would_change_and_changes_nobody(tmp_path: Path) -> None:
    server = open_server(tmp_path)
    first = server.submit(name="one", deadline="1h")
    server.pass_s(60)
    before = server.job(first.id)
    assert len(before.devices) == 2
    job = check_job({"run": "python train.py", "deadline": "9m"}, "test")
    forecast = server.operations.plan(Submission(job, server.code(), "ann"), compare=True)
    (other,) = forecast.differences
    assert (forecast.state, other.job, other.before.share) == ("admitted", first.id, 2)
    assert other.after.share < 2 and (other.after.finish_s or 0.0) > (other.before.finish_s or 0.0)
    assert server.job(first.id) == before
