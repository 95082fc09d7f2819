"""Files that the kernel copies to a client's line: the ASGI extension `http.response.zerocopysend` on uvicorn's lines.

A thread has the kernel copy as much as the line has room for, because the file may have to come from a slow disk; it
never waits for the client. That does the event loop, which therefore holds no thread for clients that are slow.
"""

import asyncio
import errno
import logging
import os
from functools import partial
from typing import cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from springtide.control.api.entrance.refusals import App, Message, Receive, Scope, Send
from springtide.control.daemon_threads import DaemonThreads

ZERO_COPY = "http.response.zerocopysend"
#: What a thread copies before others have their turn.
TURN_BYTES = 16 << 20
#: What a kernel says that does not copy from such a file by itself, and how much is then copied at a time.
UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
PIECE_BYTES = 1 << 20
logger = logging.getLogger("springtide.server")


class Span:
    """So many bytes of a body that h11 is to count and never sees."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count


def offer_kernel_copies(app: App, line: H11Protocol, copiers: DaemonThreads, wait_s: float) -> App:
    """An app whose answers on a line may name a file; a client that takes nothing for so long is hung up on."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        cycle, transport = line.cycle, line.transport

        async def send_any(message: Message) -> None:
            if message["type"] != ZERO_COPY:
                await send(message)
            elif not cycle.disconnected:
                await send_file(cycle, transport, message, copiers, wait_s)
                await send({"type": "http.response.body", "body": b"", "more_body": message.get("more_body", False)})

        scope.setdefault("extensions", {})[ZERO_COPY] = {}
        await app(scope, receive, send_any)

    return answer


async def send_file(
    cycle: RequestResponseCycle, transport: asyncio.Transport, message: Message, copiers: DaemonThreads, wait_s: float
) -> None:
    """Send the part of a file that a message names; hang up where it ends early, or nobody takes it."""
    offset, count = message["offset"], message["count"]
    cycle.conn.send_with_data_passthrough(h11.Data(data=cast(bytes, Span(count))))
    line = os.dup(transport.get_extra_info("socket").fileno())  # asyncio watches its own descriptor, and no other
    try:
        while count and not cycle.disconnected:
            if transport.get_write_buffer_size():  # the head of the answer comes first
                await wait_for_room(line, wait_s)
                continue
            sent = await copiers.run(partial(copy_some, line, message["file"], offset, count))
            offset, count = offset + sent, count - sent
            if count:
                await wait_for_room(line, wait_s)
    except (OSError, EOFError) as error:
        if not isinstance(error, ConnectionError | TimeoutError):  # those are the client's
            logger.warning("a file could not be sent whole: %s", error)
        cycle.disconnected = True
        transport.abort()
    finally:
        os.close(line)


def copy_some(line: int, file: int, offset: int, count: int) -> int:
    """Have the kernel copy what a line has room for; EOFError where the file has no more."""
    sent = 0
    while sent < min(count, TURN_BYTES):
        try:
            copied = copy_once(line, file, offset + sent, min(count - sent, TURN_BYTES))
        except BlockingIOError:
            break
        if not copied:
            raise EOFError(f"the file ends {count - sent} bytes early")
        sent += copied
    return sent


def copy_once(line: int, file: int, offset: int, count: int) -> int:
    """Have the kernel copy once, or by hand where it cannot; how much it was."""
    try:
        return os.sendfile(line, file, offset, count)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
    return os.write(line, os.pread(file, min(count, PIECE_BYTES), offset))


async def wait_for_room(line: int, wait_s: float) -> None:
    """Wait until a line takes more; TimeoutError if it does not."""
    loop = asyncio.get_running_loop()
    room = asyncio.Event()
    loop.add_writer(line, room.set)
    try:
        async with asyncio.timeout(wait_s):
            await room.wait()
    finally:
        loop.remove_writer(line)
