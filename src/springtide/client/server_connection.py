"""A connection to a server: address, token, requests that may be sent again, and error documents as exceptions."""

import os
import time
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from springtide.client.failover import Failover, split_addresses
from springtide.client.http_connections import Address, ConnectError, HttpCaller, HttpResponse, TransportError
from springtide.client.replies import JobInfo
from springtide.control.storage.state_dir import StateDir, find_home, read_address
from springtide.core.shared_types import Document
from springtide.errors import (
    ConflictError,
    InputError,
    LimitError,
    MissingError,
    ServerError,
    SpringtideError,
    UnavailableError,
    find_kind,
)

PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0)  # before a submission whose answer was lost is sent again
UNAVAILABLE = 503
#: What a status says in itself, whichever reason the server gives.
FAMILIES: dict[int, type[SpringtideError]] = {
    401: ServerError,
    403: ServerError,
    421: ServerError,
    404: MissingError,
    409: ConflictError,
    429: LimitError,
}

#: A job that a server has: its id, its name, the beginning of either, or what the client said of it.
JobRef = str | JobInfo


class ServerConnection:
    """Requests to one server, or to the active one of several."""

    def __init__(self, url: str | None = None, token: str | None = None, home: Path | str | None = None) -> None:
        place = find_home() if home is None else StateDir(Path(home).absolute())
        known = os.environ if home is None else {}  # a home that is given means the server there, and no other
        address = url or known.get("SPRINGTIDE_URL") or (read_address(place) or {}).get("url")
        if address is None:
            raise ServerError(f"no server runs in {place.root}; start one with: springtide serve")
        self.addresses = split_addresses(address)
        transport = Failover(self.addresses) if len(self.addresses) > 1 else Address(self.url)
        secret = token or known.get("SPRINGTIDE_TOKEN") or read_token(place)
        self.http = HttpCaller(transport, {"Authorization": f"Bearer {secret}"})

    @property
    def url(self) -> str:
        """Where the server is; of several addresses that of the one which answered last."""
        return self.addresses[0]

    def close(self) -> None:
        """Hang up."""
        self.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def ask_again(self, path: str, body: Document, key: str) -> Document:
        """Repeat an idempotent request until an answer arrives and the server is available."""
        for pause_s in PAUSES_S:
            try:
                response = self.http.post(path, json=body, headers={"Idempotency-Key": key})
            except ConnectError as error:
                if pause_s == PAUSES_S[0]:
                    raise self._find_no_server(error) from None  # nobody was there at all
            except TransportError:
                pass  # it may have arrived, and only its answer is lost
            else:
                if response.status_code != UNAVAILABLE:
                    return self._read(response)
            time.sleep(pause_s)
        return self.ask("POST", path, json=body, headers={"Idempotency-Key": key})

    def ask(self, method: str, path: str, **options: Any) -> Document:
        """The document that a request is answered with; an error document becomes an exception."""
        return self._read(self.send(method, path, **options))

    def _read(self, response: HttpResponse) -> Document:
        """The document in a response."""
        if response.status_code >= 400:
            raise find_error(response)
        try:
            document: Document = response.json()
        except ValueError:
            raise ServerError(f"the program at {self.url} is not a springtide server: {response.text[:200]}") from None
        return document

    def send(self, method: str, path: str, **options: Any) -> HttpResponse:
        """The response to a request."""
        try:
            return self.http.request(method, path, **options)
        except TransportError as error:
            raise self._find_no_server(error) from None

    def _find_no_server(self, error: Exception) -> ServerError:
        return ServerError(f"no server answers at {self.url} ({error}); start one with: springtide serve")


def encode(text: str) -> str:
    """A text as one part of a path."""
    return quote(text, safe="") or "%20"


def path_of(job: JobRef, part: str = "") -> str:
    """The path of a job, or of a part of it."""
    path = f"/api/v1/jobs/{encode(job if isinstance(job, str) else job.id)}"
    return f"{path}/{part}" if part else path


def read_token(home: StateDir) -> str:
    """The token of a state directory."""
    try:
        return home.token.read_text().strip()
    except OSError:
        raise ServerError(
            f"there is no token in {home.token}; set SPRINGTIDE_TOKEN, or run where the server runs"
        ) from None


def find_error(response: HttpResponse) -> SpringtideError:
    """The exception that an error document stands for: of the family of its status, and there of its reason."""
    try:
        document = response.json()
        sentence, reason = str(document["error"]["sentence"]), str(document["error"]["reason"])
    except (ValueError, KeyError, TypeError):
        document, reason = {"unknown": True}, ""  # a proxy's, which knows nothing of what was done
        sentence = f"the server answered {response.status_code}: {response.text[:200]}"
    if response.status_code == UNAVAILABLE:
        job, array = str(document.get("job") or ""), str(document.get("array") or "")
        return UnavailableError(sentence, bool(document.get("unknown")), job, array)
    if response.status_code >= 500:
        return SpringtideError(sentence)
    return find_kind(reason, FAMILIES.get(response.status_code, InputError))(sentence)
