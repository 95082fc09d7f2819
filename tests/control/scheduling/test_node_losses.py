"""A lost node: jobs go on elsewhere from their last checkpoints, promises are kept or named, the last node stays."""

from pathlib import Path
from typing import Any

import pytest
from tests.control.hand_clock import POLICY, HandClockServer

from springtide.control.scheduling.machines import node_drains, nodes
from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.storage.database.store_batches import Batch
from springtide.core.job_states import JobState
from springtide.executors.fake import FakeJob
from springtide.executors.protocol import NodeForgotten, NodeJoined, NodeLeaving, NodeLost, Stopped

SCRIPTS = {"long": FakeJob(total_steps=4000, speeds={1: 10.0, 2: 18.0, 4: 30.0}, checkpoint_every=100)}
GONE = ("cpu:2", "cpu:3")


@pytest.fixture
def hand_server(tmp_path: Path) -> HandClockServer:
    return HandClockServer(tmp_path, devices=4, nodes=2, scripts=SCRIPTS)


def lose(hand_server: HandClockServer) -> None:
    hand_server.executor.lose_node("node-1", GONE)
    hand_server.reconciler.step()


def held(hand_server: HandClockServer) -> set[str]:
    return {name for one in hand_server.executor.running() for name in one.devices}


def node_states(hand_server: HandClockServer) -> dict[str, str]:
    return node_drains.describe_nodes(hand_server.reconciler.inventory, hand_server.store.fact(node_drains.FACT))


def test_a_job_on_the_node_starts_again_elsewhere_from_its_last_checkpoint(hand_server: HandClockServer) -> None:
    job = hand_server.submit(run="python train.py long", devices="1..4").id
    hand_server.pass_s(20)
    assert len(hand_server.job(job).devices) == 4
    lose(hand_server)
    assert hand_server.job(job).devices == ("cpu:0", "cpu:1")
    assert hand_server.job(job).condition("recovering") is not None
    hand_server.pass_s(5)
    record = hand_server.job(job)
    started = [event.data["step"] for event in hand_server.store.events(job) if event.kind == "started"]
    assert record.state is JobState.RUNNING and record.condition("recovering") is None
    assert (record.faults, started[-1] % 100) == (1, 0) and started[-1] > 0
    assert held(hand_server) == {"cpu:0", "cpu:1"}
    assert node_states(hand_server) == {"node-0": "ready", "node-1": "lost"}


def test_a_job_without_room_waits_until_the_node_is_back(hand_server: HandClockServer) -> None:
    jobs = [hand_server.submit(run="python train.py long", devices=2).id for _ in range(2)]
    hand_server.pass_s(20)
    lose(hand_server)
    hand_server.pass_s(5)
    (waiting,) = (job for job in jobs if not hand_server.job(job).devices)
    assert hand_server.job(waiting).state is JobState.ADMITTED
    future = hand_server.reconciler.call(lambda: hand_server.operations.undrain("node-1"))
    hand_server.pass_s(5)
    future.result(timeout=0)
    assert hand_server.job(waiting).state is JobState.RUNNING and held(hand_server) >= set(GONE)
    assert node_states(hand_server) == {"node-0": "ready", "node-1": "ready"}


def test_the_newest_promise_that_cannot_be_kept_is_named(hand_server: HandClockServer) -> None:
    hand_server.submit(run="python train.py long", deadline="1h")
    hand_server.pass_s(400)
    first, second = (hand_server.submit(run="python train.py long", deadline="7m", devices=2).id for _ in range(2))
    hand_server.pass_s(5)
    assert hand_server.job(first).promised and hand_server.job(second).promised
    lose(hand_server)
    risk = hand_server.job(second).condition("at_risk")
    assert hand_server.job(first).condition("at_risk") is None
    assert risk is not None and risk.reason == "lost_capacity" and "node-1 is gone" in risk.sentence
    assert "it has room again when that node is back, or another one joins" in risk.sentence
    hand_server.pass_s(900)
    assert (hand_server.job(first).state, hand_server.job(first).missed) == (JobState.SUCCEEDED, "")
    assert (hand_server.job(second).state, hand_server.job(second).missed) == (JobState.SUCCEEDED, "lost_capacity")


