"""`springtide.Client`: the verbs of the command line as methods, over HTTP.

Finds the server of the state directory by itself; every method returns the JSON document of the API as a dict.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from springtide.control.storage.archives import LIMIT_BYTES, Archive, pack
from springtide.control.storage.state_dir import StateDir, find_home, read_address
from springtide.core.job_file import JobFile, check_job, read_job_file
from springtide.errors import ArchiveError, InputError, JobError, ServerError, SpringtideError

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Project:
    """A job with the absolute folder of its code, and the file it came from."""

    job: JobFile
    workdir: Path
    file: Path | None = None

    def pack(self, limit_bytes: int = LIMIT_BYTES) -> Archive:
        """The archive of the code."""
        return pack(self.workdir, limit_bytes, self.file)


FOLLOW_S = 0.3
RENT_LOOKS = 3
PAGE_EVENTS = 1000
ENDED = frozenset({"declined", "succeeded", "failed", "cancelled"})


class Client:
    """A line to one server. Without arguments: the server of `$SPRINGTIDE_HOME`, with its token."""

    def __init__(self, url: str | None = None, token: str | None = None, home: Path | str | None = None) -> None:
        place = find_home() if home is None else StateDir(Path(home).absolute())
        address = url or os.environ.get("SPRINGTIDE_URL") or (read_address(place) or {}).get("url")
        if address is None:
            raise ServerError(f"no server runs in {place.root}; start one with: springtide serve")
        self.url = address
        secret = token or os.environ.get("SPRINGTIDE_TOKEN") or read_token(place)
        self.http = httpx.Client(base_url=address, headers={"Authorization": f"Bearer {secret}"}, timeout=60.0)

    def close(self) -> None:
        """Hang up."""
        self.http.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def submit(
        self,
        job: Project | JobFile | Path | str | Document,
        accept_offer: bool = False,
        wait: bool = True,
        tell: Callable[[Document], None] = lambda document: None,
    ) -> Document:
        """Ask for a promise; with `wait`, follows a probe until the answer is there. `tell` hears of the probe."""
        project = load_job(job)
        body = {
            "job": project.job.model_dump(mode="json", exclude_defaults=True),
            "archive": self.upload(self.pack(project)),
            "secrets": read_secrets(project.job),
            "accept_offer": accept_offer,
        }
        answer = self.ask("POST", "/api/v1/jobs", json=body)
        if not wait:
            return answer
        if answer["state"] == "probing":
            tell(answer)
            answer = self.wait(answer["id"], lambda document: document["state"] != "probing")
        return self.follow_rent(answer)

    def follow_rent(self, document: Document) -> Document:
        """The same job with what renting would cost it, if that is found soon; the server holds each look a while."""
        for _ in range(RENT_LOOKS):
            if (document.get("rent") or {}).get("state") != "working":
                break
            document = self.job(document["id"])
        return document

    def plan(self, job: Project | JobFile | Path | str | Document, probe: bool = False) -> Document:
        """What a submission would be told now; with `probe`, unknown code is measured first, if a device is free."""
        project = load_job(job)
        told = project.job.model_dump(mode="json", exclude_defaults=True)
        body = {"job": told, "archive": self.upload(self.pack(project))}
        wish = {"probe": True, "secrets": read_secrets(project.job)} if probe else {}
        answer = self.ask("POST", "/api/v1/plan", json=body | wish)
        if not answer["probe"]:
            return answer
        measured = self.wait(answer["probe"], lambda document: document["state"] != "probing")
        if measured["state"] == "waitlisted":
            self.cancel(measured["id"])
            return answer | {"sentence": f"{answer['sentence']}; but now {measured['sentence']}"}
        if measured["state"] == "failed":
            raise JobError(f"the probe failed: {measured['sentence']}")
        return self.ask("POST", "/api/v1/plan", json=body)

    def pack(self, project: Project) -> Archive:
        """The archive of a project; one above the usual limit, if this server takes it."""
        try:
            return project.pack(LIMIT_BYTES)
        except ArchiveError:
            limit_bytes = int(self.server()["archive_limit_bytes"])
            if limit_bytes <= LIMIT_BYTES:
                raise
        return project.pack(limit_bytes)

    def upload(self, archive: Archive) -> str:
        """Make sure the server has an archive; returns its hash."""
        path = f"/api/v1/archives/{archive.code_hash}"
        if self.send("GET", path).status_code == 404:
            self.ask("PUT", path, content=archive.data, headers={"Content-Type": "application/x-tar"})
        return archive.code_hash

    def jobs(self, all: bool = False, limit: int = 100) -> list[Document]:
        """Jobs, newest first: the active ones, or with `all` the ended ones too."""
        states = [] if all else ["probing", "waitlisted", "offered", "admitted", "running", "paused"]
        found: list[Document] = self.ask("GET", "/api/v1/jobs", params={"state": states, "limit": limit})["jobs"]
        return found

    def job(self, ref: str) -> Document:
        """One job."""
        return self.ask("GET", f"/api/v1/jobs/{quote(ref)}")

    def why(self, ref: str) -> Document:
        """Why a job is where it is."""
        return self.ask("GET", f"/api/v1/jobs/{quote(ref)}/why")

    def events(self, ref: str | None = None, after: int = 0) -> list[Document]:
        """What happened to a job, or to all, after the event of a number."""
        path = "/api/v1/events" if ref is None else f"/api/v1/jobs/{quote(ref)}/events"
        found: list[Document] = []
        while page := self.ask("GET", path, params={"after": after, "limit": PAGE_EVENTS})["events"]:
            found += page
            after = page[-1]["seq"]
            if len(page) < PAGE_EVENTS:
                break
        return found

    def metrics(self, ref: str, after_step: int = 0) -> list[Document]:
        """What `run.log` recorded."""
        path = f"/api/v1/jobs/{quote(ref)}/metrics"
        found: list[Document] = self.ask("GET", path, params={"after_step": after_step})["metrics"]
        return found

    def logs(
        self,
        ref: str,
        rank: int = 0,
        follow: bool = False,
        tail: int | None = None,
        each: Callable[[], None] | None = None,
    ) -> Iterator[str]:
        """Pieces of a rank's log; with `follow`, until the job has ended. `each` is called at every look."""
        path, offset = f"/api/v1/jobs/{quote(self.job(ref)['id'])}/logs", 0
        while True:
            chosen: Document = {"rank": rank, "offset": offset} | ({"tail": tail} if tail is not None else {})
            page = self.ask("GET", path, params=chosen)
            tail, offset = None, page["next_offset"]
            if each is not None:
                each()
            if page["text"]:
                yield page["text"]
            elif page["ended"] or not follow:
                return
            else:
                time.sleep(FOLLOW_S)

    def wait(self, ref: str, until: Callable[[Document], bool] | None = None, poll_s: float = FOLLOW_S) -> Document:
        """The job once a condition holds; by default, once it has ended."""
        holds = until or (lambda document: document["state"] in ENDED)
        while not holds(document := self.job(ref)):
            time.sleep(poll_s)
        return document

    def cancel(self, ref: str) -> Document:
        """End a job for good."""
        return self.ask("POST", f"/api/v1/jobs/{quote(ref)}/cancel", json={})

    def resume(self, ref: str) -> Document:
        """Let a paused, cancelled or failed job go on; its secrets are taken from this environment again."""
        found = self.job(ref)
        secrets = {name: os.environ[name] for name in found["spec"].get("secrets", ()) if name in os.environ}
        return self.ask("POST", f"/api/v1/jobs/{quote(found['id'])}/resume", json={"secrets": secrets})

    def accept(self, ref: str, offer: str | None = None) -> Document:
        """Take an open offer."""
        return self.ask("POST", f"/api/v1/jobs/{quote(ref)}/accept", json={"offer": offer})

    def nodes(self) -> list[Document]:
        """The devices, and who holds them."""
        found: list[Document] = self.ask("GET", "/api/v1/nodes")["devices"]
        return found

    def drain(self, node: str, grace: str) -> Document:
        """Let a node take no more work, and its jobs leave within the grace."""
        return self.ask("POST", f"/api/v1/nodes/{quote(node)}/drain", json={"grace": grace})

    def undrain(self, node: str) -> Document:
        """Let a drained node take work again."""
        return self.ask("POST", f"/api/v1/nodes/{quote(node)}/undrain", json={})

    def server(self) -> Document:
        """What the server is."""
        return self.ask("GET", "/api/v1/server")

    def users(self) -> list[Document]:
        """Everyone who has a token."""
        found: list[Document] = self.ask("GET", "/api/v1/users")["users"]
        return found

    def put_user(self, name: str, **limits: Any) -> Document:
        """Add a user, or change the limits of one; the token of a new one is in the answer, this once."""
        return self.ask("PUT", f"/api/v1/users/{quote(name)}", json=limits)

    def drop_user(self, name: str) -> Document:
        """Take a user's token away."""
        return self.ask("DELETE", f"/api/v1/users/{quote(name)}")

    def stop(self) -> Document:
        """End the server and everything it started."""
        return self.ask("POST", "/api/v1/stop", json={})

    def ask(self, method: str, path: str, **options: Any) -> Document:
        """The document that a request is answered with; an error document becomes an exception."""
        response = self.send(method, path, **options)
        if response.status_code >= 400:
            raise find_error(response)
        document: Document = response.json()
        return document

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """The response to a request."""
        try:
            return self.http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise ServerError(f"no server answers at {self.url} ({error}); start one with: springtide serve") from None


