"""Open pages kept up to date by server-sent events: what changes is drawn once for all who look at the same.

A page that is drawn slowly is drawn less often, so that looking costs a bounded part of one processor.
"""

import asyncio
import json
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from springtide.control.api.sessions import Pulse

LOOK_S = 0.1  # between looks at the pulse
EVENT_REST = 15.0  # times as long as a drawing took, nothing is drawn after it
PROGRESS_REST = 40.0
LEAST_EVENT_REST_S = 0.3
MOST_EVENT_REST_S = 0.75  # so that an event is seen within a second
LEAST_PROGRESS_REST_S = 2.0
MOST_REST_S = 10.0  # the line of now moves by itself
BEAT_S = 15.0
ASK_S = 2.0  # between looks at whether a reader may still read
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
                await self.rest(seen, time.monotonic() - started_s)
                if not channel.listeners:
                    return
        finally:
            self.channels.pop(key, None)
            channel.wake()  # the server ends

    async def rest(self, seen: tuple[int, int], spent_s: float) -> None:
        """Wait until it is worth drawing again: soon after an event, later where only steps were counted."""
        began_s = time.monotonic()
        soon_s = min(MOST_EVENT_REST_S, max(LEAST_EVENT_REST_S, EVENT_REST * spent_s))
        later_s = max(LEAST_PROGRESS_REST_S, PROGRESS_REST * spent_s)
        while (rested_s := time.monotonic() - began_s) < max(MOST_REST_S, later_s):
            await asyncio.sleep(LOOK_S)
            version, happened = self.pulse.read()
            if self.pulse.is_ending() or (happened != seen[1] and rested_s >= soon_s):
                return
            if version != seen[0] and rested_s >= later_s:
                return


def encode(kind: str, data: str) -> bytes:
    """A server-sent event; the data is one line."""
    return f"event: {kind}\ndata: {data}\n\n".encode()
