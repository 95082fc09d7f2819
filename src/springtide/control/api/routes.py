"""The HTTP API: routes that check who asks, hand the work to the operations, and answer with documents.

Lists of jobs come from a snapshot in memory, what else is read straight from the store; whatever changes something goes
through the reconciler and is answered when it is stored. The guard in front has checked host, origin, body and token.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, cast

from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse

from springtide import __version__
from springtide.control.api import documents, explanations
from springtide.control.api.board_routes import add_board_routes, write_differences
from springtide.control.api.error_replies import add_error_handlers
from springtide.control.api.guard import Guard, Limiter, PageRules
from springtide.control.api.histories import Histories, RecentJobs
from springtide.control.api.inside_routes import add_inside_routes
from springtide.control.api.job_data.archive_routes import add_archive_routes
from springtide.control.api.job_data.array_routes import add_array_routes
from springtide.control.api.job_data.checkpoint_routes import add_checkpoint_routes
from springtide.control.api.job_data.file_routes import add_file_routes
from springtide.control.api.job_data.log_routes import add_log_routes
from springtide.control.api.job_data.receipt_routes import add_receipt_routes
from springtide.control.api.job_data.user_turns import NotBegunError, UserThreads
from springtide.control.api.job_pages import JobPages
from springtide.control.api.platform_routes import add_platform_routes
from springtide.control.api.reports.chances import NO_FAULTS, judge_promise, read_history, tell_chance
from springtide.control.api.reports.offer_prices import price_offers
from springtide.control.api.requests import (
    MOST_NUMBER,
    AcceptBody,
    IdempotencyKey,
    JobRef,
    Number,
    PlanBody,
    ResumeBody,
    SubmitBody,
)
from springtide.control.api.sessions import Pulse, Sessions, read_cookie
from springtide.control.api.usage_routes import add_usage_routes
from springtide.control.api.user_routes import add_user_routes
from springtide.control.notices.notice_decisions import tell_failure
from springtide.control.rent_quotes import RentQuotes
from springtide.control.scheduling import nodes
from springtide.control.scheduling.loop import outside_load
from springtide.control.scheduling.loop.calls import SAFE_AGAIN, UNDONE, UNKNOWN, UnavailableError
from springtide.control.scheduling.operations import ConflictError, MissingError, Operations, can_release, can_resume
from springtide.control.scheduling.reconciler import Reconciler
from springtide.control.scheduling.submissions import Submission, find_checkpoint, name_keyed, name_keyed_array
from springtide.control.storage.archives import find_most_body
from springtide.control.storage.job_snapshot import JobQuery, JobSnapshot
from springtide.control.storage.places.storage_checks import check_job_storage
from springtide.control.storage.records import EventRecord, JobRecord, OfferRecord, UserRecord
from springtide.core.job_file import JobFile
from springtide.core.job_states import ACTIVE, JobState
from springtide.core.locations import is_url
from springtide.errors import InputError

T = TypeVar("T")
logger = logging.getLogger("springtide.control")
Document = dict[str, Any]
ANSWER_S = 30.0  # that a request waits for the reconciler
RECENT_EVENTS = 200  # of a job, to say why it is where it is
#: Which of several jobs of one name a user means who wants to do this.
FITS: Mapping[str, Callable[[JobRecord], bool]] = {"resume": can_resume, "release": can_release}
MOST_UNTOLD = 3  # notices that have not arrived
FAULTS_S = 60.0  # for which the faults counted so far are not counted again
STORAGE_S = 25.0  # for storage that a job names to answer
FOLDERS_S = 20.0  # for the folders in which checkpoints lie
MOST_THREADS, THREADS_OF_EACH = 64, 4  # that may wait for storage; of each user


class Api:
    """The routes of one server."""

    def __init__(self, reconciler: Reconciler, request_stop: Callable[[], None]) -> None:
        self.reconciler = reconciler
        self.store = reconciler.store
        self.context = reconciler.context
        self.operations = Operations(reconciler)
        self.request_stop = request_stop
        self.snapshot = JobSnapshot(self.store)
        self.pages = JobPages(self.snapshot, self.now_s, reconciler.health.tell)
        self.opened_s = self.now_s()
        self.faults, self.faults_until_s = (
            NO_FAULTS,
            self.opened_s,
        )  # what was seen of faults, and until when that holds
        self.histories, self.recent = Histories(self.store), RecentJobs(self.store, self.snapshot)
        self.sessions = Sessions(self.store, self.now_s)
        self.threads = UserThreads("requests that look at storage", MOST_THREADS, THREADS_OF_EACH)
        self.named_folders = UserThreads("requests that look at folders of users", MOST_THREADS, THREADS_OF_EACH)
        self.own_folders = UserThreads("requests that look at folders of jobs", MOST_THREADS, THREADS_OF_EACH)
        clouds, device_types = self.context.options.clouds, reconciler.inventory.device_types
        self.rents = RentQuotes(clouds, self.context.state_dir, device_types, self.store)

    async def change(self, record: JobRecord, function: Callable[[], None]) -> Document:
        """Have the reconciler change a job, and show it as it is then."""
        try:
            await self.call(function)
        except UnavailableError as error:
            raise UnavailableError(f"{error}; job {record.id}", error.unknown, record.id) from None
        with self.telling(f"job {record.id}", record.id):
            return self.show_job(self.reload(record.id))

    @contextmanager
    def telling(self, what: str, job_id: str = "", array_id: str = "") -> Iterator[None]:
        """While what was done and stored is read again: an error is no failure of what was asked, and says so."""
        try:
            yield
        except Exception as error:
            logger.exception("what was stored of %s cannot be read", what)
            sentence = f"it was done, and {what} stored; only what came of it cannot be read now; ask again"
            raise UnavailableError(sentence, unknown=True, job_id=job_id, array_id=array_id) from error

    async def call(self, function: Callable[[], T]) -> T:
        """Have the reconciler run a function, and wait until its effects are stored."""
        future = self.reconciler.call(function)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), ANSWER_S)
        except TimeoutError:
            done = UNDONE if future.cancelled() else UNKNOWN
            why = self.reconciler.health.tell() or "the platform is busy"
            raise UnavailableError(f"{why}; {done}", not future.cancelled()) from None

    async def find_steps(self, records: Sequence[JobRecord], user: UserRecord) -> dict[str, int]:
        """From which step each of some jobs would go on; their folders may be anybody's, on disks that are gone."""

        users = {one.id: self.store.find_run_as(one.owner) for one in records}

        def look() -> dict[str, int]:
            return {one.id: find_checkpoint(one, self.context.state_dir, users[one.id]) for one in records}

        is_own = all(one.spec.checkpoint.dir is None and users[one.id] is None for one in records)
        named = " or ".join(sorted({one.spec.checkpoint.dir or f"of {one.name}" for one in records})[:3])
        try:
            return await (self.own_folders if is_own else self.named_folders).run(user, look, FOLDERS_S)
        except NotBegunError as error:
            sentence = f"nobody could look into the folder of checkpoints {named}: {error}; {UNDONE}"
        except TimeoutError:
            sentence = f"the folder of checkpoints {named} did not answer within {FOLDERS_S:g} s; {UNDONE}"
        raise UnavailableError(sentence)

    def sees(self, record: JobRecord, user: UserRecord) -> bool:
        """Whether a user may know a job by its name."""
        return bool(documents.hide_name(record, user).id)

    def now_s(self) -> float:
        """Platform time."""
        return self.context.clock.now_s()

    def find_job(
        self, text: str, user: UserRecord, alone: bool = False, to: Literal["resume", "release"] | None = None
    ) -> JobRecord:
        """The one job that a text names among those a user may see.

        Of several with one name it is the newest with which can be done what is asked for (`to`), else the newest that
        is active, else the newest; where that may do harm (`alone`), only if no other is active.
        """
        found = self.snapshot.find_jobs(text, None if user.admin else user.id)
        active = [record for record in found if record.active]
        fit = [] if to is None else [record for record in found if FITS[to](record)]
        if len({record.name for record in found}) == 1 and not (alone and len(active) > 1):
            return (fit or active or found)[0]
        if not found:
            raise MissingError(f"there is no job {text!r}; list them with: springtide ps --all")
        members = [one for one in found if one.array_place is not None and one.array_place.name == text]
        if members:
            raise ConflictError(f"{text!r} is an array of several jobs; name one, as in {members[-1].name}")
        if len(found) > 1:
            names = ", ".join(f"{record.name} ({record.id})" for record in found[:5])
            raise ConflictError(f"{text!r} stands for several jobs: {names}; give more letters, or the id")
        return found[0]

    def find_ref(self, record: JobRecord) -> str:
        """By what a command names a job: its name, or its id where its owner has others of that name."""
        return record.name if self.store.is_unique(record.name, record.owner) else record.id

    def find_array(self, text: str, user: UserRecord) -> list[JobRecord]:
        """The jobs of the array that a name or an id stands for, among those a user may see, in order."""
        found = self.store.find_array(text, None if user.admin else user.id)
        if not found:
            raise MissingError(f"there is no array {text!r}; list jobs with: springtide ps --all")
        return found

    def show_job(self, record: JobRecord) -> Document:
        """A job with its offers; those who only read it are told what renting would cost, too."""
        offers = self.store.offers(record.id)
        written = documents.write_job(record, self.now_s(), offers, self.price_offers(record, offers))
        return written | {"ref": self.find_ref(record)}

    def price_offers(self, record: JobRecord, offers: Sequence[OfferRecord]) -> Mapping[str, float]:
        """The least that each offer of a job would cost, by its id; empty where nothing has a price."""
        if not offers or not record.active:
            return {}
        return price_offers(record, offers, self.store.speeds(record.speed_key), self.reconciler.inventory)

    def show_answer(self, record: JobRecord, accepts: bool) -> Document:
        """A job as it was just answered; who was not declined has no offers to look up."""
        if accepts or record.state in (JobState.OFFERED, JobState.DECLINED):
            return self.show_job(record)
        return documents.write_job(record, self.now_s() if record.answered_s is None else record.answered_s)

    def show_events(self, events: Iterable[EventRecord], user: UserRecord) -> Iterable[Document]:
        """Events as a user may read them: other users' jobs, for which devices changed, are not named."""
        return (documents.write_event(event, self.now_s(), None if user.admin else user.id) for event in events)

    def describe_node(self, node: str) -> str:
        """Whether a node takes work."""
        return nodes.describe_nodes(self.reconciler.inventory, self.store.fact(nodes.FACT))[node]

    def check_load(self) -> Document:
        """What others take of the machines, in the form of a check of readiness; they make nothing unready."""
        inventory, fact = self.reconciler.inventory, self.store.fact(outside_load.FACT)
        return outside_load.check_loads(outside_load.list_loads(inventory, fact), self.now_s())

    def judge_promise(self, record: JobRecord) -> float | None:
        """With what probability the promise of a job is kept, as of now."""
        slowdown, now_s = self.reconciler.inventory.find_slowest(record.devices), self.now_s()
        if record.promised and record.active and now_s >= self.faults_until_s:
            self.faults, self.faults_until_s = read_history(self.store.list_ledger()), now_s + FAULTS_S
        return judge_promise(record, self.store.speeds(record.speed_key), now_s, slowdown, self.faults)

    def reload(self, job_id: str) -> JobRecord:
        """A job as it is stored now."""
        record = self.store.job(job_id)
        assert record is not None, "it was just stored"
        return record


