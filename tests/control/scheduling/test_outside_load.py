"""Others on the platform's machine: promises count slower speeds while they are there, and are as before afterwards."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.control.hand_clock import POLICY, HandClockServer

from springtide.control.api.reports.chances import judge_promise
from springtide.control.scheduling.machines.inventory import make_inventory
from springtide.control.scheduling.server_context import ServerOptions
from springtide.core.job_states import JobState
from springtide.core.moments import tell_moments
from springtide.executors.fake import FakeJob
from springtide.executors.protocol import MachineLoaded

SCRIPTS = {
    "long": FakeJob(total_steps=4000, speeds={1: 10.0, 2: 18.0}),
    "short": FakeJob(total_steps=4000, speeds={1: 40.0, 2: 72.0}),
}
DEVICES = ("cpu:0", "cpu:1")


@pytest.fixture
def hand_server(tmp_path: Path) -> HandClockServer:
    server = HandClockServer(tmp_path, devices=2, scripts=SCRIPTS)
    know(server)
    return server


def know(server: HandClockServer) -> None:
    """Let the code be measured, a whole epoch of it included, on one device and on two."""
    job = server.submit(run="python train.py long", deadline="1h").id
    server.pass_s(500)
    assert server.job(job).state is JobState.SUCCEEDED


def load(server: HandClockServer, slowdown: float, really: float | None = None) -> None:
    """Let others take so much of the machine that work takes so much longer; `really`: so much longer."""
    outside = 2 * (slowdown - 1)
    event = MachineLoaded(
        job="", generation=0, machine="", devices=DEVICES, cores=2.0, outside=outside, slowdown=slowdown
    )
    server.executor.load_machine(event, really)
    server.pass_s(1)


def told(server: HandClockServer) -> list[str]:
    return [event.kind for event in server.store.events(None)]


def test_what_a_quiet_machine_could_promise_is_not_promised_beside_others_and_is_again_after_them(
    hand_server: HandClockServer,
) -> None:
    quiet = hand_server.submit(run="python train.py long", deadline="6m", name="quiet")
    assert quiet.promised and "others" not in quiet.sentence
    hand_server.pass_s(360)
    assert (hand_server.job(quiet.id).state, hand_server.job(quiet.id).missed) == (JobState.SUCCEEDED, "")
    load(hand_server, 2.0)
    wide = hand_server.submit(run="python train.py long", deadline="15m", name="wide")
    assert wide.promised and "2.0 times" in wide.sentence
    hand_server.pass_s(700)
    assert (hand_server.job(wide.id).state, hand_server.job(wide.id).missed) == (JobState.SUCCEEDED, "")
    beside = hand_server.submit(run="python train.py long", deadline="6m", name="beside")
    assert not beside.promised and beside.state in (JobState.DECLINED, JobState.OFFERED)
    assert "planned to take 2.0 times as long" in beside.sentence
    later_s = hand_server.reconciler.context.clock.now_s() + 7200
    assert "now" not in beside.sentence and "other programs used the processors at" in beside.sentence
    assert "(2h ago)" in tell_moments(beside.sentence, later_s)
    hand_server.pass_s(120)  # its offer runs out
    load(hand_server, 1.0)
    assert told(hand_server).count("outside_load") == told(hand_server).count("outside_load_over") == 1
    after = hand_server.submit(run="python train.py long", deadline="6m", name="after")
    assert after.promised and "others" not in after.sentence


def test_a_running_promise_is_in_danger_for_the_load_and_safe_after_it(hand_server: HandClockServer) -> None:
    job = hand_server.submit(run="python train.py long", deadline="6m").id
    hand_server.pass_s(30)
    load(hand_server, 3.0)
    hand_server.pass_s(10)
    risk = hand_server.job(job).condition("at_risk")
    assert risk is not None and risk.reason == "outside_load" and "other programs used the processors" in risk.sentence
    load(hand_server, 1.0)
    hand_server.pass_s(10)
    assert hand_server.job(job).condition("at_risk") is None and "safe" in hand_server.event_kinds(job)


def test_a_promise_that_others_broke_says_so(hand_server: HandClockServer) -> None:
    job = hand_server.submit(run="python train.py long", deadline="6m").id
    hand_server.pass_s(30)
    load(hand_server, 4.0)
    hand_server.pass_s(360)
    assert hand_server.job(job).missed == "outside_load"


def test_a_load_does_not_outlive_itself_in_what_is_known_of_a_speed(hand_server: HandClockServer) -> None:
    job = hand_server.submit(run="python train.py long", deadline="1h")
    hand_server.pass_s(20)
    staging = hand_server.reconciler.context.staging
    before = dict(staging.speeds[job.speed_key]["cpu"].points)
    load(hand_server, 2.0)
    hand_server.pass_s(200)
    after = staging.speeds[job.speed_key]["cpu"].points
    assert {share: rate for share, (_, rate) in after.items()} == pytest.approx(
        {share: rate for share, (_, rate) in before.items()}, rel=0.02
    )


def test_steps_tell_more_of_a_job_than_processors_do(hand_server: HandClockServer) -> None:
    job = hand_server.submit(run="python train.py long", deadline="6m").id
    hand_server.pass_s(30)
    load(hand_server, 3.0, really=1.0)
    hand_server.pass_s(10)
    assert hand_server.job(job).condition("at_risk") is None, "its steps are as fast as ever"
    assert hand_server.reconciler.context.world.paces[job] == pytest.approx(1.0, abs=0.05)


def test_a_slowdown_within_the_interval_of_any_speed_is_none(hand_server: HandClockServer) -> None:
    load(hand_server, 1.08)
    assert "outside_load" not in told(hand_server) and not hand_server.reconciler.inventory.slowdowns


def test_a_restarted_server_knows_the_load(hand_server: HandClockServer) -> None:
    load(hand_server, 2.0)
    hand_server.restart()
    assert hand_server.reconciler.inventory.find_slowest(["cpu:1"]) == 2.0
    assert not hand_server.submit(run="python train.py long", deadline="6m").promised


def test_an_owner_may_have_it_not_counted(tmp_path: Path) -> None:
    options = ServerOptions(policy=POLICY, outside_load=False)
    server = HandClockServer(tmp_path, devices=2, scripts=SCRIPTS, options=options)
    know(server)
    load(server, 2.0, really=1.0)
    assert server.submit(run="python train.py long", deadline="6m").promised
    assert "outside_load" not in told(server)
    load(server, 1.0)
    server.options = ServerOptions(policy=POLICY)
    server.restart()
    assert server.reconciler.inventory.slowdowns == {}, "a load that ended while it did not count is over"


def test_a_speed_that_was_probed_beside_others_is_never_believed_to_be_higher(tmp_path: Path) -> None:
    server = HandClockServer(tmp_path, devices=2, scripts=SCRIPTS)
    load(server, 2.0)
    job = server.submit(run="python train.py short", deadline="1h")
    server.pass_s(5)
    points = server.reconciler.context.staging.speeds[job.speed_key]["cpu"].points
    assert points[1][1] == pytest.approx(20.0, rel=0.1)


def test_the_probability_of_a_promise_is_less_sure_beside_others(hand_server: HandClockServer) -> None:
    job = hand_server.submit(run="python train.py long", deadline="8m").id
    hand_server.pass_s(30)
    record = hand_server.job(job)
    speeds = hand_server.store.speeds(record.speed_key)
    now_s = hand_server.reconciler.now_s
    alone, beside = judge_promise(record, speeds, now_s), judge_promise(record, speeds, now_s, 2.0)
    assert alone is not None and beside is not None and 0.5 < beside < alone


def test_one_slow_machine_of_many_slows_only_jobs_that_would_come_there() -> None:
    many = make_inventory("cpu", [f"cpu:{number}" for number in range(100)], nodes=100)
    one = replace(many, slowdowns={"cpu:7": 3.0})
    assert [one.find_slowdown("cpu", share) for share in (1, 4, 8, 64)] == [1.0, 1.0, 3.0, 3.0]
    assert one.find_slowest(["cpu:6", "cpu:7"]) == 3.0 and one.find_slowest(["cpu:6"]) == 1.0
    drained = replace(one, drained=frozenset({"node-7"}))
    assert drained.find_slowdown("cpu", 64) == 1.0, "a machine that takes no work slows nobody"
    all_slow = replace(many, slowdowns={f"cpu:{number}": 1.5 for number in range(100)})
    assert all_slow.find_slowdown("cpu", 1) == 1.5


def test_a_promise_is_in_danger_as_soon_as_its_job_is_kept_on_one_of_its_devices(hand_server: HandClockServer) -> None:
    """Its executor leaves the others idle, whose hosts it cannot reach; its end was predicted as if it used all."""
    job = hand_server.submit(run="python train.py long", deadline="6m").id
    hand_server.pass_s(30)
    assert len(hand_server.job(job).devices) == 2
    hand_server.executor.runs[job].devices = ("cpu:0",)
    hand_server.pass_s(40)
    record, now_s = hand_server.job(job), hand_server.reconciler.context.clock.now_s()
    told = next(event for event in hand_server.store.events(job) if event.kind == "at_risk")
    assert len(record.devices) == 2 and record.condition("at_risk") is not None
    assert told.data["predicted_s"] - now_s == pytest.approx((4000 - record.step) / 10.0, rel=0.1)
