"""Speeds that housekeeping forgets in the store, and the server still knows when their code comes again."""

from pathlib import Path

from tests.control.hand_clock import HandClockServer

from springtide.core.job_states import JobState
from springtide.executors.fake import FakeJob

RUN = "python train.py short"


def test_a_promise_by_a_speed_that_was_forgotten_has_it_stored_again(tmp_path: Path) -> None:
    hand_server = HandClockServer(tmp_path, scripts={"short": FakeJob(total_steps=400, speeds={1: 10.0, 2: 18.0})})
    first = hand_server.submit(run=RUN, deadline="5m")
    hand_server.pass_s(60)
    assert hand_server.job(first.id).state == JobState.SUCCEEDED
    known = hand_server.store.speeds(first.speed_key)
    assert hand_server.store.prune(hand_server.source.wall + 1e6)[0] == [first.id]
    assert known and not hand_server.store.speeds(first.speed_key)

    again = hand_server.submit(run=RUN, deadline="5m")
    assert (again.speed_key, hand_server.job(again.id).promised) == (first.speed_key, True)
    assert hand_server.store.speeds(again.speed_key) == known
    hand_server.restart()
    hand_server.pass_s(60)
    assert (hand_server.job(again.id).state, hand_server.job(again.id).missed) == (JobState.SUCCEEDED, "")
