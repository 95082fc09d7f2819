import copy
import pickle
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime

import pytest
from tests.client.made_up_replies import make_job

from springtide.client.replies import ConditionInfo, DeviceInfo, JobInfo, OfferInfo
from springtide.core.job_states import JobCondition, JobState
from springtide.errors import ServerError

AT = "2026-11-16T09:00:00Z"


def test_times_states_and_lists_become_what_they_are() -> None:
    condition = {"kind": "at_risk", "reason": "slow", "sentence": "it is slow", "since": AT}
    segment = {"from": AT, "from_in_s": 5.0, "share": 2}
    job = make_job(deadline=AT, devices=["cpu:0", "cpu:1"], conditions=[condition], plan=[segment], state="paused")
    assert job.state is JobState.PAUSED and not job.ended
    assert job.deadline == datetime(2026, 11, 16, 9, tzinfo=UTC)
    assert job.devices == ("cpu:0", "cpu:1")
    assert (job.conditions[0].kind, job.conditions[0].since) == (JobCondition.AT_RISK, job.deadline)
    assert (job.plan[0].start, job.plan[0].start_in_s, job.plan[0].share) == (job.deadline, 5.0, 2)
    assert (job.started_at, job.rent, job.met) == (None, None, None)


def test_fields_and_conditions_of_a_newer_server_are_taken_and_the_document_stays_whole() -> None:
    job = make_job(mood="sunny")
    assert job.document["mood"] == "sunny"
    assert job == make_job(), "what is not known makes no difference"
    told = {"kind": "haunted", "reason": "", "sentence": "", "since": AT, "by": "a ghost"}
    assert ConditionInfo.read(told).kind == "haunted"


def test_offers_of_a_plan_have_no_id() -> None:
    offer = OfferInfo.read({"kind": "deadline", "deadline": AT, "deadline_in_s": 60.0, "steps": None})
    assert (offer.id, offer.state, offer.steps) == ("", "", None)


def test_a_reply_that_is_no_reply_of_ours_is_the_servers_fault() -> None:
    with pytest.raises(ServerError, match="has no 'node'"):
        DeviceInfo.read({"name": "cpu:0"})
    with pytest.raises(ServerError, match="'dreaming', this version knows probing, waitlisted"):
        make_job(state="dreaming")


def test_a_reply_cannot_be_changed_and_hides_its_document_from_its_text() -> None:
    job = make_job()
    assert "document" not in repr(job)
    with pytest.raises(AttributeError):
        job.step = 5  # type: ignore[misc]
    assert JobInfo.read(job.document) == job


def test_a_reply_is_a_dataclass_like_any_other() -> None:
    job = make_job()
    later = replace(job, step=job.step + 1)
    assert (later.step, later.name) == (job.step + 1, job.name) and later != job
    assert [one.name for one in fields(later)][:2] == ["document", "id"] and asdict(later)["step"] == later.step
    assert copy.copy(job) == job == copy.deepcopy(job) == pickle.loads(pickle.dumps(job))
    offer = OfferInfo({}, "deadline", datetime(2026, 11, 16, tzinfo=UTC), 60.0, steps=None)
    assert hash(offer) == hash(replace(offer, document={"other": 1})) and offer.id == ""
    assert repr(offer).startswith("OfferInfo(kind='deadline', deadline=") and offer != job
    with pytest.raises(AttributeError):
        del job.step
    with pytest.raises(AttributeError):
        job.mood = "sunny"


def test_a_reply_is_made_of_all_its_fields_and_no_others() -> None:
    with pytest.raises(TypeError, match="DeviceInfo needs 'state'"):
        DeviceInfo({}, "cpu:0", "node-0")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="DeviceInfo has no field 'mood'"):
        DeviceInfo({}, "cpu:0", "node-0", "up", "cpu", None, None, mood="sunny")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="DeviceInfo got 'name' twice"):
        DeviceInfo({}, "cpu:0", name="cpu:1")  # type: ignore[call-arg,misc]
    with pytest.raises(TypeError, match="has 10 fields, 11 values were given"):
        DeviceInfo({}, "cpu:0", "node-0", "up", "cpu", None, None, None, None, 0, 0)  # type: ignore[call-arg]
