"""The reconciler on hand-moved clocks: answers, elastic life, faults, restarts; real store and policy, fake workers."""

import errno
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.control.hand_clock import HandClockServer, ScriptedExecutor

from springtide.control.api.explanations import explain
from springtide.control.scheduling.loop.alarms import LEAD_S, Alarm
from springtide.control.scheduling.reconciler import IDLE_POLL_S
from springtide.core.job_states import JobState
from springtide.errors import ExecutorError, JobError
from springtide.executors.fake import FakeJob
from springtide.executors.protocol import Instruction, Start

FAST = {"long": FakeJob(total_steps=400, speeds={1: 10.0, 2: 18.0}), "short": FakeJob(speeds={1: 10.0, 2: 18.0})}


@pytest.fixture
def hand_server(tmp_path: Path) -> HandClockServer:
    return HandClockServer(tmp_path, scripts=FAST)


def run_known(hand_server: HandClockServer, script: str = "short") -> None:
    """Let one job run to its end, so that its speed is known afterwards."""
    record = hand_server.submit(run=f"python train.py {script}", deadline="10m")
    hand_server.pass_s(60)
    assert hand_server.job(record.id).state is JobState.SUCCEEDED


def test_an_unknown_job_is_probed_then_promised_then_kept(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run="python train.py short", deadline="5m")
    assert (record.state, record.reason) == (JobState.PROBING, "unknown_speed")
    hand_server.pass_s(5)
    record = hand_server.job(record.id)
    assert (record.state, record.promised, record.reason) == (JobState.RUNNING, True, "promised")
    assert "25 % more time" in record.sentence
    hand_server.pass_s(30)
    record = hand_server.job(record.id)
    assert (record.state, record.step, record.missed) == (JobState.SUCCEEDED, 100, "")
    assert record.finished_s is not None and record.deadline_s is not None
    assert record.finished_s < record.deadline_s
    assert hand_server.event_kinds(record.id) == [
        "submitted",
        "probing",
        "probed",
        "admitted",
        "placed",
        "started",
        "succeeded",
    ]
    assert hand_server.executor.running() == ()


def test_a_known_job_is_answered_at_once_also_with_other_total_steps(hand_server: HandClockServer) -> None:
    run_known(hand_server)
    record = hand_server.submit(run="python train.py short", deadline="5m", steps=50)
    assert (record.state, record.total_steps) == (JobState.ADMITTED, 50)
    assert hand_server.submit(run="python train.py other", deadline="5m").reason in (
        "unknown_speed",
        "no_device_for_probe",
    )


def test_a_best_effort_job_is_admitted_without_a_probe_or_a_promise(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run="python train.py short")
    assert (record.state, record.promised, record.deadline_s) == (JobState.ADMITTED, False, None)
    hand_server.pass_s(30)
    assert hand_server.job(record.id).state is JobState.SUCCEEDED


def test_an_impossible_deadline_is_declined_with_offers_and_the_first_can_be_taken(
    hand_server: HandClockServer,
) -> None:
    run_known(hand_server)
    record = hand_server.submit(run="python train.py short", deadline="2s")
    assert (record.state, record.reason) == (JobState.OFFERED, "deadline_too_tight")
    offers = hand_server.store.offers(record.id, "open")
    assert offers[0].kind == "deadline"
    hand_server.pass_s(5)
    hand_server.reconciler.call(lambda: hand_server.operations.accept(record.id, None))
    hand_server.reconciler.step()
    record = hand_server.job(record.id)
    assert (record.state, record.promised, record.deadline_s) == (JobState.ADMITTED, True, offers[0].deadline_s)
    hand_server.pass_s(60)
    assert hand_server.job(record.id).missed == ""
    assert hand_server.store.offers(record.id)[0].state == "accepted"


def test_accept_offer_takes_the_nearest_offer_in_the_same_breath(hand_server: HandClockServer) -> None:
    run_known(hand_server)
    record = hand_server.submit(run="python train.py short", deadline="2s", accept_offer=True)
    assert (record.state, record.promised) == (JobState.ADMITTED, True)


def test_accept_offer_also_counts_after_a_probe(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run="python train.py short", deadline="2s", accept_offer=True)
    assert record.state is JobState.PROBING
    hand_server.pass_s(60)
    record = hand_server.job(record.id)
    assert (record.state, record.promised, record.missed) == (JobState.SUCCEEDED, True, "")


