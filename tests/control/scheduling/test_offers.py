"""Offers from end to end: the first is reserved, lent to best-effort work, taken, or gone when it expires."""

from pathlib import Path

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.control.storage.records import JobRecord, OfferRecord
from springtide.core.decisions import Status
from springtide.core.job_states import JobState
from springtide.core.jobs import JobId
from springtide.executors.fake import FakeJob

WIDE = "python train.py wide"


@pytest.fixture
def stage(tmp_path: Path) -> HandClockServer:
    """Two devices, and a job that needs both of them for about twenty seconds, of known speed."""
    stage = HandClockServer(tmp_path, scripts={"wide": FakeJob(total_steps=400, speeds={1: 10.0, 2: 20.0})})
    known = stage.submit(run=WIDE, devices=2, deadline="10m")
    stage.pass_s(60)
    assert stage.job(known.id).state is JobState.SUCCEEDED
    return stage


def offer_to(stage: HandClockServer, user: str = "ann") -> tuple[JobRecord, OfferRecord]:
    """A job whose deadline is impossible, and its first offer."""
    record = stage.submit(run=WIDE, devices=2, deadline="2s", user=user)
    assert record.state is JobState.OFFERED
    return record, stage.store.offers(record.id, "open")[0]


def compete(stage: HandClockServer, offer: OfferRecord) -> JobRecord:
    """Someone else's job of the same kind that must end a little after the offered deadline."""
    left_s = offer.deadline_s - stage.reconciler.context.clock.now_s()
    return stage.submit(run=WIDE, devices=2, deadline=f"{left_s + 3:.0f}s", user="bob")


def take(stage: HandClockServer, job_id: str, offer_id: str | None = None) -> JobRecord:
    """Accept an offer."""
    future = stage.reconciler.call(lambda: stage.operations.accept(job_id, offer_id))
    stage.reconciler.step()
    future.result(timeout=0)
    return stage.job(job_id)


def test_a_competitor_cannot_take_what_an_open_offer_reserves(stage: HandClockServer) -> None:
    record, offer = offer_to(stage)
    assert offer.reserved
    assert compete(stage, offer).state is JobState.WAITLISTED
    stage.pass_s(8)
    taken = take(stage, record.id)
    assert (taken.state, taken.promised, taken.deadline_s) == (JobState.ADMITTED, True, offer.deadline_s)
    stage.pass_s(60)
    assert (stage.job(record.id).state, stage.job(record.id).missed) == (JobState.SUCCEEDED, "")


def test_without_the_offer_the_competitor_is_admitted(stage: HandClockServer) -> None:
    record, offer = offer_to(stage)
    stage.reconciler.call(lambda: stage.operations.cancel(record.id, "ann"))
    stage.reconciler.step()
    assert compete(stage, offer).promised


def test_an_expired_offer_frees_its_devices_for_who_waits(stage: HandClockServer) -> None:
    record, _ = offer_to(stage)
    rival = stage.submit(run=WIDE, devices=2, deadline="45s", user="bob")
    assert rival.state is JobState.WAITLISTED
    stage.pass_s(12)
    assert stage.job(record.id).state is JobState.DECLINED
    assert stage.job(rival.id).promised
    assert JobId(record.id) not in stage.reconciler.context.world.jobs
    stage.pass_s(60)
    assert stage.job(rival.id).missed == ""


def test_reserved_devices_serve_best_effort_work_meanwhile(stage: HandClockServer) -> None:
    offer_to(stage)
    guest = stage.submit(run=WIDE, devices=2, user="bob")
    stage.pass_s(3)
    assert len(stage.job(guest.id).devices) == 2


def test_a_reservation_outlives_a_restart(stage: HandClockServer) -> None:
    record, offer = offer_to(stage)
    stage.restart()
    view = stage.reconciler.context.world.jobs[JobId(record.id)]
    assert (view.status, view.promise is not None, view.answer_by_s) == (Status.OFFERED, True, offer.expires_s)
    assert compete(stage, offer).state is JobState.WAITLISTED
    assert take(stage, record.id).promised


def test_accept_offer_takes_the_reservation_in_the_same_breath(stage: HandClockServer) -> None:
    record = stage.submit(run=WIDE, devices=2, deadline="2s", accept_offer=True)
    assert (record.state, record.promised) == (JobState.ADMITTED, True)
    assert stage.store.offers(record.id)[0].state == "accepted"
    stage.pass_s(60)
    assert stage.job(record.id).missed == ""


def test_a_later_offer_is_checked_when_it_is_taken(stage: HandClockServer) -> None:
    record = stage.submit(run=WIDE, devices=2, deadline="15s")
    first, second = stage.store.offers(record.id, "open")
    assert (first.reserved, second.reserved, second.kind) == (True, False, "work")
    taken = take(stage, record.id, second.id)
    assert (taken.promised, taken.total_steps) == (True, second.steps)
    assert {offer.state for offer in stage.store.offers(record.id)} == {"accepted", "withdrawn"}


def test_a_reservation_counts_against_the_quota(stage: HandClockServer) -> None:
    from springtide.control.scheduling.submissions import count_outstanding

    offer_to(stage)
    context = stage.reconciler.context
    assert sum(count_outstanding(view, context.now_s) for view in context.world.jobs.values()) > 0


def test_a_third_job_of_a_user_gets_no_offer(stage: HandClockServer) -> None:
    offer_to(stage)
    offer_to(stage)
    third = stage.submit(run=WIDE, devices=2, deadline="2s")
    assert (third.state, stage.store.offers(third.id)) == (JobState.DECLINED, [])
    assert offer_to(stage, "bob")


def test_a_promise_in_danger_goes_before_reservations(tmp_path: Path) -> None:
    scripts = {"wide": FakeJob(total_steps=400, speeds={1: 10.0, 2: 20.0})}
    stage = HandClockServer(tmp_path, scripts=scripts)
    stage.submit(run=WIDE, devices=2, deadline="10m")
    stage.pass_s(60)
    scripts["wide"] = FakeJob(total_steps=400, speeds={1: 1.0, 2: 2.0})
    slow = stage.submit(run=WIDE, devices=2, deadline="26s")
    assert slow.promised
    stage.pass_s(3)
    record, offer = offer_to(stage)
    assert offer.reserved
    stage.pass_s(9)
    assert stage.job(slow.id).condition("at_risk") is not None
    assert not any(one.reserved for one in stage.store.offers(record.id))