#: What adds pages for browsers to an application: they call it for its documents, and sign people in. It says what the
#: guard must know of them.
AddPages = Callable[[FastAPI, Sessions, Pulse], PageRules]


def make_app() -> FastAPI:
    """An application without routes; the framework's own pages of documentation load scripts from elsewhere."""
    return FastAPI(title="Springtide", version=__version__, docs_url=None, redoc_url=None)


def add_routes(app: FastAPI, api: Api) -> None:
    """All routes of the API."""
    add_job_routes(app, api)
    add_log_routes(app, api)
    add_change_routes(app, api)
    add_archive_routes(app, api)
    add_array_routes(app, api)
    add_checkpoint_routes(app, api)
    add_file_routes(app, api)
    add_inside_routes(app, api)
    add_receipt_routes(app, api)
    add_platform_routes(app, api)
    add_user_routes(app, api)
    add_board_routes(app, api)
    add_usage_routes(app, api)


def describe_api(add_more: Callable[[FastAPI], None]) -> Document:
    """The API with what others add, as an OpenAPI document; no server is behind it, so nothing of it can be called."""
    app = make_app()
    add_routes(app, cast(Api, None))
    add_more(app)
    return app.openapi()


def build_app(
    reconciler: Reconciler,
    hosts: frozenset[str],
    request_stop: Callable[[], None],
    pulse: Pulse,
    add_pages: AddPages | None = None,
) -> tuple[Guard, Sessions]:
    """The application behind its guard, and who is signed in."""
    app, api = make_app(), Api(reconciler, request_stop)
    add_routes(app, api)
    add_error_handlers(app)
    rules = PageRules() if add_pages is None else add_pages(app, api.sessions, pulse)
    options = reconciler.context.options
    changes, reads = Limiter(options.rate_per_s, options.burst), Limiter(options.reads_per_s, options.read_burst)
    api.sessions.changes = changes

    def find_session(cookie: str, host: str) -> UserRecord | None:
        secret = read_cookie(cookie, host)
        return api.sessions.find(secret) if secret else None

    most_archive_bytes = find_most_body(options.archive_limit_bytes)
    guard = Guard(app, reconciler.store, hosts, changes, reads, most_archive_bytes, find_session, rules)
    return guard, api.sessions


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
        """Jobs, newest first; a user who is no admin sees their own."""
        asker: UserRecord = request.state.user
        owner = None if asker.admin else asker.id
        page = await api.pages.read(JobQuery(frozenset(state or ()), owner, limit, before, user, without_probes=True))
        return Response(page, media_type="application/json")

    @app.get("/api/v1/jobs/{job}", tags=["jobs"])
    def show_job(request: Request, job: JobRef, to: Literal["resume", "release"] | None = None) -> Document:
        """One job; of several with one name, one with which can be done what is said (`to`), if there is any."""
        record = api.find_job(job, request.state.user, to=to)
        chance = api.judge_promise(record)
        return api.show_job(record) | {
            "rent": api.rents.find(record, api.now_s()),
            "promise_probability": None if chance is None else round(chance, 3),
        }

    @app.get("/api/v1/jobs/{job}/why", tags=["jobs"])
    def explain_job(request: Request, job: JobRef) -> Document:
        """Why a job is where it is."""
        record = api.find_job(job, request.state.user)
        chance = api.judge_promise(record)
        load = api.check_load()["sentence"] if record.active and record.deadline_s is not None else ""
        health = api.reconciler.health
        outage = health.tell_outage() if record.active else ""
        untold = [*filter(None, map(tell_failure, api.store.notices(record.id)))][-MOST_UNTOLD:]
        likely = [] if chance is None else [f"it keeps its promise with a probability of {tell_chance(chance)}"]
        active = api.snapshot.list_jobs(JobQuery(ACTIVE))[::-1]
        told = explanations.explain(
            record,
            api.store.offers(record.id),
            api.store.last_events(RECENT_EVENTS, record.id)[::-1],
            [documents.hide_name(other, request.state.user) for other in active],
            api.now_s(),
            api.find_ref(record),
            explanations.count_spare(record, active, api.reconciler.inventory),
        )
        return {
            "schema": 1,
            "job": record.id,
            "name": record.name,
            "state": str(record.state),
            "reason": told.reason,
            "sentence": told.sentence,
            "remedy": told.remedy,
            "facts": [*filter(None, [health.tell(), outage, load]), *likely, *told.facts, *untold],
            "promise_probability": None if chance is None else round(chance, 3),
            "rent": api.rents.find(record, api.now_s()),
            "standstill": health.tell() or None,
        }

    @app.get("/api/v1/jobs/{job}/events", tags=["jobs"])
    def list_job_events(
        request: Request, job: JobRef, after: Number = 0, limit: Annotated[int, Query(ge=1, le=1000)] = 1000
    ) -> Document:
        """What happened to a job, oldest first."""
        record = api.find_job(job, request.state.user)
        return documents.write_list(
            "events", api.show_events(api.store.events(record.id, after, limit), request.state.user)
        )


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