def quote(text: str) -> str:
    """A text as one part of a path."""
    from urllib.parse import quote as encode

    return encode(text, safe="") or "%20"


def read_token(home: StateDir) -> str:
    """The token of a state directory."""
    try:
        return home.token.read_text().strip()
    except OSError:
        raise ServerError(
            f"there is no token in {home.token}; set SPRINGTIDE_TOKEN, or run where the server runs"
        ) from None


def find_error(response: httpx.Response) -> SpringtideError:
    """The exception that an error document stands for."""
    try:
        sentence = str(response.json()["error"]["sentence"])
    except (ValueError, KeyError, TypeError):
        sentence = f"the server answered {response.status_code}: {response.text[:200]}"
    if response.status_code in (401, 403, 421):
        return ServerError(sentence)
    return SpringtideError(sentence) if response.status_code >= 500 else InputError(sentence)


def load_job(job: Project | JobFile | Path | str | Document, **changes: Any) -> Project:
    """A job and its code; a relative `workdir` counts from the job file, or from here. `changes` win unless None."""
    if isinstance(job, Project):
        return job
    if isinstance(job, Path | str):
        path = Path(job).resolve()
        file, base = read_job_file(Path(job)), path.parent
    else:
        path, file, base = None, check_job(job, "job") if isinstance(job, dict) else job, Path.cwd()
    told = {key: value for key, value in changes.items() if value is not None}
    if told:
        file = check_job(file.model_dump(exclude_defaults=True) | told, str(job))
    return Project(file, (base / file.workdir).resolve(), path)


def read_secrets(file: JobFile) -> dict[str, str]:
    """The values of a job's secrets, from this process's environment."""
    missing = [name for name in file.secrets if name not in os.environ]
    if missing:
        raise JobError(f"secret {missing[0]} is not set in your environment; export it, then submit again")
    return {name: os.environ[name] for name in file.secrets}