def test_offers_expire_and_the_job_is_then_declined(hand_server: HandClockServer) -> None:
    run_known(hand_server)
    record = hand_server.submit(run="python train.py short", deadline="2s")
    hand_server.pass_s(20)
    assert hand_server.job(record.id).state is JobState.DECLINED
    assert {offer.state for offer in hand_server.store.offers(record.id)} == {"expired"}
    assert "offer_expired" in hand_server.event_kinds(record.id)


def test_a_user_has_at_most_two_jobs_with_open_offers(hand_server: HandClockServer) -> None:
    run_known(hand_server)
    states = [hand_server.submit(run="python train.py short", deadline="2s").state for _ in range(3)]
    assert states == [JobState.OFFERED, JobState.OFFERED, JobState.DECLINED]
    assert hand_server.submit(user="bob", run="python train.py short", deadline="2s").state is JobState.OFFERED


def test_jobs_share_devices_and_grow_again(hand_server: HandClockServer) -> None:
    run_known(hand_server, "long")
    first = hand_server.submit(run="python train.py long")
    hand_server.pass_s(3)
    assert len(hand_server.job(first.id).devices) == 2
    second = hand_server.submit(run="python train.py long", deadline="80s", devices=1)
    hand_server.pass_s(3)
    assert len(hand_server.job(second.id).devices) == 1
    assert len(hand_server.job(first.id).devices) == 1
    hand_server.pass_s(90)
    assert hand_server.job(second.id).missed == ""
    assert {"grows", "shrinks"} & set(hand_server.event_kinds(first.id))


def test_a_killed_worker_recovers_and_loses_only_what_was_not_saved(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run="python train.py long")
    hand_server.pass_s(5.5)
    hand_server.executor.kill(record.id)
    hand_server.pass_s(0.5)
    record = hand_server.job(record.id)
    assert record.faults == 1
    hand_server.pass_s(60)
    record = hand_server.job(record.id)
    assert (record.state, record.step) == (JobState.SUCCEEDED, 400)
    assert 0 <= record.lost_steps <= 10


def test_a_crashing_script_fails_after_its_retries_with_its_reason(tmp_path: Path) -> None:
    hand_server = HandClockServer(tmp_path, scripts={"bad": FakeJob(crashes_at=5)})
    record = hand_server.submit(run="python train.py bad", retry={"max": 2})
    hand_server.pass_s(30)
    record = hand_server.job(record.id)
    assert (record.state, record.reason, record.faults, record.exit_code) == (JobState.FAILED, "crashed", 2, 1)
    assert hand_server.executor.running() == ()


def test_a_probe_that_crashes_fails_the_job(tmp_path: Path) -> None:
    hand_server = HandClockServer(tmp_path, scripts={"bad": FakeJob(crashes_at=5)})
    record = hand_server.submit(run="python train.py bad", deadline="5m", retry={"max": 0})
    hand_server.pass_s(10)
    assert hand_server.job(record.id).state is JobState.FAILED
    assert sum(mask.bit_count() for mask in hand_server.reconciler.context.world.free_masks) == 2


def test_a_cancelled_job_gives_its_devices_back_and_can_be_resumed(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run="python train.py long")
    hand_server.pass_s(5)
    hand_server.reconciler.call(lambda: hand_server.operations.cancel(record.id, "ann"))
    hand_server.reconciler.step()
    assert hand_server.job(record.id).state is JobState.CANCELLED
    hand_server.pass_s(1)
    assert hand_server.executor.running() == ()
    hand_server.reconciler.call(lambda: hand_server.operations.resume(record.id, hand_server.find_step(record.id)))
    hand_server.pass_s(60)
    resumed = hand_server.job(record.id)
    assert (resumed.state, resumed.step) == (JobState.SUCCEEDED, 400)
    starts = [event for event in hand_server.store.events(record.id) if event.kind == "started"]
    assert starts[-1].data["step"] > 0


def test_a_job_slower_than_measured_is_at_risk_early_and_missed_at_its_deadline(tmp_path: Path) -> None:
    scripts = {"short": FakeJob(speeds={1: 10.0}, total_steps=200)}
    hand_server = HandClockServer(tmp_path, scripts=scripts)
    run_known(hand_server)
    scripts["short"] = FakeJob(speeds={1: 2.0}, total_steps=200)
    record = hand_server.submit(run="python train.py short", deadline="40s", devices=1)
    assert record.promised
    hand_server.pass_s(20)
    risk = hand_server.job(record.id).condition("at_risk")
    assert risk is not None and risk.reason == "slower_than_measured"
    assert "at_risk" in hand_server.event_kinds(record.id)
    hand_server.pass_s(25)
    record = hand_server.job(record.id)
    assert (record.missed, record.state) == ("slower_than_measured", JobState.RUNNING)
    now_s, events = hand_server.reconciler.now_s, hand_server.store.events(record.id, 0, 100)
    told = explain(record, [], events, [], now_s)
    assert told.reason == "missed" and told.sentence.startswith("its deadline passed before it ended (slower_than")
    assert "after its deadline" in told.sentence and "before its deadline" not in told.sentence
    assert not any("promise" in fact for fact in told.facts), "nothing is promised any more"
    waiting = explain(replace(record, devices=()), [], events, [], now_s)
    assert waiting.reason == "missed" and "first of the best-effort jobs, and every device" in waiting.sentence
    hand_server.pass_s(120)
    record = hand_server.job(record.id)
    assert (record.state, record.missed) == (JobState.SUCCEEDED, "slower_than_measured")