def test_a_probe_on_the_node_is_repeated(hand_server: HandClockServer) -> None:
    blockers = [hand_server.submit(run="python train.py long", devices=1).id for _ in range(2)]
    hand_server.pass_s(5)
    job = hand_server.submit(run="python train.py long", deadline="1h", devices=2, env={"A": "1"}).id
    assert hand_server.job(job).state is JobState.PROBING and set(hand_server.job(job).devices) <= set(GONE)
    lose(hand_server)
    hand_server.pass_s(20)
    assert hand_server.job(job).promised and all(hand_server.job(one).active for one in blockers)


def test_a_node_lost_while_it_is_drained_keeps_no_job_back(hand_server: HandClockServer) -> None:
    hand_server.executor.scripts["stiff"] = FakeJob(
        total_steps=4000, speeds={1: 10.0, 2: 18.0, 4: 30.0}, pause_s=1000.0
    )
    job = hand_server.submit(run="python train.py stiff", devices="1..4").id
    hand_server.pass_s(20)
    future = hand_server.reconciler.call(lambda: hand_server.operations.drain("node-1", 600.0))
    hand_server.reconciler.step()
    future.result(timeout=0)
    lose(hand_server)
    hand_server.pass_s(3)
    assert "drain_forced" in hand_server.event_kinds(job) and not held(hand_server) & set(GONE)
    assert node_states(hand_server)["node-1"] == "lost"


def test_the_last_node_and_one_that_nobody_knows_change_nothing(hand_server: HandClockServer) -> None:
    lose(hand_server)
    for node in ("node-0", "node-9"):
        hand_server.executor.emit(NodeLost(job="", generation=0, node=node, reason="lost by the test"))
    hand_server.reconciler.step()
    assert hand_server.reconciler.inventory.cluster.total == 2
    assert "no_nodes" in [event.kind for event in hand_server.store.events(None)]


def test_a_restarted_server_knows_that_a_node_is_lost(hand_server: HandClockServer) -> None:
    job = hand_server.submit(run="python train.py long", devices="1..4").id
    hand_server.pass_s(20)
    lose(hand_server)
    hand_server.restart()
    hand_server.pass_s(10)
    assert node_states(hand_server)["node-1"] == "lost"
    assert hand_server.job(job).devices == ("cpu:0", "cpu:1") and hand_server.job(job).state is JobState.RUNNING


def test_a_node_that_a_restarted_server_does_not_have_keeps_no_promise_unwatched(hand_server: HandClockServer) -> None:
    hand_server.store.write(Batch(facts={nodes.LAST_LOST: ["of-another-cluster"]}))
    hand_server.restart()
    assert hand_server.reconciler.inventory.away == frozenset()
    lose(hand_server)
    hand_server.executor.emit(NodeLost(job="", generation=0, node="node-0", reason="lost by the test"))
    hand_server.reconciler.step()
    assert hand_server.reconciler.inventory.away == {"node-0"}


def join(hand_server: HandClockServer, node: str, devices: tuple[str, ...], device_type: str = "cpu") -> None:
    hand_server.executor.emit(NodeJoined(job="", generation=0, node=node, device_type=device_type, devices=devices))
    hand_server.reconciler.step()


def test_a_node_that_comes_back_takes_work_again_by_itself(hand_server: HandClockServer) -> None:
    job = hand_server.submit(run="python train.py long", devices="1..4").id
    hand_server.pass_s(20)
    lose(hand_server)
    hand_server.pass_s(5)
    join(hand_server, "node-1", GONE)
    hand_server.pass_s(30)
    assert node_states(hand_server) == {"node-0": "ready", "node-1": "ready"}
    assert len(hand_server.job(job).devices) == 4


def test_a_node_that_joins_again_with_fewer_devices_keeps_no_job_on_those_that_are_gone(
    hand_server: HandClockServer,
) -> None:
    lose(hand_server)
    job = hand_server.submit(run="python train.py long", devices="1..4").id
    hand_server.pass_s(20)
    assert hand_server.job(job).devices == ("cpu:0", "cpu:1")
    hand_server.executor.emit(NodeLost(job="", generation=0, node="node-0", reason="it leaves to come again"))
    join(hand_server, "node-0", ("cpu:0",))
    hand_server.pass_s(20)
    record = hand_server.job(job)
    assert (record.devices, record.state) == (("cpu:0",), JobState.RUNNING)
    assert hand_server.reconciler.inventory.names_of("node-0") == ("cpu:0",)


