"""Uploads of code. A slow upload keeps no other waiting: what is bounded for all is only the unpacking."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from fastapi import FastAPI, Request

from springtide.control.api.api import Api
from springtide.control.api.job_data.user_turns import UserTurns
from springtide.control.api.requests import Hash
from springtide.control.daemon_threads import DaemonThreads
from springtide.control.storage.archives import check_room, find_need, take_upload
from springtide.control.storage.places.stored_code import keep_code
from springtide.core.shared_types import Document
from springtide.errors import MissingError

UPLOADS_OF_EACH = 2  # at a time of one user; each may fill the disk with an archive of the largest size
WRITTEN_AT_ONCE = UNPACKED_AT_ONCE = 8


class UploadDesk:
    """Who may upload now, and the threads in which that is written and unpacked."""

    def __init__(self) -> None:
        self.turns = UserTurns(UPLOADS_OF_EACH, "uploads")
        self.reserved = 0  # bytes of the disk, for uploads under way
        self.writers = DaemonThreads(WRITTEN_AT_ONCE, "uploads")
        self.readers = DaemonThreads(UNPACKED_AT_ONCE, "archives")

    @contextmanager
    def reserve(self, code: Path, need: int) -> Iterator[None]:
        """Hold so many bytes of the disk for an upload, or refuse it. Part of them may be written already: the disk is
        then counted fuller than it is.
        """
        check_room(code, need, self.reserved)
        self.reserved += need
        try:
            yield
        finally:
            self.reserved -= need


def add_archive_routes(app: FastAPI, api: Api) -> None:
    """Archives of working directories, by their content."""
    desk = UploadDesk()

    @app.head("/api/v1/archives/{code_hash}", tags=["archives"])
    @app.get("/api/v1/archives/{code_hash}", tags=["archives"])
    def find_archive(code_hash: Hash) -> Document:
        """Whether an archive is here already."""
        if not (api.context.state_dir.code / code_hash).is_dir():
            raise MissingError(f"archive {code_hash} is not here")
        return {"schema": 1, "archive": code_hash}

    @app.put("/api/v1/archives/{code_hash}", tags=["archives"], status_code=201)
    async def store_archive(request: Request, code_hash: Hash) -> Document:
        """Upload the archive of a working directory: a plain tar, named by its SHA-256."""
        state_dir, limit_bytes = api.context.state_dir, api.context.options.archive_limit_bytes
        async with desk.turns.take(request.state.user):
            told = request.headers.get("content-length")
            need = find_need(None if told is None else int(told), limit_bytes)  # digits, the guard has seen
            with desk.reserve(state_dir.code, need), take_upload(state_dir.code) as upload:
                async for data in request.stream():
                    await desk.writers.run(partial(upload.write, data))
                keep = partial(keep_code, state_dir, code_hash, upload.path)
                await desk.readers.run(partial(upload.unpack, state_dir.code / code_hash, limit_bytes, keep))
        return {"schema": 1, "archive": code_hash}