def test_a_probe_for_the_number_of_steps_alone_waits_for_a_device_without_being_asked_again(tmp_path: Path) -> None:
    """The speed of its code is known from a job that gave its steps itself; how many there are is not."""
    scripts = {"long": FakeJob(speeds={1: 10.0}, total_steps=100_000)}
    hand_server = HandClockServer(tmp_path, scripts=scripts)
    for _ in range(2):
        hand_server.submit(run="python train.py long", deadline="10h", steps=100_000, devices=1)
        hand_server.pass_s(60)
    assert all(hand_server.job(one.id).devices for one in hand_server.store.active_jobs()), "both devices are taken"
    record = hand_server.submit(run="python train.py long", deadline="20h", devices=1)
    hand_server.pass_s(5)
    record = hand_server.job(record.id)
    assert not hand_server.reconciler.dirty
    assert (record.state, record.reason) == (JobState.WAITLISTED, "no_device_for_probe")


def test_a_spent_budget_pauses_the_job_and_says_so(tmp_path: Path) -> None:
    from tests.control.hand_clock import POLICY

    from springtide.control.scheduling.server_context import ServerOptions

    hand_server = HandClockServer(
        tmp_path, scripts=FAST, options=ServerOptions(policy=POLICY, price_per_device_hour=3600.0)
    )
    record = hand_server.submit(run="python train.py long", budget="10 USD", devices=1)
    hand_server.pass_s(20)
    record = hand_server.job(record.id)
    assert (record.state, record.reason, record.devices) == (JobState.PAUSED, "budget", ())
    assert hand_server.executor.running() == ()


