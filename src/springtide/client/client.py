"""`springtide.Client`: the verbs of the command line as methods, over HTTP.

Finds the server of the state directory by itself; methods return the values of `client.replies`, and raise the errors
of `springtide.errors`.
"""

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from springtide.client.log_reader import LogReader, LogSource
from springtide.client.log_streams import LogChoice, LogLine, compile_pattern
from springtide.client.replies import (
    ArrayInfo,
    AttemptInfo,
    CheckpointInfo,
    DeviceInfo,
    EventInfo,
    InsideInfo,
    JobInfo,
    KeptFileInfo,
    MetricsInfo,
    NodeInfo,
    NoticeInfo,
    PlanInfo,
    ProjectInfo,
    ServerInfo,
    UsageInfo,
    UserInfo,
    WhyInfo,
)
from springtide.client.reply_values import Reply
from springtide.client.server_connection import JobRef, ServerConnection, encode, find_error, path_of
from springtide.core.archive_format import LIMIT_BYTES, Archive
from springtide.core.job_states import ACTIVE, JobState
from springtide.core.shared_types import Document
from springtide.errors import ArchiveError, InputError, JobError

if TYPE_CHECKING:  # what takes long to import and few methods need
    from springtide.client.board_replies import BoardInfo, PredictionInfo
    from springtide.client.fetching import Fetched
    from springtide.client.job_folders import JobFolder, JobSource
    from springtide.core.receipt_format import Verification

FOLLOW_S = 0.3
RENT_LOOKS = 3
PAGE_EVENTS = 1000
PAGE_JOBS = 1000
RANK_0 = LogChoice()


