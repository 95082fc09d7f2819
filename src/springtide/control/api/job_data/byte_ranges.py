"""Parts of files over HTTP: what a Range header asks for, and the answer to it."""

import io
import re
from collections.abc import Iterator
from typing import BinaryIO

from fastapi.responses import StreamingResponse

from springtide.control.api.entrance.refusals import Receive, Scope, Send
from springtide.control.api.job_data.kernel_copies import ZERO_COPY
from springtide.control.daemon_threads import DaemonThreads
from springtide.control.storage.saved_checkpoints import measure
from springtide.errors import InputError

CHUNK_BYTES = 1 << 20
KIND = "application/octet-stream"
RANGE = re.compile(r"bytes=(\d{1,16})-(\d{0,16})")


def find_range(wanted: str | None, size: int, begin: int = 0) -> range:
    """The bytes that a Range header asks for, of those from `begin` to `size`; all of them without one."""
    if wanted is None:
        return range(begin, size)
    match = RANGE.fullmatch(wanted)
    if match is None or int(match[1]) > size:
        raise InputError(f"Range {wanted!r}: give bytes=N- or bytes=N-M with N up to {size}")
    last = min(int(match[2]), size - 1) if match[2] else size - 1
    return range(max(begin, int(match[1])), last + 1)


def send_range(
    readers: DaemonThreads, chunks: Iterator[bytes], part: range, size: int, is_part: bool
) -> StreamingResponse:
    """A response with the part of a text of a size that was asked for, or with all of it."""
    return StreamingResponse(
        readers.step(chunks), 206 if is_part else 200, write_headers(part, size, is_part), media_type=KIND
    )


def write_headers(part: range, size: int, is_part: bool) -> dict[str, str]:
    """What is said of a part of a file before it."""
    headers = {"Content-Length": str(len(part)), "Accept-Ranges": "bytes"}
    if is_part and part:
        headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{size}"
    return headers


class FilePartResponse(StreamingResponse):
    """A response with a part of an open file: copied by the kernel where that can be, else piece by piece."""

    def __init__(self, readers: DaemonThreads, file: BinaryIO, part: range, size: int, is_part: bool) -> None:
        status, headers = 206 if is_part else 200, write_headers(part, size, is_part)
        super().__init__(readers.step(read_chunks(file, part)), status, headers, media_type=KIND)
        self.file = file
        self.part = part

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; an object of a store is not a file that the kernel knows."""
        if ZERO_COPY not in scope.get("extensions", {}) or not isinstance(self.file, io.BufferedReader):
            await super().__call__(scope, receive, send)
            return
        with self.file:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            place = {"file": self.file.fileno(), "offset": self.part.start, "count": len(self.part)}
            await send({"type": ZERO_COPY, **place})


def send_file(readers: DaemonThreads, file: BinaryIO, wanted: str | None) -> FilePartResponse:
    """A response with an open file, or with the part of it that a Range header asks for."""
    size = measure(file)
    try:
        part = find_range(wanted, size)
    except InputError:
        file.close()
        raise
    return FilePartResponse(readers, file, part, size, wanted is not None)


def read_chunks(file: BinaryIO, part: range) -> Iterator[bytes]:
    """A part of an open file, piece by piece."""
    with file:
        file.seek(part.start)
        left = len(part)
        while left and (chunk := file.read(min(CHUNK_BYTES, left))):
            yield chunk
            left -= len(chunk)