def test_a_budget_without_a_price_is_refused(hand_server: HandClockServer) -> None:
    with pytest.raises(JobError, match="price_per_device_hour"):
        hand_server.submit(budget="10 USD")


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"devices": 3}, "exceeds_cluster"),
        ({"device_types": ["h100"]}, "no_such_device"),
        ({"elastic": False, "devices": 1, "deadline": "1h"}, "unknown_duration"),
    ],
)
def test_what_no_policy_could_grant_is_declined_with_its_reason(
    hand_server: HandClockServer, keys: dict[str, Any], reason: str
) -> None:
    record = hand_server.submit(**keys)
    assert (record.state, record.reason) == (JobState.DECLINED, reason)
    assert record.sentence


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"run": "python nowhere.py"}, "'nowhere.py' does not exist"),
        ({"run": "python ../train.py"}, "outside workdir"),
        ({"deadline": "2001-01-01T00:00:00Z"}, "in the past"),
        ({"secrets": ["TOKEN"]}, "secret TOKEN has no value"),
    ],
)
def test_what_cannot_be_run_is_an_error_and_leaves_nothing(
    hand_server: HandClockServer, keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(JobError, match=message):
        hand_server.submit(**keys)
    assert hand_server.store.list_jobs() == []


def test_a_jump_of_the_wall_clock_breaks_no_promise(hand_server: HandClockServer) -> None:
    run_known(hand_server, "long")
    record = hand_server.submit(run="python train.py long", deadline="2m")
    hand_server.pass_s(5)
    hand_server.source.wall += 3600
    hand_server.pass_s(5)
    hand_server.source.wall -= 7200
    hand_server.restart()
    hand_server.pass_s(60)
    record = hand_server.job(record.id)
    assert (record.state, record.missed) == (JobState.SUCCEEDED, "")


def test_a_restarted_server_adopts_what_runs_and_starts_nothing_twice(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run="python train.py long")
    hand_server.pass_s(5)
    before = hand_server.job(record.id)
    hand_server.restart()
    hand_server.reconciler.step()
    assert hand_server.job(record.id).generation == before.generation
    hand_server.pass_s(60)
    assert hand_server.job(record.id).state is JobState.SUCCEEDED
    assert hand_server.event_kinds(record.id).count("started") == 1


def test_an_end_during_the_servers_absence_counts_from_when_it_happened(hand_server: HandClockServer) -> None:
    run_known(hand_server, "long")
    record = hand_server.submit(run="python train.py long", deadline="80s")
    hand_server.pass_s(5)
    for _ in range(200):
        hand_server.source.pass_s(0.5)
        hand_server.executor.advance(0.5)
    hand_server.restart()
    hand_server.pass_s(3)
    record = hand_server.job(record.id)
    assert (record.state, record.missed) == (JobState.SUCCEEDED, "")


def test_orders_that_were_stored_but_not_sent_are_sent_after_a_restart(hand_server: HandClockServer) -> None:
    apply = hand_server.executor.apply
    hand_server.executor.apply = lambda instructions: (_ for _ in ()).throw(OSError("gone"))  # type: ignore[method-assign]
    record = hand_server.submit(run="python train.py short")
    assert hand_server.executor.running() == ()
    assert len(hand_server.store.list_instructions()) == 1
    hand_server.executor.apply = apply  # type: ignore[method-assign]
    hand_server.restart()
    hand_server.pass_s(30)
    assert hand_server.job(record.id).state is JobState.SUCCEEDED
    assert hand_server.store.list_instructions() == []


def test_an_order_that_is_refused_for_ever_fails_its_job_and_keeps_no_other_back(hand_server: HandClockServer) -> None:
    apply = hand_server.executor.apply

    def refuse(instructions: Sequence[Instruction]) -> None:
        if any(isinstance(one, Start) and one.spec.argv[-1] == "cursed" for one in instructions):
            raise ExecutorError("no such interpreter")
        apply(instructions)

    hand_server.executor.apply = refuse  # type: ignore[method-assign]
    cursed = hand_server.submit(run="python train.py cursed")
    other = hand_server.submit(run="python train.py short")
    hand_server.pass_s(40)
    ended = hand_server.job(cursed.id)
    assert (ended.state, ended.reason, ended.devices) == (JobState.FAILED, "refused_by_executor", ())
    assert "no such interpreter" in ended.sentence
    assert "order_refused" in hand_server.event_kinds(cursed.id)
    assert hand_server.job(other.id).state is JobState.SUCCEEDED
    assert hand_server.store.list_instructions() == []


def test_a_job_that_the_executor_forgot_is_started_again(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run="python train.py long")
    hand_server.pass_s(5)
    hand_server.executor.runs.clear()
    hand_server.pass_s(60)
    record = hand_server.job(record.id)
    assert (record.state, record.faults) == (JobState.SUCCEEDED, 1)
    assert "lost" in hand_server.event_kinds(record.id)


def test_the_events_of_another_executor_are_heard_from_its_first_on(tmp_path: Path) -> None:
    hand_server = HandClockServer(tmp_path, stream="first")
    hand_server.submit(run="python train.py short", steps=5)
    hand_server.pass_s(20)
    job = hand_server.submit(run="python train.py long", steps=50)
    hand_server.stream, hand_server.executor = "second", ScriptedExecutor({})
    hand_server.executor.now_s = hand_server.source.wall
    hand_server.restart()
    hand_server.pass_s(30)
    assert hand_server.job(job.id).state is JobState.SUCCEEDED
    before = hand_server.reconciler.cursor
    hand_server.restart()  # the same one goes on counting
    assert hand_server.reconciler.cursor == before > 0


def test_a_stranger_on_the_devices_is_cancelled(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run="python train.py long")
    hand_server.pass_s(3)
    order = next(iter(hand_server.executor.runs.values())).order
    hand_server.executor.apply([Start(job="stranger", generation=1, key="s", spec=order.spec, devices=("cpu:1",))])
    hand_server.pass_s(6)
    assert [one.job for one in hand_server.executor.running()] == [record.id]


MOVES = st.lists(
    st.sampled_from(["submit", "urgent", "impossible", "pass", "kill", "restart", "cancel", "unreachable"]),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=MOVES)
def test_whatever_happens_no_job_is_lost_or_runs_twice(
    tmp_path_factory: pytest.TempPathFactory, moves: list[str]
) -> None:
    hand_server = HandClockServer(tmp_path_factory.mktemp("stage"), scripts=dict(FAST))
    submitted = []
    for move in moves:
        if move == "submit":
            submitted.append(hand_server.submit(run="python train.py short").id)
        elif move == "urgent":
            submitted.append(hand_server.submit(run="python train.py long", deadline="10m").id)
        elif move == "impossible":
            submitted.append(hand_server.submit(run="python train.py short", deadline="1s").id)
        elif move == "kill" and hand_server.executor.runs:
            hand_server.executor.kill(sorted(hand_server.executor.runs)[0])
        elif move == "restart":
            hand_server.restart()
        elif move == "cancel" and submitted:
            hand_server.reconciler.call(lambda: hand_server.operations.cancel(submitted[0], "ann"))
        hand_server.pass_s(4)
        check_consistency(hand_server)
    hand_server.pass_s(60 + 80 * len(submitted), by_s=1.0)
    check_consistency(hand_server)
    for job_id in submitted:
        record = hand_server.job(job_id)
        assert record.state in (JobState.SUCCEEDED, JobState.CANCELLED, JobState.DECLINED), (
            record,
            hand_server.event_kinds(job_id),
        )
        if record.state is JobState.SUCCEEDED:
            assert record.step == record.total_steps
            assert record.missed == ""
    assert hand_server.executor.running() == ()


def check_consistency(hand_server: HandClockServer) -> None:
    """Store, world and executor agree on who holds what, and nobody shares a device."""
    held = {record.id: record.devices for record in hand_server.store.active_jobs() if record.devices}
    running = {one.job: one.devices for one in hand_server.executor.running()}
    assert held == running
    names = [name for devices in held.values() for name in devices]
    assert len(names) == len(set(names))
    free = sum(mask.bit_count() for mask in hand_server.reconciler.context.world.free_masks)
    assert free == hand_server.devices - len(names)


def test_the_loop_rests_no_longer_than_the_policy_asked_for(hand_server: HandClockServer) -> None:
    now_s = hand_server.reconciler.context.clock.now_s()
    assert hand_server.reconciler.rest_s() == IDLE_POLL_S
    for asked_s, rest_s in ((0.2, 0.2), (-1.0, 0.0)):
        hand_server.reconciler.alarm.wake_at_s = now_s + asked_s
        assert hand_server.reconciler.rest_s() == pytest.approx(rest_s)


def test_the_policy_is_asked_shortly_before_the_instant_it_asked_for_and_then_at_it() -> None:
    alarm = Alarm()
    alarm.set(100.0, now_s=50.0)
    assert alarm.due_s == 100.0 - LEAD_S
    alarm.set(100.0, now_s=100.0 - LEAD_S)
    assert alarm.due_s == 100.0


def test_two_jobs_do_not_share_a_checkpoint_folder(hand_server: HandClockServer) -> None:
    shared = {"dir": str(hand_server.folder / "shared")}
    first = hand_server.submit(checkpoint=shared)
    with pytest.raises(JobError, match=f"in use by job {first.name}"):
        hand_server.submit(checkpoint={"dir": str(hand_server.folder / "shared") + "/"})
    hand_server.pass_s(60)
    assert hand_server.job(first.id).state is JobState.SUCCEEDED
    assert hand_server.submit(checkpoint=shared).active


def test_after_a_step_that_failed_the_loop_begins_again_from_what_is_stored(
    hand_server: HandClockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = hand_server.submit(run="python train.py long", devices=1).id
    hand_server.pass_s(3)
    write = hand_server.store.write
    monkeypatch.setattr(
        hand_server.store, "write", lambda batch: (_ for _ in ()).throw(OSError(errno.ENOSPC, "disk full"))
    )
    with pytest.raises(OSError, match="disk full"):
        hand_server.submit(run="python train.py short")
    monkeypatch.setattr(hand_server.store, "write", write)
    hand_server.reconciler.rebuild()
    assert [record.id for record in hand_server.store.list_jobs()] == [running], "who got an error has no job"
    assert [*hand_server.reconciler.context.world.jobs] == [running]
    check_consistency(hand_server)
    hand_server.pass_s(60)
    assert hand_server.job(running).state is JobState.SUCCEEDED
    assert hand_server.event_kinds(running).count("started") == 1


def test_who_asks_does_not_wait_for_another_look_at_the_executor(
    hand_server: HandClockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, ask = list[int](), hand_server.executor.events

    def look(after: int) -> Sequence[Any]:
        looks.append(after)
        return ask(after)

    monkeypatch.setattr(hand_server.executor, "events", look)
    for age_s, expected in ((0.0, 0), (10.0, 1)):  # the last look was just now, or long ago
        hand_server.reconciler.step()
        looks.clear()
        hand_server.reconciler._read_s -= age_s
        answer = hand_server.reconciler.call(lambda: "done")
        hand_server.reconciler.step(1.0)
        assert answer.result(timeout=0) == "done" and len(looks) == expected