def test_a_node_that_an_admin_drained_stays_drained_when_it_comes_back(hand_server: HandClockServer) -> None:
    hand_server.reconciler.call(lambda: hand_server.operations.drain("node-1", 1.0))
    hand_server.pass_s(5)
    lose(hand_server)
    join(hand_server, "node-1", GONE)
    assert node_drains.read_drains(hand_server.store.fact(node_drains.FACT))["node-1"].by_hand
    assert "node-1" in hand_server.reconciler.inventory.drained


def test_a_new_node_is_used_under_its_own_name(hand_server: HandClockServer) -> None:
    jobs = [hand_server.submit(run="python train.py long", devices=4).id for _ in range(2)]
    hand_server.pass_s(20)
    (waiting,) = (job for job in jobs if not hand_server.job(job).devices)
    join(hand_server, "blue", ("blue/cpu:0", "blue/cpu:1", "blue/cpu:2", "blue/cpu:3"))
    hand_server.pass_s(30)
    assert hand_server.reconciler.inventory.nodes == ("node-0", "node-1", "blue")
    assert set(hand_server.job(waiting).devices) == {f"blue/cpu:{number}" for number in range(4)}


def test_a_node_of_a_new_type_waits_for_the_next_start_of_the_server(hand_server: HandClockServer) -> None:
    join(hand_server, "blue", ("blue/gpu:0",), "a100")
    assert hand_server.reconciler.inventory.nodes == ("node-0", "node-1")
    (told,) = [event for event in hand_server.store.events() if event.kind == "node_joined"]
    assert "start it again" in told.sentence


def test_jobs_leave_a_node_that_is_about_to_go(hand_server: HandClockServer) -> None:
    job = hand_server.submit(run="python train.py long", devices="1..4").id
    hand_server.pass_s(20)
    leaving = NodeLeaving(job="", generation=0, node="node-1", grace_s=30.0, reason="spot")
    hand_server.executor.emit(leaving)
    hand_server.reconciler.step()
    hand_server.pass_s(5)
    record = hand_server.job(job)
    assert record.devices == ("cpu:0", "cpu:1") and record.faults == 0, "it was resized, not restarted"
    assert node_states(hand_server)["node-1"] == "drained"


def test_jobs_save_before_the_last_node_goes_and_go_on_there_when_it_is_back(hand_server: HandClockServer) -> None:
    lose(hand_server)
    job = hand_server.submit(run="python train.py long", devices="1..4").id
    hand_server.pass_s(20)
    before = hand_server.job(job)
    assert before.step % 100, "there is something to lose"
    leave = NodeLeaving(job="", generation=0, node="node-0", grace_s=30.0, reason="spot")
    hand_server.executor.emit(leave)
    hand_server.reconciler.step()
    sent = hand_server.job(job)
    assert sent.generation == before.generation + 1 and sent.condition("recovering") is not None
    hand_server.pass_s(5)
    record = hand_server.job(job)
    started = [int(event.data["step"]) for event in hand_server.store.events(job) if event.kind == "started"]
    assert len(started) == 2 and started[1] >= before.step, "it went on from where it was told to stop"
    assert (record.faults, record.lost_steps) == (0, 0) and record.condition("recovering") is None
    assert node_states(hand_server)["node-0"] == "ready", "it is there for those that wait for it"


def test_a_notice_to_all_nodes_at_once_has_every_job_save(hand_server: HandClockServer) -> None:
    jobs = [hand_server.submit(run="python train.py long", devices=2).id for _ in range(2)]
    hand_server.pass_s(20)
    generations = [hand_server.job(job).generation for job in jobs]
    for node in ("node-0", "node-1"):
        hand_server.executor.emit(NodeLeaving(job="", generation=0, node=node, grace_s=30.0, reason="spot"))
    hand_server.reconciler.step()
    stopped = [event.job for event in hand_server.executor.outbox.waiting if isinstance(event, Stopped)]
    assert sorted({*stopped}) == sorted(jobs)
    assert all(hand_server.job(job).generation > before for job, before in zip(jobs, generations, strict=True))


