"""Requests that do not pass, and how that is told: as a document, or as the place where a reader of pages goes on."""

import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from math import ceil
from typing import Any

from springtide.control.scheduling.loop.calls import UNDONE
from springtide.control.scheduling.loop.health import show_safely
from springtide.control.storage.database.databases import is_unavailable

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

FAILED = 500
logger = logging.getLogger("springtide.control")


class Refused(Exception):
    """A request that does not pass: status, reason code, sentence, and when to try again.

    A reader of pages is sent to another place instead.
    """

    def __init__(
        self, status: int, reason: str, sentence: str, wait_s: float = 0.0, place: str = "", is_part: bool = False
    ) -> None:
        super().__init__(sentence)
        self.place = place
        self.is_part = is_part
        self.status = status
        self.reason = reason
        self.sentence = sentence
        self.wait_s = wait_s

    @property
    def headers(self) -> dict[str, str]:
        """What stands beside the sentence."""
        headers = {"www-authenticate": "Bearer"} if self.status == 401 else {}
        headers |= {"retry-after": str(ceil(self.wait_s))} if self.wait_s else {}
        # what is left of a body that is not wanted would be taken for the next request
        return headers | ({"connection": "close"} if self.status in (408, 413) else {})


def tell_failure(error: Exception) -> Refused:
    """The answer where something of ours went wrong; what it was is in the log, under the number that is told."""
    if is_unavailable(error):  # before anything of the request was done
        return Refused(503, "unavailable", f"{show_safely(error)}; {UNDONE}", wait_s=1.0)
    number = secrets.token_hex(4)
    logger.error("a request failed; its number is %s", number, exc_info=error)
    sentence = f"something went wrong in the server, not in your request; its log has more under {number}"
    return Refused(FAILED, "internal", sentence)


async def answer(send: Send, refused: Refused) -> None:
    """Send a refusal as an error document, or who reads pages to the place where they may go on."""
    if refused.place:
        # A redirection of a part would be followed by the browser, and put a whole page into the middle of this one.
        status, header = (refused.status, b"hx-redirect") if refused.is_part else (303, b"location")
        place = [(header, refused.place.encode()), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": status, "headers": place})
        await send({"type": "http.response.body", "body": b""})
        return
    body = json.dumps(write_error(refused.reason, refused.sentence)).encode()
    await send_whole(send, refused.status, {"content-type": "application/json", **refused.headers}, body)


async def send_whole(send: Send, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Send an answer that is there as a whole."""
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    raw.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def write_error(reason: str, sentence: str) -> dict[str, Any]:
    """The document of an error."""
    return {"schema": 1, "error": {"reason": reason, "sentence": sentence}}
