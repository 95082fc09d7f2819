"""Probes: on free or best-effort devices, bounded, and waitlisted with a time where promises hold every device."""

from pathlib import Path

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.core.job_states import JobState
from springtide.executors.fake import FakeJob
from springtide.executors.protocol import Probe

SCRIPTS = {"wide": FakeJob(total_steps=400, speeds={1: 10.0, 2: 20.0}), "short": FakeJob(speeds={1: 10.0, 2: 18.0})}
WIDE, SHORT = "python train.py wide", "python train.py short"


@pytest.fixture
def hand_server(tmp_path: Path) -> HandClockServer:
    """Two devices, both held for half a minute by a promise without slack."""
    hand_server = HandClockServer(tmp_path, scripts=SCRIPTS)
    hand_server.submit(run=WIDE, devices=2, deadline="10m")
    hand_server.pass_s(60)
    return hand_server


def test_a_job_that_cannot_be_measured_yet_is_waitlisted_with_the_time(hand_server: HandClockServer) -> None:
    promised = hand_server.submit(run=WIDE, devices=2, deadline="30s")
    assert promised.promised
    hand_server.pass_s(1)
    record = hand_server.submit(run=SHORT, deadline="5m")
    assert (record.state, record.reason) == (JobState.WAITLISTED, "no_device_for_probe")
    assert record.deadline_s is not None and record.answer_by_s == record.deadline_s - 25
    assert "expected at" in record.sentence and "the answer comes by" in record.sentence
    hand_server.pass_s(40)
    record = hand_server.job(record.id)
    assert (record.state, record.promised, record.missed) == (JobState.SUCCEEDED, True, "")
    assert hand_server.event_kinds(record.id)[:4] == ["submitted", "waitlisted", "probing", "probed"]
    assert hand_server.job(promised.id).missed == ""


def test_it_waits_across_a_restart(hand_server: HandClockServer) -> None:
    hand_server.submit(run=WIDE, devices=2, deadline="30s")
    record = hand_server.submit(run=SHORT, deadline="5m")
    hand_server.restart()
    hand_server.reconciler.step()
    assert hand_server.job(record.id).answer_by_s == record.answer_by_s
    hand_server.pass_s(60)
    assert hand_server.job(record.id).state is JobState.SUCCEEDED


def test_a_hopeless_deadline_is_measured_later_and_declined_with_offers(hand_server: HandClockServer) -> None:
    hand_server.submit(run=WIDE, devices=2, deadline="30s")
    record = hand_server.submit(run=SHORT, deadline="2s")
    assert record.state is JobState.WAITLISTED
    hand_server.pass_s(35)
    record = hand_server.job(record.id)
    assert record.reason == "deadline_too_tight"
    assert "offered" in hand_server.event_kinds(record.id)


def test_without_a_device_in_time_it_is_declined_with_its_reason(tmp_path: Path) -> None:
    scripts = dict(SCRIPTS)
    hand_server = HandClockServer(tmp_path, scripts=scripts)
    hand_server.submit(run=WIDE, devices=2, deadline="10m")
    hand_server.pass_s(60)
    scripts["wide"] = FakeJob(total_steps=400, speeds={1: 0.1, 2: 0.2})
    hand_server.submit(run=WIDE, devices=2, deadline="1000s")
    record = hand_server.submit(run=SHORT, deadline="60s")
    assert record.state is JobState.WAITLISTED
    hand_server.pass_s(60, by_s=1.0)
    record = hand_server.job(record.id)
    assert (record.state, record.reason) == (JobState.DECLINED, "no_device_for_probe")
    assert [view for view in hand_server.reconciler.context.world.jobs if view.endswith(record.id)] == []


def test_a_waiting_job_can_be_cancelled(hand_server: HandClockServer) -> None:
    hand_server.submit(run=WIDE, devices=2, deadline="30s")
    record = hand_server.submit(run=SHORT, deadline="5m")
    hand_server.reconciler.call(lambda: hand_server.operations.cancel(record.id, "ann"))
    hand_server.pass_s(3)
    assert hand_server.job(record.id).state is JobState.CANCELLED


def test_best_effort_work_makes_way_for_a_bounded_probe(hand_server: HandClockServer) -> None:
    guest = hand_server.submit(run=WIDE, devices="1..2")
    hand_server.pass_s(3)
    assert len(hand_server.job(guest.id).devices) == 2
    record = hand_server.submit(run=SHORT, deadline="5m")
    assert (record.state, len(record.devices) > 0) == (JobState.PROBING, True)
    probe = hand_server.executor.runs[record.id].order
    assert isinstance(probe, Probe)
    assert (probe.max_steps, probe.max_s) == (30, 15.0)