def lose_both(hand_server: HandClockServer) -> str:
    """A job on the node that is lost when no other takes work."""
    lose(hand_server)
    job = hand_server.submit(run="python train.py long", devices="1..4").id
    hand_server.pass_s(20)
    assert hand_server.job(job).devices == ("cpu:0", "cpu:1")
    hand_server.executor.lose_node("node-0", ("cpu:0", "cpu:1"))
    hand_server.reconciler.step()
    assert hand_server.job(job).devices == ("cpu:0", "cpu:1"), "it waits there"
    return job


def test_jobs_of_the_last_node_go_on_without_it_when_another_one_is_back(hand_server: HandClockServer) -> None:
    job = lose_both(hand_server)
    hand_server.restart()
    join(hand_server, "node-1", GONE)
    hand_server.pass_s(10)
    record = hand_server.job(job)
    assert (record.devices, record.state, record.faults) == (GONE, JobState.RUNNING, 1)
    assert node_states(hand_server) == {"node-0": "lost", "node-1": "ready"}
    join(hand_server, "node-0", ("cpu:0", "cpu:1"))
    hand_server.pass_s(30)
    assert node_states(hand_server) == {"node-0": "ready", "node-1": "ready"}
    assert len(hand_server.job(job).devices) == 4


def test_jobs_of_the_last_node_go_on_when_an_admin_takes_another_one_back(hand_server: HandClockServer) -> None:
    job = lose_both(hand_server)
    future = hand_server.reconciler.call(lambda: hand_server.operations.undrain("node-1"))
    hand_server.pass_s(10)
    future.result(timeout=0)
    assert (hand_server.job(job).devices, hand_server.job(job).state) == (GONE, JobState.RUNNING)
    assert node_states(hand_server) == {"node-0": "lost", "node-1": "ready"}


def test_a_last_node_that_is_back_first_keeps_its_jobs(hand_server: HandClockServer) -> None:
    job = lose_both(hand_server)
    join(hand_server, "node-0", ("cpu:0", "cpu:1"))
    join(hand_server, "node-1", GONE)
    hand_server.pass_s(30)
    assert node_states(hand_server) == {"node-0": "ready", "node-1": "ready"}
    assert hand_server.job(job).condition("recovering") is None and "node_lost" not in faults(hand_server, job)


def faults(hand_server: HandClockServer, job: str) -> list[str]:
    return [str(event.data["cause"]) for event in hand_server.store.events(job) if event.kind == "faulted"]


LAST = ("cpu:0", "cpu:1")


def send_away(hand_server: HandClockServer, with_notice: bool) -> None:
    """Have the last node go, and keep what is started there waiting, as a lead does."""
    hand_server.executor.away = {*LAST}
    if with_notice:
        hand_server.executor.emit(NodeLeaving(job="", generation=0, node="node-0", grace_s=30.0, reason="spot"))
        hand_server.pass_s(3)
    hand_server.executor.lose_node("node-0", LAST)
    hand_server.reconciler.step()


def come_back(hand_server: HandClockServer) -> None:
    hand_server.executor.away = set()
    join(hand_server, "node-0", LAST)


@pytest.mark.parametrize("with_notice", [False, True])
@pytest.mark.parametrize("limit", [{"max_runtime": "60s"}, {"budget": "0.04 USD"}], ids=["max_runtime", "budget"])
def test_nothing_is_counted_while_the_last_node_is_away(
    tmp_path: Path, limit: dict[str, Any], with_notice: bool
) -> None:
    options = ServerOptions(policy=POLICY, price_per_device_hour=1.0)  # two devices for a minute are 0.033 dollars
    hand_server = HandClockServer(tmp_path, devices=4, nodes=2, scripts=SCRIPTS, options=options)
    lose(hand_server)
    job = hand_server.submit(run="python train.py long", devices=2, **limit).id
    hand_server.pass_s(20)
    send_away(hand_server, with_notice)
    hand_server.pass_s(60)
    hand_server.restart()
    hand_server.pass_s(60)
    assert hand_server.job(job).state is JobState.ADMITTED and hand_server.job(job).devices == LAST
    come_back(hand_server)
    hand_server.pass_s(20)
    record = hand_server.job(job)
    assert record.state is JobState.RUNNING and record.served == pytest.approx(40, abs=4)
    hand_server.pass_s(60)
    record = hand_server.job(job)
    assert record.state is (JobState.FAILED if "max_runtime" in limit else JobState.PAUSED), "then it counts again"
    used_s = 2 * 60.0 if "max_runtime" in limit else 0.04 * 3600.0
    assert record.cost_usd == pytest.approx(used_s / 3600.0, abs=0.001)


