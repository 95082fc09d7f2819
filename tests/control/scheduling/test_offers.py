"""Offers from end to end: the first is reserved, lent to best-effort work, taken, or gone when it expires."""

from pathlib import Path
from typing import Any

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.control.scheduling.sentences import tell_offer
from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.scheduling.submissions import Submission
from springtide.control.storage.records import JobRecord, OfferRecord
from springtide.core.decisions import Status
from springtide.core.job_file import check_job
from springtide.core.job_states import JobState
from springtide.core.jobs import JobId
from springtide.errors import ConflictError
from springtide.executors.fake import FakeJob

WIDE = "python train.py wide"


@pytest.fixture
def hand_server(tmp_path: Path) -> HandClockServer:
    """Two devices, and a job that needs both of them for about twenty seconds, of known speed."""
    hand_server = HandClockServer(tmp_path, scripts={"wide": FakeJob(total_steps=400, speeds={1: 10.0, 2: 20.0})})
    known = hand_server.submit(run=WIDE, devices=2, deadline="10m")
    hand_server.pass_s(60)
    assert hand_server.job(known.id).state is JobState.SUCCEEDED
    return hand_server


def offer_to(hand_server: HandClockServer, user: str = "ann") -> tuple[JobRecord, OfferRecord]:
    """A job whose deadline is impossible, and its first offer."""
    record = hand_server.submit(run=WIDE, devices=2, deadline="2s", user=user)
    assert record.state is JobState.OFFERED
    return record, hand_server.store.offers(record.id, "open")[0]


def compete(hand_server: HandClockServer, offer: OfferRecord) -> JobRecord:
    """Someone else's job of the same kind that must end a little after the offered deadline."""
    left_s = offer.deadline_s - hand_server.reconciler.context.clock.now_s()
    return hand_server.submit(run=WIDE, devices=2, deadline=f"{left_s + 3:.0f}s", user="bob")


def take(hand_server: HandClockServer, job_id: str, offer_id: str | None = None) -> JobRecord:
    """Accept an offer."""
    future = hand_server.reconciler.call(lambda: hand_server.operations.accept(job_id, offer_id))
    hand_server.reconciler.step()
    future.result(timeout=0)
    return hand_server.job(job_id)


def test_a_competitor_cannot_take_what_an_open_offer_reserves(hand_server: HandClockServer) -> None:
    record, offer = offer_to(hand_server)
    assert offer.reserved
    assert compete(hand_server, offer).state is JobState.WAITLISTED
    hand_server.pass_s(8)
    taken = take(hand_server, record.id)
    assert (taken.state, taken.promised, taken.deadline_s) == (JobState.ADMITTED, True, offer.deadline_s)
    hand_server.pass_s(60)
    assert (hand_server.job(record.id).state, hand_server.job(record.id).missed) == (JobState.SUCCEEDED, "")


def test_without_the_offer_the_competitor_is_admitted(hand_server: HandClockServer) -> None:
    record, offer = offer_to(hand_server)
    hand_server.reconciler.call(lambda: hand_server.operations.cancel(record.id, "ann"))
    hand_server.reconciler.step()
    assert compete(hand_server, offer).promised


def test_an_expired_offer_frees_its_devices_for_who_waits(hand_server: HandClockServer) -> None:
    record, _ = offer_to(hand_server)
    rival = hand_server.submit(run=WIDE, devices=2, deadline="45s", user="bob")
    assert rival.state is JobState.WAITLISTED
    hand_server.pass_s(12)
    assert hand_server.job(record.id).state is JobState.DECLINED
    assert hand_server.job(rival.id).promised
    assert JobId(record.id) not in hand_server.reconciler.context.world.jobs
    hand_server.pass_s(60)
    assert hand_server.job(rival.id).missed == ""


def test_reserved_devices_serve_best_effort_work_meanwhile(hand_server: HandClockServer) -> None:
    offer_to(hand_server)
    guest = hand_server.submit(run=WIDE, devices=2, user="bob")
    hand_server.pass_s(3)
    assert len(hand_server.job(guest.id).devices) == 2


