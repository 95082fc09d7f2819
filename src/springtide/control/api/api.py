"""What the routes have in common: who may see which job, how the reconciler is asked, and jobs as documents.

Lists of jobs come from a snapshot in memory, what else is read straight from the store; whatever changes something goes
through the reconciler and is answered when it is stored.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Literal, ParamSpec, TypeVar

from fastapi import Request

from springtide.control.api import documents
from springtide.control.api.entrance.sessions import Sessions
from springtide.control.api.histories import Histories, RecentJobs
from springtide.control.api.job_data.user_turns import NotBegunError, UserThreads
from springtide.control.api.job_pages import JobPages
from springtide.control.api.reports.chances import NO_FAULTS, judge_promise, read_history
from springtide.control.api.reports.offer_prices import price_offers
from springtide.control.daemon_threads import DaemonThreads
from springtide.control.rent_quotes import RentQuotes
from springtide.control.scheduling.loop.calls import UNDONE, UNKNOWN
from springtide.control.scheduling.machines import node_drains, outside_load
from springtide.control.scheduling.operations import Operations, can_release, can_resume
from springtide.control.scheduling.reconciler import Reconciler
from springtide.control.scheduling.submissions import find_checkpoint
from springtide.control.storage.job_snapshot import JobSnapshot
from springtide.control.storage.records import EventRecord, JobRecord, OfferRecord, UserRecord
from springtide.core.job_states import JobState
from springtide.core.shared_types import Document
from springtide.errors import ConflictError, MissingError, UnavailableError

P = ParamSpec("P")
T = TypeVar("T")
logger = logging.getLogger("springtide.control")
ANSWER_S = 30.0  # that a request waits for the reconciler
#: Which of several jobs with one name is meant by a request to do this.
FITS: Mapping[str, Callable[[JobRecord], bool]] = {"resume": can_resume, "release": can_release}
FAULTS_S = 60.0  # for which the faults counted so far are not counted again
FOLDERS_S = 20.0  # for the folders in which checkpoints lie
MOST_THREADS, THREADS_OF_EACH = 64, 4  # that may wait for storage; of each user
READERS_OF_EACH = 16  # that may wait for files of jobs: somebody looks at several jobs at a time
MOST_STREAMS = 16  # that read the next piece of a file for a client


def reads_files(api: "Api") -> Callable[[Callable[P, T]], Callable[P, Awaitable[T]]]:
    """Makes a route of a function that reads files of a job: in a thread of its user's.

    The threads of all other routes are few, and shared with whoever asks whether the server lives: where storage does
    not answer, this kind of question would soon have all of them.
    """

    def make_route(read: Callable[P, T]) -> Callable[P, Awaitable[T]]:
        @wraps(read)
        async def route(*given: P.args, **told: P.kwargs) -> T:
            request = told["request"]
            assert isinstance(request, Request), "every route that reads files has it"
            where = f"what is kept of job {told['job']}"
            return await api.look(api.files, request.state.user, partial(read, *given, **told), where)

        return route

    return make_route


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
        #: What was seen of faults, and until when that holds.
        self.faults, self.faults_until_s = NO_FAULTS, self.opened_s
        self.histories, self.recent = Histories(self.store), RecentJobs(self.store, self.snapshot)
        self.sessions = Sessions(self.store, self.now_s)
        self.threads = UserThreads("requests that look at storage", MOST_THREADS, THREADS_OF_EACH)
        self.files = UserThreads("requests that read files of jobs", MOST_THREADS, READERS_OF_EACH)
        self.streams = DaemonThreads(MOST_STREAMS, "streams")
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
        """While what was done and stored is read again: an error then is not a failure of the request, and says so."""
        try:
            yield
        except Exception as error:
            logger.exception("what was stored of %s cannot be read", what)
            sentence = f"it was done and {what} is stored, but the result cannot be read right now; ask again"
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
        threads = self.own_folders if is_own else self.named_folders
        return await self.look(threads, user, look, f"the folder of checkpoints {named}")

    async def look(self, threads: UserThreads, user: UserRecord, work: Callable[[], T], where: str) -> T:
        """What some work for a user finds in a place that may never answer; who asks for other things waits for none of
        it.
        """
        try:
            return await threads.run(user, work, FOLDERS_S)
        except NotBegunError as error:
            sentence = f"nobody could look into {where}: {error}; {UNDONE}"
        except TimeoutError:
            sentence = f"{where} did not answer within {FOLDERS_S:g} s; {UNDONE}"
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
        """A job as it was just answered; one that was not declined has no offers to look up."""
        if accepts or record.state in (JobState.OFFERED, JobState.DECLINED):
            return self.show_job(record)
        return documents.write_job(record, self.now_s() if record.answered_s is None else record.answered_s)

    def show_events(self, events: Iterable[EventRecord], user: UserRecord) -> Iterable[Document]:
        """Events as a user may read them: other users' jobs, for which devices changed, are not named."""
        return (documents.write_event(event, self.now_s(), None if user.admin else user.id) for event in events)

    def describe_node(self, node: str) -> str:
        """Whether a node takes work; one that is in no list any more was lost long ago."""
        return node_drains.describe_nodes(self.reconciler.inventory, self.store.fact(node_drains.FACT)).get(
            node, "lost"
        )

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