@pytest.mark.parametrize("with_notice", [False, True])
def test_promises_are_in_danger_while_the_last_node_is_away(hand_server: HandClockServer, with_notice: bool) -> None:
    lose(hand_server)
    hand_server.submit(run="python train.py long", deadline="1h")
    hand_server.pass_s(400)
    first, second = (hand_server.submit(run="python train.py long", deadline="1h", devices=2).id for _ in range(2))
    hand_server.pass_s(5)
    assert hand_server.job(first).promised and hand_server.job(second).promised
    send_away(hand_server, with_notice)
    hand_server.pass_s(5)
    for job in (first, second):
        record = hand_server.job(job)
        risk = record.condition("at_risk")
        assert risk is not None and risk.reason == "lost_capacity" and "no node takes work" in risk.sentence
        assert record.plan is not None and not record.endangered
        assert hand_server.event_kinds(job).count("at_risk") == 1
    come_back(hand_server)
    hand_server.pass_s(20)
    for job in (first, second):
        assert hand_server.job(job).condition("at_risk") is None and hand_server.job(job).plan is not None
        assert hand_server.event_kinds(job).count("safe") == 1


def test_a_promise_that_passes_while_the_last_node_is_away_is_missed_for_want_of_devices(
    hand_server: HandClockServer,
) -> None:
    lose(hand_server)
    hand_server.submit(run="python train.py long", deadline="1h")
    hand_server.pass_s(400)
    job = hand_server.submit(run="python train.py long", deadline="5m", devices=2).id
    hand_server.pass_s(5)
    assert hand_server.job(job).promised
    send_away(hand_server, with_notice=False)
    hand_server.pass_s(320)
    assert hand_server.job(job).missed == "lost_capacity"


def test_jobs_leave_the_last_node_when_another_one_joins_before_it_is_gone(hand_server: HandClockServer) -> None:
    lose(hand_server)
    job = hand_server.submit(run="python train.py long", devices="1..4").id
    hand_server.pass_s(20)
    hand_server.executor.away = {*LAST}
    hand_server.executor.emit(NodeLeaving(job="", generation=0, node="node-0", grace_s=30.0, reason="spot"))
    hand_server.pass_s(2)
    assert hand_server.job(job).devices == LAST, "it waits there"
    hand_server.restart()
    join(hand_server, "node-1", GONE)
    hand_server.pass_s(5)
    record = hand_server.job(job)
    assert (record.devices, record.state, record.faults) == (GONE, JobState.RUNNING, 0)
    assert node_states(hand_server)["node-0"] == "drained"
    hand_server.executor.lose_node("node-0", LAST)
    hand_server.reconciler.step()
    assert node_states(hand_server) == {"node-0": "lost", "node-1": "ready"}


def test_jobs_that_still_save_on_the_last_node_go_to_one_that_joins(hand_server: HandClockServer) -> None:
    lose(hand_server)
    job = hand_server.submit(run="python train.py long", devices="1..4").id
    hand_server.pass_s(20)
    before = hand_server.job(job)
    hand_server.executor.emit(NodeLeaving(job="", generation=0, node="node-0", grace_s=30.0, reason="spot"))
    join(hand_server, "node-1", GONE)
    hand_server.pass_s(5)
    record = hand_server.job(job)
    started = [int(event.data["step"]) for event in hand_server.store.events(job) if event.kind == "started"]
    assert (record.devices, record.state, record.faults) == (GONE, JobState.RUNNING, 0)
    assert len(started) == 2 and started[1] >= before.step, "it went on from what it saved"
    assert record.condition("at_risk") is None and record.condition("recovering") is None


