"""Folders of checkpoints that job files name: one job at a time, in any spelling; others' jobs are not named."""

from pathlib import Path

import pytest
from tests.control.hand_clock import HandClockServer
from tests.control.scheduling.test_waiting import SCRIPTS, call

from springtide.core.job_states import JobState
from springtide.errors import JobError


@pytest.fixture
def hand_server(tmp_path: Path) -> HandClockServer:
    return HandClockServer(tmp_path, scripts=SCRIPTS)


@pytest.mark.parametrize("spelling", ["/data//x", "/data/./x/", "file:///data/x"])
def test_one_folder_has_many_spellings(hand_server: HandClockServer, spelling: str) -> None:
    first = hand_server.submit(checkpoint={"dir": "/data/x"})
    with pytest.raises(JobError, match=f"in use by job {first.name}"):
        hand_server.submit(checkpoint={"dir": spelling})


def test_the_job_of_another_user_is_not_named(hand_server: HandClockServer) -> None:
    first = hand_server.submit(user="ann", name="secret-project", checkpoint={"dir": "/data/x"})
    with pytest.raises(JobError, match="in use by a job of another user") as caught:
        hand_server.submit(user="bob", checkpoint={"dir": "/data/x"})
    assert "secret" not in str(caught.value) and first.id not in str(caught.value)


def test_a_job_that_is_held_keeps_nobody_else_out_of_a_folder(hand_server: HandClockServer) -> None:
    held = hand_server.submit(user="eve", hold=True, checkpoint={"dir": "/data/x"})
    mine = hand_server.submit(user="bob", run="python train.py short", checkpoint={"dir": "/data/x"})
    with pytest.raises(JobError, match="in use by a job of another user"):
        call(hand_server, "release", held.id, 0)
    hand_server.pass_s(60)
    assert hand_server.job(mine.id).state is JobState.SUCCEEDED
    call(hand_server, "release", held.id, 0)
    hand_server.pass_s(60)
    assert hand_server.job(held.id).state is JobState.SUCCEEDED


def test_a_job_that_waits_for_others_keeps_nobody_else_out_and_is_looked_at_when_it_may_go(
    hand_server: HandClockServer,
) -> None:
    hand_server.submit(user="eve", name="before", run="python train.py short", devices=1)
    waiting = hand_server.submit(user="eve", after="before", checkpoint={"dir": "/data/x"})
    mine = hand_server.submit(user="bob", run="python train.py long", devices=1, checkpoint={"dir": "/data/x"})
    hand_server.pass_s(60)
    ended = hand_server.job(waiting.id)
    assert (ended.state, ended.reason) == (JobState.DECLINED, "checkpoint_dir_in_use")
    assert hand_server.job(mine.id).active


def test_own_jobs_keep_each_other_out_though_they_are_held(hand_server: HandClockServer) -> None:
    hand_server.submit(hold=True, checkpoint={"dir": "/data/x"})
    with pytest.raises(JobError, match="in use by job"):
        hand_server.submit(checkpoint={"dir": "/data/x"})
