"""A server that stands by: it listens, says so, and waits until the lead of its database is free.

It knows nothing of jobs and starts nothing; all that is asked of it is answered with where to go on asking.
"""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from springtide import __version__
from springtide.control.api.entrance.refusals import Message, Receive, Scope, Send, write_error
from springtide.control.storage.database.databases import find_address
from springtide.control.storage.leadership import POLL_S, Leadership
from springtide.errors import StateError

STANDBY = "standby"
SENTENCE = "this server stands by; ask the active one (several addresses: SPRINGTIDE_URL=URL,URL)"
RESTART_S = 2.0  # after a kill the database needs a moment to see that the session has ended


def seek_lead(database: str, url: str, listener: socket.socket | None) -> Leadership:
    """The lead of a database for the server at an address.

    With a `listener` this waits for it, answering there; without one, another server is an error.
    """
    leadership = Leadership(find_address(database), url)
    try:
        if listener is not None:
            with answer_standby(listener):
                leadership.wait()
        elif not leadership.wait(RESTART_S):
            raise StateError(tell_taken(leadership))
    except BaseException:
        leadership.close()
        raise
    return leadership


def tell_taken(leadership: Leadership) -> str:
    """Who serves the database, and what to do."""
    leader = leadership.look()
    who = "another server" if leader is None else f"the server at {leader.url}, last heard {leader.age_s:.0f} s ago,"
    return f"{who} serves this database; stop it, start this one with --standby, or give it a database of its own"


@contextmanager
def answer_standby(listener: socket.socket) -> Iterator[None]:
    """Answer on a listening socket as a standby for as long as the block runs; the socket stays open after it."""
    config = uvicorn.Config(answer, log_config=None, access_log=False, lifespan="off", ws="none")
    config.timeout_graceful_shutdown = 1
    http = uvicorn.Server(config)
    thread = threading.Thread(target=http.run, args=([listener.dup()],), name=STANDBY, daemon=True)
    thread.start()
    try:
        yield
    finally:
        http.should_exit = True
        thread.join(10 * POLL_S)


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """What a standby says: that it is up, that it is not ready, and to everything else that another is."""
    if scope["type"] != "http":
        return
    status, document = 503, {"schema": 1, "status": STANDBY, "version": __version__}
    if scope["path"] == "/healthz":
        status, document = 200, document | {"status": "ok"}
    elif scope["path"] != "/readyz":
        document = write_error(STANDBY, SENTENCE)
    body = json.dumps(document).encode()
    kind = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    start: Message = {"type": "http.response.start", "status": status, "headers": [*kind, (b"connection", b"close")]}
    await send(start)
    await send({"type": "http.response.body", "body": body})
