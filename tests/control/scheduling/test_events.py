"""What events mean for the records, where clocks and counters disagree."""

from pathlib import Path
from typing import Any

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.control.api.explanations import explain
from springtide.control.storage.staging import Effects
from springtide.core.jobs import JobId
from springtide.executors import wire
from springtide.executors.local.event_answers import read_events
from springtide.executors.protocol import Checkpointed, Finished, Lagging, Progressed, Resized, Started, Stopped

BOOTED_S = 5000.0


@pytest.fixture
def hand_server(tmp_path: Path) -> HandClockServer:
    made = HandClockServer(tmp_path)
    made.source.steady = BOOTED_S
    made.restart()
    return made


@pytest.mark.parametrize("jump_s", [-3600.0, 0.0, 3600.0])
def test_a_wall_clock_that_was_set_makes_no_event_old(hand_server: HandClockServer, jump_s: float) -> None:
    job = hand_server.submit()
    clock = hand_server.reconciler.context.clock
    finished = Finished(
        job=job.id, generation=1, step=1, at_s=hand_server.source.wall, steady_s=hand_server.source.steady
    )
    hand_server.source.wall += jump_s
    hand_server.source.pass_s(2.0)
    hand_server.reconciler.read_clock()
    assert hand_server.reconciler.event_handler.find_moment(finished) == clock.now_s()


@pytest.mark.parametrize("steady_s", [BOOTED_S, BOOTED_S + 1e6, None], ids=["same boot", "earlier boot", "no counter"])
def test_an_event_that_waited_counts_from_when_it_happened(
    hand_server: HandClockServer, steady_s: float | None
) -> None:
    job = hand_server.submit()
    happened_s = hand_server.reconciler.context.clock.now_s()
    finished = Finished(job=job.id, generation=1, step=1, at_s=hand_server.source.wall, steady_s=steady_s)
    hand_server.source.pass_s(60.0)
    hand_server.reconciler.read_clock()
    assert hand_server.reconciler.event_handler.find_moment(finished) == pytest.approx(happened_s)


def test_the_counter_of_another_machine_says_nothing_of_an_event_s_age(hand_server: HandClockServer) -> None:
    job, source = hand_server.submit(), hand_server.source
    happened_s = hand_server.reconciler.context.clock.now_s()
    young = Finished(job=job.id, generation=1, step=1, at_s=source.wall, steady_s=BOOTED_S - 4000.0, boot="another")
    source.pass_s(60.0)
    hand_server.reconciler.read_clock()
    assert hand_server.reconciler.event_handler.find_moment(young) == pytest.approx(happened_s)


def test_an_event_of_another_machine_is_as_old_as_that_one_says(hand_server: HandClockServer) -> None:
    """Its wall clock is an hour behind ours, so their difference would book the job's end an hour too early."""
    job, source = hand_server.submit(), hand_server.source
    happened_s = hand_server.reconciler.context.clock.now_s()
    there: dict[str, Any] = {"at_s": source.wall - 3600.0, "steady_s": 7.0, "boot": "another"}
    finished = Finished(job=job.id, generation=1, step=1, **there)
    source.pass_s(60.0)
    hand_server.reconciler.read_clock()
    answer = {"events": [wire.dump_event(finished)], "now_s": source.wall - 3600.0, "steady_s": 67.0, "boot": "another"}
    for boot in ("another", "the next one there"):
        (read,) = read_events({**answer, "boot": boot})
        assert hand_server.reconciler.event_handler.find_moment(read) == pytest.approx(happened_s)


def test_the_weights_of_a_finished_job_are_told(hand_server: HandClockServer) -> None:
    job, source, weights = hand_server.submit(), hand_server.source, "ab" * 32
    finished = Finished(job=job.id, generation=1, step=9, at_s=source.wall, steady_s=source.steady, weights=weights)
    hand_server.reconciler.event_handler.handle(finished)
    hand_server.reconciler.commit()
    assert hand_server.job(job.id).weights == weights
    assert hand_server.store.events(job.id)[-1].data["weights_sha256"] == weights


def test_a_jump_between_two_reports_teaches_no_speed(hand_server: HandClockServer) -> None:
    job = hand_server.submit()
    hand_server.pass_s(10.0)
    staging = hand_server.reconciler.context.staging
    handler = hand_server.reconciler.event_handler
    record = staging.jobs[job.id]
    for number, wall_s in enumerate((0.0, 3600.0 + 4.0)):
        step = record.step + 1 + 40 * number
        handler.handle(
            Progressed(
                job=job.id,
                generation=record.generation,
                step=step,
                total_steps=None,
                epoch=0,
                steps_per_s=10.0,
                outside_s=0.0,
                share=2,
                at_s=wall_s,
                steady_s=BOOTED_S + 4.0 * number,
            )
        )
    speed = staging.speeds[record.speed_key]["cpu"]
    assert speed.points[2][1] > 1.0


def test_a_start_on_the_devices_asked_for_ends_a_change_that_a_fault_cut_short(hand_server: HandClockServer) -> None:
    job = hand_server.submit()
    hand_server.pass_s(10.0)
    staging, handler = hand_server.reconciler.context.staging, hand_server.reconciler.event_handler
    record = staging.jobs[job.id].with_condition("rescaling", "grows", "grows", staging.now_s)
    staging.stage(Effects(record))
    handler.handle(Started(job=job.id, generation=record.generation, devices=record.devices, step=1))
    assert staging.jobs[job.id].condition("rescaling") is None


