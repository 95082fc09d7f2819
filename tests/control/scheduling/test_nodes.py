"""Draining a node: jobs leave it within the grace, promises are kept or named, and the last node stays."""

from pathlib import Path

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.core.job_states import JobState
from springtide.errors import InputError
from springtide.executors.fake import FakeJob
from springtide.executors.protocol import Instruction, Stop

SCRIPTS = {
    "long": FakeJob(total_steps=4000, speeds={1: 10.0, 2: 18.0, 4: 30.0}),
    "stiff": FakeJob(total_steps=4000, speeds={1: 10.0, 2: 18.0, 4: 30.0}, pause_s=1000.0),
}
GONE = {"cpu:2", "cpu:3"}


@pytest.fixture
def hand_server(tmp_path: Path) -> HandClockServer:
    return HandClockServer(tmp_path, devices=4, nodes=2, scripts=SCRIPTS)


def drain(hand_server: HandClockServer, node: str = "node-1", grace_s: float = 60.0) -> None:
    future = hand_server.reconciler.call(lambda: hand_server.operations.drain(node, grace_s))
    hand_server.reconciler.step()
    future.result(timeout=0)


def told(hand_server: HandClockServer) -> list[str]:
    return [event.kind for event in hand_server.store.events(None)]


def held(hand_server: HandClockServer) -> set[str]:
    return {name for one in hand_server.executor.running() for name in one.devices}


def test_a_running_job_shrinks_off_the_node_and_nothing_goes_there_again(hand_server: HandClockServer) -> None:
    job = hand_server.submit(run="python train.py long", devices="1..4").id
    hand_server.pass_s(20)
    assert len(hand_server.job(job).devices) == 4
    drain(hand_server)
    hand_server.pass_s(5)
    assert not held(hand_server) & GONE and hand_server.job(job).state is JobState.RUNNING
    assert {"draining", "drained"} <= set(told(hand_server))
    assert "node-1 is drained" in next(one.sentence for one in hand_server.store.events(job) if one.kind == "shrinks")
    other = hand_server.submit(run="python train.py long").id
    hand_server.pass_s(30)
    assert not held(hand_server) & GONE and hand_server.job(other).devices


def test_the_reason_of_a_job_that_the_policy_shrinks_off_the_node_is_the_node(hand_server: HandClockServer) -> None:
    hand_server.submit(run="python train.py long", devices=1, deadline="1h")
    job = hand_server.submit(run="python train.py long", devices="1..2").id
    hand_server.pass_s(20)
    assert set(hand_server.job(job).devices) & GONE
    drain(hand_server)
    hand_server.pass_s(5)
    changes = [one for one in hand_server.store.events(job) if one.kind in ("shrinks", "moves", "suspended")]
    assert changes[-1].sentence.endswith(": node-1 is drained")  # and not the policy's reason for what is left
    assert (changes[-1].data["cause"], changes[-1].data["nodes"]) == ("drained", ["node-1"])


def test_jobs_without_room_checkpoint_within_the_grace_and_go_on_when_the_node_is_back(
    hand_server: HandClockServer,
) -> None:
    jobs = [hand_server.submit(run="python train.py long", devices=2).id for _ in range(2)]
    hand_server.pass_s(10)
    assert held(hand_server) >= GONE
    drain(hand_server, grace_s=30.0)
    hand_server.pass_s(2)
    waiting = next(job for job in jobs if not hand_server.job(job).devices)
    assert hand_server.executor.checkpoints[waiting] > 0
    assert not held(hand_server) & GONE
    future = hand_server.reconciler.call(lambda: hand_server.operations.undrain("node-1"))
    hand_server.pass_s(5)
    future.result(timeout=0)
    assert held(hand_server) >= GONE and hand_server.job(waiting).state is JobState.RUNNING


def test_the_stop_of_a_drained_job_has_the_grace_of_the_drain(
    hand_server: HandClockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [hand_server.submit(run="python train.py long", devices=2).id for _ in range(2)]
    hand_server.pass_s(10)
    sent: list[Instruction] = []
    monkeypatch.setattr(hand_server.executor, "obey", sent.append)
    drain(hand_server, "node-1" if set(hand_server.job(jobs[1]).devices) <= GONE else "node-0", 45.0)
    (stop,) = (one for one in sent if isinstance(one, Stop))
    assert stop.job == jobs[1] and stop.grace_s == pytest.approx(45.0)


def test_the_newest_promise_that_cannot_be_kept_is_named_and_the_older_is_kept(hand_server: HandClockServer) -> None:
    hand_server.submit(run="python train.py long", deadline="1h")
    hand_server.pass_s(400)
    first, second = (hand_server.submit(run="python train.py long", deadline="7m", devices=2).id for _ in range(2))
    hand_server.pass_s(5)
    assert hand_server.job(first).promised and hand_server.job(second).promised
    drain(hand_server)
    assert hand_server.job(first).condition("at_risk") is None
    risk = hand_server.job(second).condition("at_risk")
    assert risk is not None and risk.reason == "lost_capacity" and "node-1" in risk.sentence
    assert "at_risk" in hand_server.event_kinds(second) and "at_risk" not in hand_server.event_kinds(first)
    hand_server.pass_s(900)
    assert (hand_server.job(first).state, hand_server.job(first).missed) == (JobState.SUCCEEDED, "")
    assert (hand_server.job(second).state, hand_server.job(second).missed) == (JobState.SUCCEEDED, "lost_capacity")


def test_a_job_that_does_not_leave_in_time_starts_again_elsewhere(hand_server: HandClockServer) -> None:
    job = hand_server.submit(run="python train.py stiff", devices="1..4").id
    hand_server.pass_s(20)
    assert set(hand_server.job(job).devices) & GONE
    drain(hand_server, grace_s=10.0)
    hand_server.pass_s(9)
    assert "drain_forced" not in hand_server.event_kinds(job)
    hand_server.pass_s(3)
    assert "drain_forced" in hand_server.event_kinds(job) and "drained" in told(hand_server)
    assert not held(hand_server) & GONE


def test_a_restarted_server_knows_which_nodes_are_drained(hand_server: HandClockServer) -> None:
    job = hand_server.submit(run="python train.py long", devices="1..4").id
    hand_server.pass_s(20)
    drain(hand_server)
    hand_server.restart()
    hand_server.pass_s(10)
    assert hand_server.reconciler.inventory.cluster.total == 2
    assert not held(hand_server) & GONE and len(hand_server.job(job).devices) == 2


def test_what_cannot_be_drained_is_refused_and_changes_nothing(hand_server: HandClockServer) -> None:
    with pytest.raises(InputError, match="no node 'node-7'; there are: node-0, node-1"):
        drain(hand_server, "node-7")
    drain(hand_server)
    with pytest.raises(InputError, match="drained already"):
        drain(hand_server)
    with pytest.raises(InputError, match=r"node-0 is the last one that takes work.*springtide stop"):
        drain(hand_server, "node-0")
    assert hand_server.reconciler.inventory.cluster.total == 2
