"""Parts of files over HTTP: what a Range header asks for, and the answer to it."""

import re
from collections.abc import Iterator
from typing import BinaryIO

from fastapi.responses import StreamingResponse

from springtide.control.storage.saved_checkpoints import measure
from springtide.errors import InputError

CHUNK_BYTES = 1 << 20
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


def send_range(chunks: Iterator[bytes], part: range, size: int, is_part: bool) -> StreamingResponse:
    """A response with the part of a file of a size that was asked for, or with all of it."""
    headers = {"Content-Length": str(len(part)), "Accept-Ranges": "bytes"}
    if is_part and part:
        headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{size}"
    return StreamingResponse(chunks, 206 if is_part else 200, headers, media_type="application/octet-stream")


def send_file(file: BinaryIO, wanted: str | None) -> StreamingResponse:
    """A response with an open file, or with the part of it that a Range header asks for."""
    size = measure(file)
    try:
        part = find_range(wanted, size)
    except InputError:
        file.close()
        raise
    return send_range(read_chunks(file, part), part, size, wanted is not None)


def read_chunks(file: BinaryIO, part: range) -> Iterator[bytes]:
    """A part of an open file, piece by piece."""
    with file:
        file.seek(part.start)
        left = len(part)
        while left and (chunk := file.read(min(CHUNK_BYTES, left))):
            yield chunk
            left -= len(chunk)