class Client(ServerConnection):
    """A connection to one server. Without arguments: the server of `$SPRINGTIDE_HOME`, with its token.

    `url` may name several servers of one database (`URL,URL`): the active one is asked.

    with springtide.Client() as client:
        job = client.submit("job.yaml")
        print(job.answer, job.promised_finish)
        print(client.wait(job).met)
    """

    def submit(
        self,
        job: "JobSource",
        accept_offer: bool = False,
        wait: bool = True,
        on_probe: Callable[[JobInfo], None] = lambda job: None,
        key: str | None = None,
    ) -> JobInfo:
        """Ask for a promise; with `wait`, follows a probe until the answer is there, and tells `on_probe` of it.

        A lost answer is asked for again by itself: the request has a `key` (made here if none is given) under which the
        server knows it, so there is one job however often it is sent.
        """
        from springtide.client.job_folders import load_job, read_secrets

        folder = load_job(job)
        if folder.job.sweep is not None:
            raise JobError("the job has a sweep, which makes several jobs; submit it with submit_array")
        body = self._upload_job(folder) | {"secrets": read_secrets(folder.job), "accept_offer": accept_offer}
        answer = JobInfo.read(self.ask_again("/api/v1/jobs", body, key or uuid.uuid4().hex))
        if not wait:
            return answer
        if answer.state is JobState.PROBING:
            on_probe(answer)
            answer = self.wait(answer, lambda job: job.state is not JobState.PROBING)
        return self._follow_rent(answer)

    def submit_array(
        self,
        job: "JobSource",
        accept_offer: bool = False,
        wait: bool = True,
        on_probe: Callable[[ArrayInfo], None] = lambda array: None,
        key: str | None = None,
    ) -> ArrayInfo:
        """Ask for a promise for every job of a sweep; all are taken in, or none."""
        from springtide.client.job_folders import load_job, read_secrets

        folder = load_job(job)
        body = self._upload_job(folder) | {"secrets": read_secrets(folder.job), "accept_offer": accept_offer}
        answer = ArrayInfo.read(self.ask_again("/api/v1/arrays", body, key or uuid.uuid4().hex))
        if wait and any(one.state is JobState.PROBING for one in answer.jobs):
            on_probe(answer)
            while any(one.state is JobState.PROBING for one in answer.jobs):
                time.sleep(FOLLOW_S)
                answer = self.array(answer.id)
        return answer

    def array(self, array: str) -> ArrayInfo:
        """The jobs of a sweep, by the name or id of their array."""
        return ArrayInfo.read(self.ask("GET", f"/api/v1/arrays/{encode(array)}"))

    def cancel_array(self, array: str) -> ArrayInfo:
        """End all jobs of a sweep for good."""
        return ArrayInfo.read(self.ask("POST", f"/api/v1/arrays/{encode(array)}/cancel", json={}))

    def hold_array(self, array: str) -> ArrayInfo:
        """Let all jobs of a sweep that wait or run wait until they are released."""
        return ArrayInfo.read(self.ask("POST", f"/api/v1/arrays/{encode(array)}/hold", json={}))

    def release_array(self, array: str) -> ArrayInfo:
        """Let all held jobs of a sweep go; their secrets are taken from this environment again."""
        return self._change_array(array, "release")

    def resume_array(self, array: str) -> ArrayInfo:
        """Let all paused, cancelled and failed jobs of a sweep go on, with secrets of this environment."""
        return self._change_array(array, "resume")

    def _change_array(self, array: str, verb: str) -> ArrayInfo:
        found = self.array(array)
        body = {"secrets": find_secrets(found.jobs[0])}
        return ArrayInfo.read(self.ask("POST", f"/api/v1/arrays/{encode(found.id)}/{verb}", json=body))

    def hold(self, job: JobRef) -> JobInfo:
        """Let a job wait until it is released; one that runs is checkpointed."""
        return JobInfo.read(self.ask("POST", path_of(job, "hold"), json={}))

    def release(self, job: JobRef) -> JobInfo:
        """Let a held job go; its secrets are taken from this environment again."""
        return self._go_on(job, "release")

    def _go_on(self, job: JobRef, verb: str) -> JobInfo:
        """Have a job go on that does nothing; of several with one name, the newest that can."""
        found = JobInfo.read(self.ask("GET", path_of(job), params={"to": verb}))
        return JobInfo.read(self.ask("POST", path_of(found, verb), json={"secrets": find_secrets(found)}))

    def _upload_job(self, folder: "JobFolder") -> Document:
        told = folder.job.model_dump(mode="json", exclude_defaults=True)
        return {"job": told, "archive": self.upload(self.pack(folder))}

    def _follow_rent(self, job: JobInfo) -> JobInfo:
        """The same job with what renting would cost it, if it was declined: that is found when a job is read."""
        if job.answer == "declined" and job.rent is None:
            job = self.job(job)
        for _ in range(RENT_LOOKS):
            if job.rent is None or job.rent.state != "working":  # as servers of 0.1 say for a while
                break
            job = self.job(job)
        return job

    def plan(self, job: "JobSource", probe: bool = False) -> PlanInfo:
        """What a submission would be told now; with `probe`, unknown code is measured first, if a device is free."""
        from springtide.client.job_folders import load_job, read_secrets

        folder = load_job(job)
        body = self._upload_job(folder)
        wish = {"probe": True, "secrets": read_secrets(folder.job)} if probe else {}
        answer = PlanInfo.read(self.ask("POST", "/api/v1/plan", json=body | wish))
        if not answer.probe:
            return answer
        measured = self.wait(answer.probe, lambda job: job.state is not JobState.PROBING)
        if measured.state is JobState.WAITLISTED:
            self.cancel(measured)
            sentence = f"{answer.sentence}; but now {measured.sentence}"
            return PlanInfo.read(answer.document | {"sentence": sentence})
        if measured.state is JobState.FAILED:
            raise JobError(f"the probe failed: {measured.sentence}")
        return PlanInfo.read(self.ask("POST", "/api/v1/plan", json=body))

    def pack(self, folder: "JobFolder") -> Archive:
        """The archive of a folder; one above the usual limit, if this server takes it."""
        try:
            return folder.pack(LIMIT_BYTES)
        except ArchiveError:
            limit_bytes = self.server().archive_limit_bytes
            if limit_bytes <= LIMIT_BYTES:
                raise
        return folder.pack(limit_bytes)

    def upload(self, archive: Archive) -> str:
        """Make sure the server has an archive; returns its hash."""
        path = f"/api/v1/archives/{archive.code_hash}"
        if self.send("GET", path).status_code == 404:
            self.ask("PUT", path, content=archive.data, headers={"Content-Type": "application/x-tar"})
        return archive.code_hash

    def jobs(self, all: bool = False, limit: int = 100) -> list[JobInfo]:
        """Jobs, newest first: the active ones, or with `all` the ended ones too."""
        states = [] if all else sorted(ACTIVE)
        found = self.ask("GET", "/api/v1/jobs", params={"state": states, "limit": limit})
        return [JobInfo.read(one) for one in found["jobs"]]

    def each_job(self, states: Iterable[str] = (), user: str | None = None, page: int = PAGE_JOBS) -> Iterator[JobInfo]:
        """All jobs of these states (every one if none are given) and of a user, newest first; asked for by pages."""
        chosen: Document = {"state": list(states), "limit": page} | ({} if user is None else {"user": user})
        while True:
            found = self.ask("GET", "/api/v1/jobs", params=chosen)
            yield from map(JobInfo.read, found["jobs"])
            if found.get("next") is None:
                return
            chosen = chosen | {"before": found["next"]}

    def job(self, job: JobRef) -> JobInfo:
        """One job."""
        return JobInfo.read(self.ask("GET", path_of(job)))

    def why(self, job: JobRef) -> WhyInfo:
        """Why a job is where it is."""
        return WhyInfo.read(self.ask("GET", path_of(job, "why")))

    def events(self, job: JobRef | None = None, after: int = 0) -> list[EventInfo]:
        """What happened to a job, or to all, after the event of a number."""
        path = "/api/v1/events" if job is None else path_of(job, "events")
        found: list[EventInfo] = []
        while page := self.ask("GET", path, params={"after": after, "limit": PAGE_EVENTS})["events"]:
            found += map(EventInfo.read, page)
            after = found[-1].seq
            if len(page) < PAGE_EVENTS:
                break
        return found

    def metrics(self, job: JobRef, after_step: int = 0) -> list[MetricsInfo]:
        """What `run.log` recorded."""
        found: list[MetricsInfo] = []
        page: Document = {"more": True, "next_offset": 0}
        while page.get("more"):
            chosen = {"after_step": after_step, "offset": page["next_offset"]}
            page = self.ask("GET", path_of(job, "metrics"), params=chosen)
            found += map(MetricsInfo.read, page["metrics"])
        return found

    def attempts(self, job: JobRef) -> list[AttemptInfo]:
        """The starts, changes of devices and ends of a job's processes, oldest first."""
        return [AttemptInfo.read(one) for one in self.ask("GET", path_of(job, "attempts"))["attempts"]]

    def checkpoints(self, job: JobRef) -> list[CheckpointInfo]:
        """The checkpoints of a job that are on the server's disk, newest first."""
        return [CheckpointInfo.read(one) for one in self.ask("GET", path_of(job, "checkpoints"))["checkpoints"]]

    def fetch(
        self,
        job: JobRef,
        out: Path | str | None = None,
        checkpoint: int | None = None,
        whole: bool = False,
        on_bytes: Callable[[int], None] = lambda count: None,
    ) -> "Fetched":
        """Bring the weights of a job here: of its newest checkpoint, which is the result of a finished job, or of one.

        `.weights` of what is returned is a safetensors file that `load_state_dict` takes. `whole` brings all that a run
        can be resumed from. A transfer that broke off goes on where it did.
        """
        from springtide.client.fetching import Transfer, choose_checkpoint, fetch_checkpoint

        found = self.job(job)
        told = choose_checkpoint(found.name, self.checkpoints(found), checkpoint)
        place = Path(found.name) if out is None else Path(out)
        transfer = Transfer(self.http, find_error, on_bytes)
        return fetch_checkpoint(transfer, found.id, path_of(found, "checkpoints"), told, place, whole)

    def files(self, job: JobRef) -> list[KeptFileInfo]:
        """What a job has left: `output/...`, `checkpoints/step-.../...` and `logs/...`, by path."""
        found = self.ask("GET", path_of(job, "files"))
        if found["more"]:
            raise InputError(
                f"{found['name']} has more than {len(found['files'])} files; have the job pack them into one archive"
            )
        return [KeptFileInfo.read(one) for one in found["files"]]

    def fetch_files(
        self,
        job: JobRef,
        wanted: Sequence[str] = ("output",),
        out: Path | str | None = None,
        on_bytes: Callable[[int], None] = lambda count: None,
    ) -> list[Path]:
        """Bring files of a job here, by the paths of `files`, by folders or by patterns: `output/*.png`, `logs`.

        Each lies at its path below `out`, by default a folder with the job's name. A transfer that broke off goes on
        where it did, and what is here already is not brought again.
        """
        from springtide.client.fetching import Transfer, choose_files, fetch_kept

        found = self.job(job)
        chosen = choose_files(found.name, self.files(found), wanted)
        place = Path(found.name) if out is None else Path(out)
        transfer = Transfer(self.http, find_error, on_bytes)
        return fetch_kept(transfer, path_of(found, "files"), lambda: self.files(found), chosen, place)

    def inside(self, job: JobRef) -> InsideInfo:
        """Where a running job of yours works, with which variables and in which processes."""
        return InsideInfo.read(self.ask("GET", path_of(job, "inside")))

    def receipt(self, job: JobRef) -> Document:
        """The receipt of a job that has succeeded, as `springtide verify --receipt` reads it."""
        return self.ask("GET", path_of(job, "receipt"))

    def was_sealed_here(self, receipt: Document) -> bool:
        """Whether this server has written exactly this receipt."""
        return bool(self.ask("POST", "/api/v1/receipts/check", json={"receipt": receipt})["sealed_here"])

    def note_verification(self, receipt: Document, found: "Verification") -> JobInfo:
        """Tell the server that sealed a receipt what came of training it again: it is kept with the job."""
        body = {"receipt": receipt, **asdict(found)}
        return JobInfo.read(self.ask("POST", path_of(receipt["job"]["id"], "verifications"), json=body))

    def board(self, **choice: Any) -> "BoardInfo":
        """All jobs on one axis of time, with the devices; `choice` as the API takes it: group, find, owner, limit."""
        from springtide.client.board_replies import BoardInfo

        return BoardInfo.read(self.ask("GET", "/api/v1/board", params=choice))

    def predictions(self, job: JobRef) -> "list[PredictionInfo]":
        """When a job was expected to end, as seen at each instant at which that moved."""
        from springtide.client.board_replies import PredictionInfo

        return [PredictionInfo.read(one) for one in self.ask("GET", path_of(job, "predictions"))["predictions"]]

    def make_link(self) -> str:
        """An address that signs a browser in as this user, once, within ten minutes."""
        return self.url + str(self.ask("POST", "/api/v1/links", json={})["path"])

    def logs(
        self,
        job: JobRef,
        rank: int = 0,
        follow: bool = False,
        tail: int | None = None,
        on_page: Callable[[], None] = lambda: None,
    ) -> Iterator[str]:
        """Pieces of a rank's log; with `follow`, until the job has ended. `on_page` is called before every piece."""
        path, offset = path_of(self.job(job), "logs"), 0
        while True:
            chosen: Document = {"rank": rank, "offset": offset} | ({"tail": tail} if tail is not None else {})
            page = self.ask("GET", path, params=chosen)
            tail, offset = None, page["next_offset"]
            on_page()
            if page["text"]:
                yield page["text"]
            elif page["ended"] or not follow:
                return
            else:
                time.sleep(FOLLOW_S)

    def read_log(self, job: JobRef, choice: LogChoice = RANK_0, follow: bool = False) -> Iterator[LogLine]:
        """What a job printed and recorded, and what happened to its processes, line by line in the order of time."""
        if choice.pattern is not None:
            compile_pattern(choice.pattern)
        found = job if isinstance(job, JobInfo) else self.job(job)
        source = LogSource(self.http, self.ask, find_error, path_of(found))
        return LogReader(source, choice).read(follow)

    def wait(
        self, job: JobRef, until: Callable[[JobInfo], bool] = lambda job: job.ended, poll_s: float = FOLLOW_S
    ) -> JobInfo:
        """The job once a condition holds; by default, once it has ended."""
        while not until(found := self.job(job)):
            time.sleep(poll_s)
        return found

    def cancel(self, job: JobRef) -> JobInfo:
        """End a job for good."""
        return JobInfo.read(self.ask("POST", path_of(job, "cancel"), json={}))

    def resume(self, job: JobRef) -> JobInfo:
        """Let a paused, cancelled or failed job go on; its secrets are taken from this environment again."""
        return self._go_on(job, "resume")

    def accept(self, job: JobRef, offer: str | None = None) -> JobInfo:
        """Take an open offer."""
        return JobInfo.read(self.ask("POST", path_of(job, "accept"), json={"offer": offer}))

    def devices(self) -> list[DeviceInfo]:
        """The devices, their nodes, and who holds them."""
        return [DeviceInfo.read(one) for one in self.ask("GET", "/api/v1/nodes")["devices"]]

    def nodes(self) -> list[DeviceInfo]:
        """The devices, under the name that `devices` had before."""
        return self.devices()

    def drain(self, node: str, grace: str) -> NodeInfo:
        """Let a node take no more work, and its jobs leave within the grace."""
        return NodeInfo.read(self.ask("POST", f"/api/v1/nodes/{encode(node)}/drain", json={"grace": grace}))

    def undrain(self, node: str) -> NodeInfo:
        """Let a drained node take work again."""
        return NodeInfo.read(self.ask("POST", f"/api/v1/nodes/{encode(node)}/undrain", json={}))

    def server(self) -> ServerInfo:
        """What the server is."""
        return ServerInfo.read(self.ask("GET", "/api/v1/server"))

    def users(self) -> list[UserInfo]:
        """Everyone who has a token."""
        return [UserInfo.read(one) for one in self.ask("GET", "/api/v1/users")["users"]]

    def put_user(self, name: str, **limits: Any) -> UserInfo:
        """Add a user, or change the limits of one; the token of a new one is in the answer, this once."""
        return UserInfo.read(self.ask("PUT", f"/api/v1/users/{encode(name)}", json=limits))

    def drop_user(self, name: str) -> Reply:
        """Take a user's token away."""
        return Reply.read(self.ask("DELETE", f"/api/v1/users/{encode(name)}"))

    def usage(self, by: str = "user", since: str = "7d") -> list[UsageInfo]:
        """What was used in a span up to now, by user, project or job: device-hours, money, promises."""
        found = self.ask("GET", "/api/v1/usage", params={"by": by, "since": since})
        return [UsageInfo.read(one) for one in found["usage"]]

    def projects(self) -> list[ProjectInfo]:
        """Groups of users, with their limits."""
        return [ProjectInfo.read(one) for one in self.ask("GET", "/api/v1/projects")["projects"]]

    def put_project(self, name: str, **limits: Any) -> ProjectInfo:
        """Add a project, or change its limits."""
        return ProjectInfo.read(self.ask("PUT", f"/api/v1/projects/{encode(name)}", json=limits))

    def drop_project(self, name: str) -> Reply:
        """Remove a project that has no users."""
        return Reply.read(self.ask("DELETE", f"/api/v1/projects/{encode(name)}"))

    def notices(self, job: JobRef) -> list[NoticeInfo]:
        """What was told of a job, or is to be."""
        return [NoticeInfo.read(one) for one in self.ask("GET", path_of(job, "notices"))["notices"]]

    def stop(self) -> Reply:
        """End the server and everything it started."""
        return Reply.read(self.ask("POST", "/api/v1/stop", json={}))


def find_secrets(job: JobInfo) -> dict[str, str]:
    """The values that this environment has for the names of a job's secrets."""
    return {name: os.environ[name] for name in job.spec.get("secrets", ()) if name in os.environ}
