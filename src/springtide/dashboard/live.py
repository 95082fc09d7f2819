"""Open pages kept up to date by server-sent events: what changes is drawn once for all who look at the same.

A page that is drawn slowly is drawn less often, and so are those of who has many open, so that looking costs a bounded
part of one processor. Nobody has more than so many open at a time, and all streams together leave lines to who asks.
"""

import asyncio
import json
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from fastapi.responses import StreamingResponse

from springtide.control.api.entrance.refusals import Receive, Refused, Scope, Send
from springtide.control.api.entrance.sessions import Pulse
from springtide.control.storage.records import UserRecord

LOOK_S = 0.1  # between looks at the pulse
EVENT_REST = 15.0  # times as long as a drawing took, nothing is drawn after it
PROGRESS_REST = 40.0
LEAST_EVENT_REST_S = 0.3
MOST_EVENT_REST_S = 0.75  # so that an event is seen within a second
LEAST_PROGRESS_REST_S = 2.0
MOST_REST_S = 10.0  # the line of now moves by itself
BEAT_S = 15.0
ASK_S = 2.0  # between looks at whether a reader may still read
MOST_STREAMS = 16  # of one user
AGAIN_S = 10.0
DRAWN_REST = 4.0  # times as long as its drawing took, each of the pages that one user has open rests for all of them
PACK_LEVEL = 4

HEADER = b"\x1f\x8b\x08" + bytes(6) + b"\xff"  # of gzip: deflate, no name, no time, an unknown system


def pack(message: bytes) -> bytes:
    """A piece of a gzip stream that depends on no other: made once, it can go to every reader, whatever came before."""
    packer = zlib.compressobj(PACK_LEVEL, wbits=-zlib.MAX_WBITS)
    return packer.compress(message) + packer.flush(zlib.Z_FULL_FLUSH)


HELLO, BEAT, ENDED = b": hello\nretry: 1000\n\n", b": beat\n\n", b"event: ended\ndata: {}\n\n"
HELLO_PACKED, BEAT_PACKED, ENDED_PACKED = pack(HELLO), pack(BEAT), pack(ENDED)

#: What draws a page: the parts that move, by the id of their element.
Draw = Callable[[], Awaitable[dict[str, str]]]


@dataclass(slots=True)
class LiveChannel:
    """The newest drawing of something, and how many look."""

    listeners: int = 0
    number: int = 0
    message: bytes = b""
    packed: bytes = b""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def publish(self, message: bytes) -> None:
        """Send what is not the same as before."""
        if message != self.message:
            self.message, self.packed, self.number = message, pack(message), self.number + 1
            self.wake()

    def wake(self) -> None:
        """Have all who wait look again."""
        self.changed.set()
        self.changed = asyncio.Event()


@dataclass(slots=True)
class Hub:
    """The channels of one server; each is drawn while somebody looks."""

    pulse: Pulse
    channels: dict[tuple[str, ...], LiveChannel] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    #: How many streams are open, by the ids of those who read them.
    readers: Counter[str] = field(default_factory=Counter)

    def admit(self, user: UserRecord) -> None:
        """Count a stream of a user from now on; raises Refused if too many are open."""
        if self.readers[user.id] >= MOST_STREAMS:
            sentence = f"{MOST_STREAMS} pages of user {user.name} are kept up to date, as many as may be; close one"
            raise Refused(429, "limit", sentence, wait_s=AGAIN_S)
        if self.readers.total() >= self.pulse.most_readers:
            sentence = f"{self.pulse.most_readers} pages are kept up to date, as many as may be; try again later"
            raise Refused(503, "busy", sentence, wait_s=AGAIN_S)
        self.readers[user.id] += 1

    def leave(self, user: UserRecord) -> None:
        """A stream of a user has ended."""
        self.readers[user.id] -= 1
        if not self.readers[user.id]:
            del self.readers[user.id]

    async def watch(
        self, key: tuple[str, ...], draw: Draw, is_welcome: Callable[[], bool], packed: bool = False
    ) -> AsyncIterator[bytes]:
        """The events of a channel, until the reader leaves or may read no more, or the server ends.

        They are packed where that was asked. Nothing is sent to a reader who has signed out since; their page is told
        that this is the end.
        """
        channel = self.channels.get(key)
        if channel is None:
            channel = self.channels[key] = LiveChannel()
            task = asyncio.create_task(self.draw_on(key, channel, draw))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        channel.listeners += 1
        seen, beat_s = 0, time.monotonic()
        try:
            yield HEADER + HELLO_PACKED if packed else HELLO
            while not self.pulse.is_ending():
                waiting = channel.changed
                if not is_welcome():
                    yield ENDED_PACKED if packed else ENDED
                    return
                if channel.number > seen:
                    seen = channel.number
                    yield channel.packed if packed else channel.message
                    continue
                try:
                    await asyncio.wait_for(waiting.wait(), ASK_S)
                except TimeoutError:
                    if time.monotonic() - beat_s >= BEAT_S:
                        beat_s = time.monotonic()
                        yield BEAT_PACKED if packed else BEAT
        finally:
            channel.listeners -= 1

    async def draw_on(self, key: tuple[str, ...], channel: LiveChannel, draw: Draw) -> None:
        """Draw a channel whenever something has happened, for as long as somebody looks."""
        try:
            while not self.pulse.is_ending():
                seen, started_s = self.pulse.read(), time.monotonic()
                channel.publish(encode("page", json.dumps(await draw())))
                beside = sum(other[0] == key[0] for other in self.channels)
                await self.rest(seen, time.monotonic() - started_s, beside)
                if not channel.listeners:
                    return
        finally:
            self.channels.pop(key, None)
            channel.wake()  # the server ends

    async def rest(self, seen: tuple[int, int], spent_s: float, count: int) -> None:
        """Wait until it is worth drawing again: soon after an event, later where only steps were counted.

        The so many channels of one user are drawn in a fifth of the time together, however slow each is.
        """
        began_s = time.monotonic()
        soon_s = min(MOST_EVENT_REST_S, max(LEAST_EVENT_REST_S, EVENT_REST * spent_s))
        soon_s = max(soon_s, DRAWN_REST * count * spent_s)
        later_s = max(soon_s, LEAST_PROGRESS_REST_S, PROGRESS_REST * spent_s)
        while (rested_s := time.monotonic() - began_s) < max(MOST_REST_S, later_s):
            await asyncio.sleep(LOOK_S)
            version, happened = self.pulse.read()
            if self.pulse.is_ending() or (happened != seen[1] and rested_s >= soon_s):
                return
            if version != seen[0] and rested_s >= later_s:
                return


class EventStream(StreamingResponse):
    """The answer that is a stream; its end is told, however it comes."""

    def __init__(self, events: AsyncIterator[bytes], headers: dict[str, str], on_end: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self.on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until it is over."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.on_end()


def encode(kind: str, data: str) -> bytes:
    """A server-sent event; the data is one line."""
    return f"event: {kind}\ndata: {data}\n\n".encode()