def forget(hand_server: HandClockServer, node: str = "node-1") -> None:
    hand_server.executor.emit(NodeForgotten(job="", generation=0, node=node))
    hand_server.reconciler.step()


def test_a_node_that_was_lost_long_ago_is_in_no_list_any_more_and_new_when_it_comes(
    hand_server: HandClockServer,
) -> None:
    job = hand_server.submit(run="python train.py long", devices="1..4").id
    hand_server.pass_s(20)
    forget(hand_server)
    assert node_states(hand_server) == {"node-0": "ready", "node-1": "ready"}, "it is there"
    lose(hand_server)
    hand_server.pass_s(20)
    forget(hand_server)
    assert node_states(hand_server) == {"node-0": "ready"} and hand_server.store.fact(node_drains.FACT) == {}
    assert hand_server.job(job).state is JobState.RUNNING and held(hand_server) == {"cpu:0", "cpu:1"}
    hand_server.executor.emit(NodeJoined(job="", generation=0, node="node-1", device_type="cpu", devices=GONE))
    hand_server.pass_s(20)
    assert node_states(hand_server) == {"node-0": "ready", "node-1": "ready"} and len(held(hand_server)) == 4


def test_what_is_known_of_lost_nodes_goes_when_the_executor_does_not_know_them(hand_server: HandClockServer) -> None:
    lost = {node: node_drains.Drain(node, 1.0, 1.0, lost=True, by_hand=node == "pod-2") for node in ("pod-1", "pod-2")}
    hand_server.store.write(Batch(facts={node_drains.FACT: node_drains.write_drains(lost)}))
    hand_server.restart()
    assert set(hand_server.store.fact(node_drains.FACT)) == {"pod-2"}, "an admin's word holds"
    hand_server.executor.emit(
        NodeJoined(job="", generation=0, node="pod-2", device_type="cpu", devices=("pod-2/cpu:0",))
    )
    hand_server.pass_s(1)
    assert hand_server.reconciler.inventory.drained == {"pod-2"}


def drain_and_forget(hand_server: HandClockServer) -> None:
    """An admin drains a node and switches it off; a day later the lead forgets it."""
    hand_server.operations.drain("node-1", 1.0)
    hand_server.pass_s(5)
    lose(hand_server)
    forget(hand_server)
    assert node_states(hand_server) == {"node-0": "ready", "node-1": "lost"}, "an admin's word holds"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_forgotten_node_that_an_admin_takes_back_is_no_room_for_jobs(
    hand_server: HandClockServer, restarts: bool
) -> None:
    drain_and_forget(hand_server)
    if restarts:
        hand_server.restart()
    hand_server.operations.undrain("node-1")
    hand_server.pass_s(1)
    assert node_states(hand_server) == {"node-0": "ready"} and hand_server.store.fact(node_drains.FACT) == {}
    job = hand_server.submit(run="python train.py long", devices="1..4").id
    hand_server.pass_s(20)
    assert held(hand_server) == {"cpu:0", "cpu:1"} and hand_server.job(job).state is JobState.RUNNING


def test_a_lost_node_that_an_admin_takes_back_takes_work_when_it_is_there(hand_server: HandClockServer) -> None:
    hand_server.operations.drain("node-1", 1.0)
    hand_server.pass_s(5)
    lose(hand_server)
    hand_server.operations.undrain("node-1")
    hand_server.pass_s(1)
    assert node_states(hand_server) == {"node-0": "ready", "node-1": "lost"}
    join(hand_server, "node-1", GONE)
    hand_server.pass_s(1)
    assert node_states(hand_server) == {"node-0": "ready", "node-1": "ready"}


def test_a_node_that_is_back_is_drained_by_hand_still_and_lost_no_longer(hand_server: HandClockServer) -> None:
    drain_and_forget(hand_server)
    join(hand_server, "node-1", GONE)
    hand_server.pass_s(1)
    assert node_states(hand_server) == {"node-0": "ready", "node-1": "drained"}
    hand_server.operations.undrain("node-1")
    hand_server.pass_s(1)
    assert node_states(hand_server) == {"node-0": "ready", "node-1": "ready"}