def test_a_reservation_outlives_a_restart(hand_server: HandClockServer) -> None:
    record, offer = offer_to(hand_server)
    hand_server.restart()
    view = hand_server.reconciler.context.world.jobs[JobId(record.id)]
    assert (view.status, view.promise is not None, view.answer_by_s) == (Status.OFFERED, True, offer.expires_s)
    assert compete(hand_server, offer).state is JobState.WAITLISTED
    assert take(hand_server, record.id).promised


def test_accept_offer_takes_the_reservation_in_the_same_breath(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run=WIDE, devices=2, deadline="2s", accept_offer=True)
    assert (record.state, record.promised) == (JobState.ADMITTED, True)
    assert hand_server.store.offers(record.id)[0].state == "accepted"
    hand_server.pass_s(60)
    assert hand_server.job(record.id).missed == ""


def test_a_later_offer_is_checked_when_it_is_taken(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run=WIDE, devices=2, deadline="15s")
    first, second = hand_server.store.offers(record.id, "open")
    assert (first.reserved, second.reserved, second.kind) == (True, False, "work")
    taken = take(hand_server, record.id, second.id)
    assert (taken.promised, taken.total_steps) == (True, second.steps)
    assert {offer.state for offer in hand_server.store.offers(record.id)} == {"accepted", "withdrawn"}


def test_an_offer_that_is_not_there_is_told_beside_those_that_are(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run=WIDE, devices=2, deadline="15s")
    first, second = hand_server.store.offers(record.id, "open")
    with pytest.raises(ConflictError, match=f"no open offer x; there are: {first.id}, {second.id}"):
        take(hand_server, record.id, "x")


@pytest.mark.parametrize("policy", ["springtide", "elasticflow"])
def test_a_gang_is_offered_all_of_it_later_and_no_steps(tmp_path: Path, policy: str) -> None:
    server = HandClockServer(tmp_path, options=ServerOptions(policy=policy))
    gang: dict[str, Any] = {"elastic": False, "devices": 2, "duration": "10m"}
    record = server.submit(**gang, deadline="5m")
    assert record.state is JobState.OFFERED
    (offer,) = server.store.offers(record.id, "open")
    assert offer.kind == "deadline" and tell_offer(offer).startswith("all of it could be promised by ")
    job = check_job({"run": "python train.py", **gang, "deadline": "5m"}, "test")
    forecast = server.operations.plan(Submission(job, server.code(), "bob"))
    assert [one.kind for one in forecast.offers] == ["deadline"]


def test_a_reservation_counts_against_the_quota(hand_server: HandClockServer) -> None:
    from springtide.control.scheduling.means import count_outstanding

    offer_to(hand_server)
    context = hand_server.reconciler.context
    staging, world = context.staging, context.world
    assert sum(count_outstanding(staging, world.inventory, view) for view in world.jobs.values()) > 0


def test_a_third_job_of_a_user_gets_no_offer(hand_server: HandClockServer) -> None:
    offer_to(hand_server)
    offer_to(hand_server)
    third = hand_server.submit(run=WIDE, devices=2, deadline="2s")
    assert (third.state, hand_server.store.offers(third.id)) == (JobState.DECLINED, [])
    assert offer_to(hand_server, "bob")


def test_a_promise_in_danger_goes_before_reservations(tmp_path: Path) -> None:
    scripts = {"wide": FakeJob(total_steps=400, speeds={1: 10.0, 2: 20.0})}
    hand_server = HandClockServer(tmp_path, scripts=scripts)
    hand_server.submit(run=WIDE, devices=2, deadline="10m")
    hand_server.pass_s(60)
    scripts["wide"] = FakeJob(total_steps=400, speeds={1: 1.0, 2: 2.0})
    slow = hand_server.submit(run=WIDE, devices=2, deadline="26s")
    assert slow.promised
    hand_server.pass_s(3)
    record, offer = offer_to(hand_server)
    assert offer.reserved
    hand_server.pass_s(9)
    assert hand_server.job(slow.id).condition("at_risk") is not None
    assert not any(one.reserved for one in hand_server.store.offers(record.id))
