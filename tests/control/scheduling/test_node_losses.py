"""A lost node: jobs go on elsewhere from their last checkpoints, promises are kept or named, the last node stays."""

from pathlib import Path

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.control.scheduling import drains
from springtide.control.storage.records import State
from springtide.executors.fake import FakeJob
from springtide.executors.protocol import NodeLost

SCRIPTS = {"long": FakeJob(total_steps=4000, speeds={1: 10.0, 2: 18.0, 4: 30.0}, checkpoint_every=100)}
GONE = ("cpu:2", "cpu:3")


@pytest.fixture
def stage(tmp_path: Path) -> HandClockServer:
    return HandClockServer(tmp_path, devices=4, nodes=2, scripts=SCRIPTS)


def lose(stage: HandClockServer) -> None:
    stage.executor.lose_node("node-1", GONE)
    stage.reconciler.step()


def held(stage: HandClockServer) -> set[str]:
    return {name for one in stage.executor.running() for name in one.devices}


def node_states(stage: HandClockServer) -> dict[str, str]:
    return drains.describe_nodes(stage.reconciler.platform.site, stage.store.fact(drains.FACT))


def test_a_job_on_the_node_starts_again_elsewhere_from_its_last_checkpoint(stage: HandClockServer) -> None:
    job = stage.submit(run="python train.py long", devices="1..4").id
    stage.pass_s(20)
    assert len(stage.job(job).devices) == 4
    lose(stage)
    assert stage.job(job).devices == ("cpu:0", "cpu:1")
    assert stage.job(job).condition("recovering") is not None
    stage.pass_s(5)
    record = stage.job(job)
    started = [event.data["step"] for event in stage.store.events(job) if event.kind == "started"]
    assert record.state is State.RUNNING and record.condition("recovering") is None
    assert (record.faults, started[-1] % 100) == (1, 0) and started[-1] > 0
    assert held(stage) == {"cpu:0", "cpu:1"}
    assert node_states(stage) == {"node-0": "ready", "node-1": "lost"}


def test_a_job_without_room_waits_until_the_node_is_back(stage: HandClockServer) -> None:
    jobs = [stage.submit(run="python train.py long", devices=2).id for _ in range(2)]
    stage.pass_s(20)
    lose(stage)
    stage.pass_s(5)
    (waiting,) = (job for job in jobs if not stage.job(job).devices)
    assert stage.job(waiting).state is State.ADMITTED
    future = stage.reconciler.call(lambda: stage.desk.undrain("node-1"))
    stage.pass_s(5)
    future.result(timeout=0)
    assert stage.job(waiting).state is State.RUNNING and held(stage) >= set(GONE)
    assert node_states(stage) == {"node-0": "ready", "node-1": "ready"}


def test_the_newest_promise_that_cannot_be_kept_is_named(stage: HandClockServer) -> None:
    stage.submit(run="python train.py long", deadline="1h")
    stage.pass_s(400)
    first, second = (stage.submit(run="python train.py long", deadline="7m", devices=2).id for _ in range(2))
    stage.pass_s(5)
    assert stage.job(first).promised and stage.job(second).promised
    lose(stage)
    risk = stage.job(second).condition("at_risk")
    assert stage.job(first).condition("at_risk") is None
    assert risk is not None and risk.reason == "lost_capacity" and "node-1 is gone" in risk.sentence
    stage.pass_s(900)
    assert (stage.job(first).state, stage.job(first).missed) == (State.SUCCEEDED, "")
    assert (stage.job(second).state, stage.job(second).missed) == (State.SUCCEEDED, "lost_capacity")


def test_a_probe_on_the_node_is_repeated(stage: HandClockServer) -> None:
    blockers = [stage.submit(run="python train.py long", devices=1).id for _ in range(2)]
    stage.pass_s(5)
    job = stage.submit(run="python train.py long", deadline="1h", devices=2, env={"A": "1"}).id
    assert stage.job(job).state is State.PROBING and set(stage.job(job).devices) <= set(GONE)
    lose(stage)
    stage.pass_s(20)
    assert stage.job(job).promised and all(stage.job(one).active for one in blockers)


def test_a_node_lost_while_it_is_drained_keeps_no_job_back(stage: HandClockServer) -> None:
    stage.executor.scripts["stiff"] = FakeJob(total_steps=4000, speeds={1: 10.0, 2: 18.0, 4: 30.0}, pause_s=1000.0)
    job = stage.submit(run="python train.py stiff", devices="1..4").id
    stage.pass_s(20)
    future = stage.reconciler.call(lambda: stage.desk.drain("node-1", 600.0))
    stage.reconciler.step()
    future.result(timeout=0)
    lose(stage)
    stage.pass_s(3)
    assert "drain_forced" in stage.event_kinds(job) and not held(stage) & set(GONE)
    assert node_states(stage)["node-1"] == "lost"


def test_the_last_node_and_one_that_nobody_knows_change_nothing(stage: HandClockServer) -> None:
    lose(stage)
    for node in ("node-0", "node-9"):
        stage.executor.emit(NodeLost(job="", generation=0, node=node, reason="lost by the test"))
    stage.reconciler.step()
    assert stage.reconciler.platform.site.cluster.total == 2
    assert "no_nodes" in [event.kind for event in stage.store.events(None)]


def test_a_restarted_server_knows_that_a_node_is_lost(stage: HandClockServer) -> None:
    job = stage.submit(run="python train.py long", devices="1..4").id
    stage.pass_s(20)
    lose(stage)
    stage.restart()
    stage.pass_s(10)
    assert node_states(stage)["node-1"] == "lost"
    assert stage.job(job).devices == ("cpu:0", "cpu:1") and stage.job(job).state is State.RUNNING
