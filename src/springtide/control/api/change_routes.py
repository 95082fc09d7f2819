"""Routes that hand in jobs and change them; each is answered when its effects are stored."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Literal

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic_core import to_json

from springtide.control.api import documents
from springtide.control.api.api import Api
from springtide.control.api.board_routes import write_differences
from springtide.control.api.job_data.user_turns import NotBegunError, UserThreads
from springtide.control.api.requests import AcceptBody, IdempotencyKey, JobInPath, PlanBody, ResumeBody, SubmitBody
from springtide.control.scheduling.loop.calls import SAFE_AGAIN, UNDONE
from springtide.control.scheduling.submissions import Submission, name_keyed, name_keyed_array
from springtide.control.storage.places.storage_checks import check_job_storage
from springtide.control.storage.records import UserRecord
from springtide.core.job_file import JobFile
from springtide.core.job_states import JobState
from springtide.core.locations import is_url
from springtide.core.shared_types import Document
from springtide.errors import InputError, UnavailableError

STORAGE_S = 25.0  # for storage that a job names to answer


def make_submission(body: SubmitBody, user: UserRecord, key: str | None) -> Submission:
    """What a user hands in with a request."""
    return Submission(body.job, body.archive, user.name, body.secrets, body.accept_offer, key=key, owner=user.id)


async def try_storage(threads: UserThreads, job: JobFile, secrets: Mapping[str, str], user: UserRecord) -> None:
    """Refuse a job whose checkpoints could not be written where it says, before it costs anything."""
    location = job.checkpoint.dir
    if location is None or not is_url(location):
        return
    try:
        check = partial(check_job_storage, location, {**job.env, **secrets}, user.run_as)
        await threads.run(user, check, STORAGE_S)
    except NotBegunError as error:
        raise UnavailableError(f"nobody could look at checkpoint.dir {location}: {error}; {UNDONE}") from None
    except TimeoutError:
        raise InputError(f"checkpoint.dir {location} did not answer within {STORAGE_S:g} s; check the URL") from None


def add_submission_routes(app: FastAPI, api: Api) -> None:
    """Handing in jobs, and asking what would become of them."""

    @app.post("/api/v1/jobs", tags=["jobs"], status_code=201)
    async def submit_job(request: Request, body: SubmitBody, idempotency_key: IdempotencyKey = None) -> Response:
        """Ask for a promise: 201 with the answer, or 202 while the speed of unknown code is measured.

        With an `Idempotency-Key` of its own it can be sent again without harm: the same job, the same answer.
        """
        user: UserRecord = request.state.user
        submission = make_submission(body, user, idempotency_key)
        await try_storage(api.threads, body.job, body.secrets, user)
        job_id = name_keyed(user.id, idempotency_key) if idempotency_key is not None else ""
        with naming("job", job_id=job_id):
            job_id = await api.call(partial(api.operations.submit, submission))
        with api.telling(f"job {job_id}", job_id):
            record = api.reload(job_id)
            answer = api.show_answer(record, body.accept_offer)
        status = 202 if record.state is JobState.PROBING else 201
        return Response(to_json(answer), status, media_type="application/json")

    @app.post("/api/v1/arrays", tags=["jobs"], status_code=201)
    async def submit_array(request: Request, body: SubmitBody, idempotency_key: IdempotencyKey = None) -> JSONResponse:
        """Ask for a promise for every job of a sweep: all are taken in, or none. 202 while one of them is measured."""
        user: UserRecord = request.state.user
        submission = make_submission(body, user, idempotency_key)
        array_id = name_keyed_array(user.id, idempotency_key) if idempotency_key is not None else ""
        with naming("array", array_id=array_id):
            ids = await api.call(partial(api.operations.submit_array, submission))
        with api.telling(f"the array of jobs {', '.join(ids)}"):
            records = [api.reload(job_id) for job_id in ids]
            answer = documents.write_array(records, api.now_s())
        is_open = any(record.state is JobState.PROBING for record in records)
        return JSONResponse(answer, 202 if is_open else 201)

    @app.post("/api/v1/plan", tags=["jobs"])
    async def plan_job(request: Request, body: PlanBody) -> Document:
        """What a submission would be told now; nothing is stored, unless unknown code is to be measured.

        `probe` is then the job that does so. It ends when it has; the next plan knows the speed.
        """
        user: UserRecord = request.state.user
        submission = Submission(body.job, body.archive, user.name, body.secrets, owner=user.id)
        forecast = await api.call(lambda: api.operations.plan(submission, body.compare))
        unknown = body.probe and forecast.unmeasured
        measuring = await api.call(lambda: api.operations.measure(submission)) if unknown else None
        with nullcontext() if measuring is None else api.telling(f"job {measuring}, which measures,", measuring):
            changes = write_differences(api, forecast.differences, user)
            return documents.write_forecast(forecast, api.now_s()) | {"probe": measuring, "changes": changes}


@contextmanager
def naming(what: str, job_id: str = "", array_id: str = "") -> Iterator[None]:
    """While something is handed in: an error says under which id it would be stored, if a key makes that known."""
    try:
        yield
    except UnavailableError as error:
        name = job_id or array_id
        sentence = f"{error}; {SAFE_AGAIN}; {what} {name}" if name else f"{error}; {what} without a key"
        raise UnavailableError(sentence, error.unknown, job_id, array_id) from None


def add_change_routes(app: FastAPI, api: Api) -> None:
    """Changing jobs."""

    @app.post("/api/v1/jobs/{job}/hold", tags=["jobs"])
    async def hold_job(request: Request, job: JobInPath) -> Document:
        """Let a job wait until it is released; one that runs is checkpointed."""
        user: UserRecord = request.state.user
        record = api.find_job(job, user, alone=True)
        return await api.change(record, lambda: api.operations.hold(record.id, user.name))

    @app.post("/api/v1/jobs/{job}/release", tags=["jobs"])
    async def release_job(request: Request, job: JobInPath, body: ResumeBody | None = None) -> Document:
        """Let a held job go."""
        return await let_go(api, request.state.user, job, body, "release")

    @app.post("/api/v1/jobs/{job}/cancel", tags=["jobs"])
    async def cancel_job(request: Request, job: JobInPath) -> Document:
        """End a job for good; its last checkpoint stays."""
        user: UserRecord = request.state.user
        record = api.find_job(job, user, alone=True)
        return await api.change(record, lambda: api.operations.cancel(record.id, user.name))

    @app.post("/api/v1/jobs/{job}/resume", tags=["jobs"])
    async def resume_job(request: Request, job: JobInPath, body: ResumeBody | None = None) -> Document:
        """Let a paused, cancelled or failed job go on from its last checkpoint, if it has one."""
        return await let_go(api, request.state.user, job, body, "resume")

    @app.post("/api/v1/jobs/{job}/accept", tags=["jobs"])
    async def accept_offer(request: Request, job: JobInPath, body: AcceptBody) -> Document:
        """Take an open offer; it is checked once more."""
        record = api.find_job(job, request.state.user)
        return await api.change(record, lambda: api.operations.accept(record.id, body.offer))


async def let_go(
    api: Api, user: UserRecord, job: str, body: ResumeBody | None, to: Literal["resume", "release"]
) -> Document:
    """Let a job that holds nothing go on from its last checkpoint, if it has one."""
    record = api.find_job(job, user, to=to)
    step, secrets = (await api.find_steps([record], user))[record.id], body.secrets if body is not None else {}
    act = api.operations.resume if to == "resume" else api.operations.release
    return await api.change(record, lambda: act(record.id, step, secrets))
