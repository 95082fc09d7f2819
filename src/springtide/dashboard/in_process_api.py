"""The API as the pages use it: the same routes as everyone's, called inside this process as the user who looks."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request

from springtide.control.api.entrance.refusals import App, Message, Scope
from springtide.control.storage.records import UserRecord
from springtide.core.shared_types import Document
from springtide.errors import SpringtideError


class ApiRefusal(SpringtideError):
    """What the API refuses: a status, and the sentence it gives."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True, slots=True)
class InProcessApi:
    """The API as one user has it."""

    app: App
    user: UserRecord

    async def get(self, *parts: str, **query: Any) -> Document:
        """The document at a path."""
        return await self.ask("GET", parts, query, None)

    async def post(self, *parts: str, body: Mapping[str, Any], key: str = "") -> Document:
        """The answer to a document that is sent to a path, under an idempotency key if there is one."""
        return await self.ask("POST", parts, {}, body, key)

    async def post_bytes(self, *parts: str, body: Mapping[str, Any]) -> bytes:
        """What a path answers with that is no document, such as a picture."""
        status, data = await self.send("POST", parts, {}, json.dumps(body).encode())
        if status >= 400:
            raise ApiRefusal(status, json.loads(data)["error"]["sentence"])
        return data

    async def ask(
        self,
        method: str,
        parts: tuple[str, ...],
        query: Mapping[str, Any],
        body: Mapping[str, Any] | None,
        key: str = "",
    ) -> Document:
        """The document that a request is answered with; raises ApiRefusal."""
        status, data = await self.send(method, parts, query, b"" if body is None else json.dumps(body).encode(), key)
        document: Document = json.loads(data)
        if status >= 400:
            raise ApiRefusal(status, document["error"]["sentence"])
        return document

    async def send(
        self, method: str, parts: tuple[str, ...], query: Mapping[str, Any], body: bytes, key: str = ""
    ) -> tuple[int, bytes]:
        """Call the application as a server would; returns status and body."""
        headers = [(b"host", b"pages"), (b"content-type", b"application/json")]
        headers += [(b"idempotency-key", key.encode())] if key else []
        path = "/api/v1/" + "/".join(quote(part, safe="") or "%20" for part in parts)
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": "/api/v1/" + "/".join(part or " " for part in parts),
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": urlencode(query, doseq=True).encode(),
            "headers": headers,
            "client": None,
            "server": None,
            "state": {"user": self.user},
        }
        status, parts_read = 500, []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts_read.append(message.get("body", b""))

        await self.app(scope, receive, send)
        return status, b"".join(parts_read)


def open_api(app: App, request: Request) -> InProcessApi:
    """The API as the user has it from whom a request comes."""
    user: UserRecord = request.state.user
    return InProcessApi(app, user)