def add_change_routes(app: FastAPI, api: Api) -> None:
    """Changing jobs."""

    @app.post("/api/v1/jobs", tags=["jobs"], status_code=201)
    async def submit_job(request: Request, body: SubmitBody, idempotency_key: IdempotencyKey = None) -> JSONResponse:
        """Ask for a promise: 201 with the answer, or 202 while the speed of unknown code is measured.

        With an `Idempotency-Key` of its own it can be sent again without harm: the same job, the same answer.
        """
        user: UserRecord = request.state.user
        submission = make_submission(body, user, idempotency_key)
        await try_storage(api.threads, body.job, body.secrets, user)
        try:
            job_id = await api.call(partial(api.operations.submit, submission))
        except UnavailableError as error:
            job_id = name_keyed(user.id, idempotency_key) if idempotency_key is not None else ""
            sentence = f"{error}; {SAFE_AGAIN}; job {job_id}" if job_id else f"{error}; job without a key"
            raise UnavailableError(sentence, error.unknown, job_id) from None
        with api.telling(f"job {job_id}", job_id):
            record = api.reload(job_id)
            answer = api.show_answer(record, body.accept_offer)
        return JSONResponse(answer, 202 if record.state is JobState.PROBING else 201)

    @app.post("/api/v1/arrays", tags=["jobs"], status_code=201)
    async def submit_array(request: Request, body: SubmitBody, idempotency_key: IdempotencyKey = None) -> JSONResponse:
        """Ask for a promise for every job of a sweep: all are taken in, or none. 202 while one of them is measured."""
        user: UserRecord = request.state.user
        submission = make_submission(body, user, idempotency_key)
        try:
            ids = await api.call(partial(api.operations.submit_array, submission))
        except UnavailableError as error:
            array_id = name_keyed_array(user.id, idempotency_key) if idempotency_key is not None else ""
            sentence = f"{error}; {SAFE_AGAIN}; array {array_id}" if array_id else f"{error}; array without a key"
            raise UnavailableError(sentence, error.unknown, array_id=array_id) from None
        with api.telling(f"jobs {', '.join(ids)}"):
            records = [api.reload(job_id) for job_id in ids]
            answer = documents.write_array(records, api.now_s())
        is_open = any(record.state is JobState.PROBING for record in records)
        return JSONResponse(answer, 202 if is_open else 201)

    @app.post("/api/v1/jobs/{job}/hold", tags=["jobs"])
    async def hold_job(request: Request, job: JobRef) -> Document:
        """Let a job wait until it is released; one that runs is checkpointed."""
        user: UserRecord = request.state.user
        record = api.find_job(job, user, alone=True)
        return await api.change(record, lambda: api.operations.hold(record.id, user.name))

    @app.post("/api/v1/jobs/{job}/release", tags=["jobs"])
    async def release_job(request: Request, job: JobRef, body: ResumeBody | None = None) -> Document:
        """Let a held job go."""
        user: UserRecord = request.state.user
        record = api.find_job(job, user, to="release")
        step, secrets = (await api.find_steps([record], user))[record.id], body.secrets if body is not None else {}
        return await api.change(record, lambda: api.operations.release(record.id, step, secrets))

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

    @app.post("/api/v1/jobs/{job}/cancel", tags=["jobs"])
    async def cancel_job(request: Request, job: JobRef) -> Document:
        """End a job for good; its last checkpoint stays."""
        user: UserRecord = request.state.user
        record = api.find_job(job, user, alone=True)
        return await api.change(record, lambda: api.operations.cancel(record.id, user.name))

    @app.post("/api/v1/jobs/{job}/resume", tags=["jobs"])
    async def resume_job(request: Request, job: JobRef, body: ResumeBody | None = None) -> Document:
        """Let a paused, cancelled or failed job go on from its last checkpoint, if it has one."""
        user: UserRecord = request.state.user
        record = api.find_job(job, user, to="resume")
        step, secrets = (await api.find_steps([record], user))[record.id], body.secrets if body is not None else {}
        return await api.change(record, lambda: api.operations.resume(record.id, step, secrets))

    @app.post("/api/v1/jobs/{job}/accept", tags=["jobs"])
    async def accept_offer(request: Request, job: JobRef, body: AcceptBody) -> Document:
        """Take an open offer; it is checked once more."""
        record = api.find_job(job, request.state.user)
        return await api.change(record, lambda: api.operations.accept(record.id, body.offer))
