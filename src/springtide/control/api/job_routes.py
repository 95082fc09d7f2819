"""Routes that read jobs: lists, one job, why it is where it is, and what happened to it."""

from typing import Annotated, Literal

from fastapi import FastAPI, Query, Request, Response

from springtide.control.api import documents, explanations
from springtide.control.api.api import Api
from springtide.control.api.reports.chances import tell_chance
from springtide.control.api.requests import MOST_NUMBER, JobInPath, Number
from springtide.control.notices.notice_decisions import tell_failure
from springtide.control.storage.job_snapshot import JobQuery
from springtide.control.storage.records import JobRecord, UserRecord
from springtide.core.job_states import ACTIVE, JobState
from springtide.core.shared_types import Document

RECENT_EVENTS = 200  # of a job, to say why it is where it is
MOST_UNTOLD = 3  # notices that have not arrived


def add_job_routes(app: FastAPI, api: Api) -> None:
    """Reading jobs."""

    @app.get("/api/v1/jobs", tags=["jobs"])
    async def list_jobs(
        request: Request,
        state: Annotated[list[JobState] | None, Query()] = None,
        user: Annotated[str | None, Query(max_length=64)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        before: Annotated[int | None, Query(ge=0, le=MOST_NUMBER)] = None,
    ) -> Response:
        """Jobs, newest first; a user who is not an admin sees their own."""
        asker: UserRecord = request.state.user
        owner = None if asker.admin else asker.id
        page = await api.pages.read(JobQuery(frozenset(state or ()), owner, limit, before, user, without_probes=True))
        return Response(page, media_type="application/json")

    @app.get("/api/v1/jobs/{job}", tags=["jobs"])
    def show_job(request: Request, job: JobInPath, to: Literal["resume", "release"] | None = None) -> Document:
        """One job; of several with one name, one with which can be done what is said (`to`), if there is any."""
        record = api.find_job(job, request.state.user, to=to)
        chance = api.judge_promise(record)
        return api.show_job(record) | {
            "rent": api.rents.find(record, api.now_s()),
            "promise_probability": None if chance is None else round(chance, 3),
        }

    @app.get("/api/v1/jobs/{job}/why", tags=["jobs"])
    def explain_job(request: Request, job: JobInPath) -> Document:
        """Why a job is where it is."""
        return tell_why(api, api.find_job(job, request.state.user), request.state.user)

    @app.get("/api/v1/jobs/{job}/events", tags=["jobs"])
    def list_job_events(
        request: Request, job: JobInPath, after: Number = 0, limit: Annotated[int, Query(ge=1, le=1000)] = 1000
    ) -> Document:
        """What happened to a job, oldest first."""
        record = api.find_job(job, request.state.user)
        return documents.write_list(
            "events", api.show_events(api.store.events(record.id, after, limit), request.state.user)
        )


def tell_why(api: Api, record: JobRecord, user: UserRecord) -> Document:
    """Why a job is where it is, with what is known of the platform and of its notices."""
    active = api.snapshot.list_jobs(JobQuery(ACTIVE))[::-1]
    told = explanations.explain(
        record,
        api.store.offers(record.id),
        api.store.last_events(RECENT_EVENTS, record.id)[::-1],
        [documents.hide_name(other, user) for other in active],
        api.now_s(),
        api.find_ref(record),
        explanations.count_spare(record, active, api.reconciler.inventory),
    )
    chance, standstill = api.judge_promise(record), api.reconciler.health.tell()
    likely = "" if chance is None else f"it keeps its promise with a probability of {tell_chance(chance)}"
    untold = [*filter(None, map(tell_failure, api.store.notices(record.id)))][-MOST_UNTOLD:]
    facts = [*list_troubles(api, record), likely, *told.facts, *untold]
    return explanations.write_explanation(record, told, facts) | {
        "promise_probability": None if chance is None else round(chance, 3),
        "rent": api.rents.find(record, api.now_s()),
        "standstill": standstill or None,
    }


def list_troubles(api: Api, record: JobRecord) -> list[str]:
    """What of the platform as a whole a job may feel; empty where there is nothing to tell."""
    health = api.reconciler.health
    outage = health.tell_outage() if record.active else ""
    load = api.check_load()["sentence"] if record.active and record.deadline_s is not None else ""
    return [health.tell(), outage, load]