def test_a_start_on_some_of_the_devices_ends_a_change_and_one_on_others_does_not(hand_server: HandClockServer) -> None:
    """A job whose hosts are cut from each other runs on one of them for hours; a move is made by what follows."""
    job = hand_server.submit()
    hand_server.pass_s(10.0)
    staging, handler = hand_server.reconciler.context.staging, hand_server.reconciler.event_handler
    record = staging.jobs[job.id].with_condition("rescaling", "grows", "grows", staging.now_s)
    staging.stage(Effects(record))
    assert len(record.devices) > 1
    for devices, is_changing in (((*record.devices[:1], "other"), True), (record.devices[:1], False)):
        handler.handle(Started(job=job.id, generation=record.generation, devices=devices, step=1))
        assert (staging.jobs[job.id].condition("rescaling") is not None) is is_changing


@pytest.mark.parametrize("end", ["in step", "resized"])
def test_a_device_that_holds_a_job_up_is_why_until_it_no_longer_does(hand_server: HandClockServer, end: str) -> None:
    job = hand_server.submit()
    hand_server.pass_s(2.0)
    handler, staging = hand_server.reconciler.event_handler, hand_server.reconciler.context.staging
    common: dict[str, Any] = {"job": job.id, "generation": staging.jobs[job.id].generation}
    handler.handle(Lagging(**common, device="h2/cpu:0", factor=2.34))
    told = explain(staging.jobs[job.id], [], [], [], staging.now_s)
    assert told.reason == "lagging" and "on h2/cpu:0 takes 2.3 times as long" in told.sentence
    assert "drain" in told.remedy
    devices = staging.jobs[job.id].devices
    over = Lagging(**common, device="", factor=1.0), Resized(**common, devices=devices, step=1, pause_s=0.1)
    handler.handle(over[end == "resized"])
    assert explain(staging.jobs[job.id], [], [], [], staging.now_s).reason == "running"


@pytest.mark.parametrize("holds", [True, False], ids=["the executor had to", "as told"])
def test_steps_that_a_stop_has_lost_are_told(hand_server: HandClockServer, holds: bool) -> None:
    job = hand_server.submit()
    hand_server.pass_s(10.0)
    staging = hand_server.reconciler.context.staging
    record = staging.jobs[job.id] if holds else staging.change(job.id, devices=())
    stopped = Stopped(job=job.id, generation=record.generation, step=7, reason="lease", clean=False, lost=12)
    hand_server.reconciler.event_handler.handle(stopped)
    hand_server.reconciler.commit()
    told = hand_server.store.events(job.id)[-1]
    assert (told.kind, told.data["lost"], hand_server.job(job.id).step) == ("stopped", 12, 7)
    assert "about 12 steps since its last checkpoint are lost" in told.sentence
    begun = Started(job=job.id, generation=record.generation, devices=record.devices, step=7)
    hand_server.reconciler.event_handler.handle(begun)
    hand_server.reconciler.commit()
    assert hand_server.job(job.id).lost_steps == 12, "they are done twice, and counted once"


def test_a_stop_that_is_told_twice_counts_once(hand_server: HandClockServer) -> None:
    job = hand_server.submit()
    hand_server.pass_s(10.0)
    generation = hand_server.job(job.id).generation
    stopped = Stopped(job=job.id, generation=generation, step=7, reason="lease", clean=False, lost=12)
    hand_server.reconciler.event_handler.handle(stopped)
    hand_server.reconciler.commit()
    hand_server.restart()
    hand_server.reconciler.event_handler.handle(stopped)
    hand_server.reconciler.commit()
    told = [one for one in hand_server.store.events(job.id) if one.kind == "stopped"]
    assert (hand_server.job(job.id).lost_steps, len(told)) == (12, 1)


def test_a_stop_of_what_did_not_run_says_nothing_of_what_is_saved(hand_server: HandClockServer) -> None:
    job = hand_server.submit()
    hand_server.pass_s(10.0)
    staging, handler = hand_server.reconciler.context.staging, hand_server.reconciler.event_handler
    generation = staging.jobs[job.id].generation
    handler.handle(Checkpointed(job=job.id, generation=generation, step=91))
    handler.handle(Stopped(job=job.id, generation=generation, step=0, reason="the job was not running", clean=False))
    assert staging.jobs[job.id].step == 91


def test_steps_that_a_stop_has_lost_are_work_again_before_the_next_start(hand_server: HandClockServer) -> None:
    job = hand_server.submit()
    hand_server.pass_s(10.0)
    handler, staging, world = (
        hand_server.reconciler.event_handler,
        hand_server.reconciler.context.staging,
        hand_server.reconciler.context.world,
    )
    record = staging.jobs[job.id]
    stopped = Stopped(job=job.id, generation=record.generation, step=0, reason="lease", clean=False, lost=record.step)
    assert handler.handle(stopped) and record.step > 0
    view = world.jobs[JobId(job.id)]
    assert view.progress.work_left_at(staging.now_s) == view.job.work
