"""Probes: on free or best-effort devices, bounded, and waitlisted with a time where promises hold every device."""

from pathlib import Path

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.control.storage.records import State
from springtide.executors.fake import FakeJob
from springtide.executors.protocol import Probe

SCRIPTS = {"wide": FakeJob(total_steps=400, speeds={1: 10.0, 2: 20.0}), "short": FakeJob(speeds={1: 10.0, 2: 18.0})}
WIDE, SHORT = "python train.py wide", "python train.py short"


@pytest.fixture
def stage(tmp_path: Path) -> HandClockServer:
    """Two devices, both held for half a minute by a promise without slack."""
    stage = HandClockServer(tmp_path, scripts=SCRIPTS)
    stage.submit(run=WIDE, devices=2, deadline="10m")
    stage.pass_s(60)
    return stage


def test_a_job_that_cannot_be_measured_yet_is_waitlisted_with_the_time(stage: HandClockServer) -> None:
    promised = stage.submit(run=WIDE, devices=2, deadline="30s")
    assert promised.promised
    stage.pass_s(1)
    record = stage.submit(run=SHORT, deadline="5m")
    assert (record.state, record.reason) == (State.WAITLISTED, "no_device_for_probe")
    assert record.deadline_s is not None and record.answer_by_s == record.deadline_s - 25
    assert "expected in" in record.sentence and "the answer comes by" in record.sentence
    stage.pass_s(40)
    record = stage.job(record.id)
    assert (record.state, record.promised, record.missed) == (State.SUCCEEDED, True, "")
    assert stage.event_kinds(record.id)[:4] == ["submitted", "waitlisted", "probing", "probed"]
    assert stage.job(promised.id).missed == ""


def test_it_waits_across_a_restart(stage: HandClockServer) -> None:
    stage.submit(run=WIDE, devices=2, deadline="30s")
    record = stage.submit(run=SHORT, deadline="5m")
    stage.restart()
    stage.reconciler.step()
    assert stage.job(record.id).answer_by_s == record.answer_by_s
    stage.pass_s(60)
    assert stage.job(record.id).state is State.SUCCEEDED


def test_a_hopeless_deadline_is_measured_later_and_declined_with_offers(stage: HandClockServer) -> None:
    stage.submit(run=WIDE, devices=2, deadline="30s")
    record = stage.submit(run=SHORT, deadline="2s")
    assert record.state is State.WAITLISTED
    stage.pass_s(35)
    record = stage.job(record.id)
    assert record.reason == "deadline_too_tight"
    assert "offered" in stage.event_kinds(record.id)


def test_without_a_device_in_time_it_is_declined_with_its_reason(tmp_path: Path) -> None:
    scripts = dict(SCRIPTS)
    stage = HandClockServer(tmp_path, scripts=scripts)
    stage.submit(run=WIDE, devices=2, deadline="10m")
    stage.pass_s(60)
    scripts["wide"] = FakeJob(total_steps=400, speeds={1: 0.1, 2: 0.2})
    stage.submit(run=WIDE, devices=2, deadline="1000s")
    record = stage.submit(run=SHORT, deadline="60s")
    assert record.state is State.WAITLISTED
    stage.pass_s(60, by_s=1.0)
    record = stage.job(record.id)
    assert (record.state, record.reason) == (State.DECLINED, "no_device_for_probe")
    assert [view for view in stage.reconciler.platform.world.jobs if view.endswith(record.id)] == []


def test_a_waiting_job_can_be_cancelled(stage: HandClockServer) -> None:
    stage.submit(run=WIDE, devices=2, deadline="30s")
    record = stage.submit(run=SHORT, deadline="5m")
    stage.reconciler.call(lambda: stage.desk.cancel(record.id, "ann"))
    stage.pass_s(3)
    assert stage.job(record.id).state is State.CANCELLED


def test_best_effort_work_makes_way_for_a_bounded_probe(stage: HandClockServer) -> None:
    guest = stage.submit(run=WIDE, devices="1..2")
    stage.pass_s(3)
    assert len(stage.job(guest.id).devices) == 2
    record = stage.submit(run=SHORT, deadline="5m")
    assert (record.state, len(record.devices) > 0) == (State.PROBING, True)
    probe = stage.executor.runs[record.id].order
    assert isinstance(probe, Probe)
    assert (probe.max_steps, probe.max_s) == (30, 15.0)
