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
def stage(tmp_path: Path) -> HandClockServer:
    return HandClockServer(tmp_path, devices=4, nodes=2, scripts=SCRIPTS)


def drain(stage: HandClockServer, node: str = "node-1", grace_s: float = 60.0) -> None:
    future = stage.reconciler.call(lambda: stage.operations.drain(node, grace_s))
    stage.reconciler.step()
    future.result(timeout=0)


def told(stage: HandClockServer) -> list[str]:
    return [event.kind for event in stage.store.events(None)]


def held(stage: HandClockServer) -> set[str]:
    return {name for one in stage.executor.running() for name in one.devices}


def test_a_running_job_shrinks_off_the_node_and_nothing_goes_there_again(stage: HandClockServer) -> None:
    job = stage.submit(run="python train.py long", devices="1..4").id
    stage.pass_s(20)
    assert len(stage.job(job).devices) == 4
    drain(stage)
    stage.pass_s(5)
    assert not held(stage) & GONE and stage.job(job).state is JobState.RUNNING
    assert {"draining", "drained"} <= set(told(stage))
    assert "node-1 is drained" in next(one.sentence for one in stage.store.events(job) if one.kind == "shrinks")
    other = stage.submit(run="python train.py long").id
    stage.pass_s(30)
    assert not held(stage) & GONE and stage.job(other).devices


def test_jobs_without_room_checkpoint_within_the_grace_and_go_on_when_the_node_is_back(stage: HandClockServer) -> None:
    jobs = [stage.submit(run="python train.py long", devices=2).id for _ in range(2)]
    stage.pass_s(10)
    assert held(stage) >= GONE
    drain(stage, grace_s=30.0)
    stage.pass_s(2)
    waiting = next(job for job in jobs if not stage.job(job).devices)
    assert stage.executor.checkpoints[waiting] > 0
    assert not held(stage) & GONE
    future = stage.reconciler.call(lambda: stage.operations.undrain("node-1"))
    stage.pass_s(5)
    future.result(timeout=0)
    assert held(stage) >= GONE and stage.job(waiting).state is JobState.RUNNING


def test_the_stop_of_a_drained_job_has_the_grace_of_the_drain(
    stage: HandClockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [stage.submit(run="python train.py long", devices=2).id for _ in range(2)]
    stage.pass_s(10)
    sent: list[Instruction] = []
    monkeypatch.setattr(stage.executor, "obey", sent.append)
    drain(stage, "node-1" if set(stage.job(jobs[1]).devices) <= GONE else "node-0", 45.0)
    (stop,) = (one for one in sent if isinstance(one, Stop))
    assert stop.job == jobs[1] and stop.grace_s == pytest.approx(45.0)


def test_the_newest_promise_that_cannot_be_kept_is_named_and_the_older_is_kept(stage: HandClockServer) -> None:
    stage.submit(run="python train.py long", deadline="1h")
    stage.pass_s(400)
    first, second = (stage.submit(run="python train.py long", deadline="7m", devices=2).id for _ in range(2))
    stage.pass_s(5)
    assert stage.job(first).promised and stage.job(second).promised
    drain(stage)
    assert stage.job(first).condition("at_risk") is None
    risk = stage.job(second).condition("at_risk")
    assert risk is not None and risk.reason == "lost_capacity" and "node-1" in risk.sentence
    assert "at_risk" in stage.event_kinds(second) and "at_risk" not in stage.event_kinds(first)
    stage.pass_s(900)
    assert (stage.job(first).state, stage.job(first).missed) == (JobState.SUCCEEDED, "")
    assert (stage.job(second).state, stage.job(second).missed) == (JobState.SUCCEEDED, "lost_capacity")


def test_a_job_that_does_not_leave_in_time_starts_again_elsewhere(stage: HandClockServer) -> None:
    job = stage.submit(run="python train.py stiff", devices="1..4").id
    stage.pass_s(20)
    assert set(stage.job(job).devices) & GONE
    drain(stage, grace_s=10.0)
    stage.pass_s(9)
    assert "drain_forced" not in stage.event_kinds(job)
    stage.pass_s(3)
    assert "drain_forced" in stage.event_kinds(job) and "drained" in told(stage)
    assert not held(stage) & GONE


def test_a_restarted_server_knows_which_nodes_are_drained(stage: HandClockServer) -> None:
    job = stage.submit(run="python train.py long", devices="1..4").id
    stage.pass_s(20)
    drain(stage)
    stage.restart()
    stage.pass_s(10)
    assert stage.reconciler.context.inventory.cluster.total == 2
    assert not held(stage) & GONE and len(stage.job(job).devices) == 2


def test_what_cannot_be_drained_is_refused_and_changes_nothing(stage: HandClockServer) -> None:
    with pytest.raises(InputError, match="no node 'node-7'; there are: node-0, node-1"):
        drain(stage, "node-7")
    drain(stage)
    with pytest.raises(InputError, match="drained already"):
        drain(stage)
    with pytest.raises(InputError, match=r"node-0 is the last one that takes work.*springtide stop"):
        drain(stage, "node-0")
    assert stage.reconciler.context.inventory.cluster.total == 2
