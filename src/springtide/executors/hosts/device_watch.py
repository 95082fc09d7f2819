"""Looks now and then whether the GPUs of this host are those that it has offered, in a thread: nvidia-smi may hang.

One that fell off the bus, or came back after a reset, is believed when two looks in a row agree. CPU slots do not
change, and are not looked at.
"""

import sys
import threading
from collections import deque
from collections.abc import Callable

from springtide.executors.local.discovery import Device, Discovery

LOOK_S = 15.0


class DeviceWatch:
    """The watch over what was found at first."""

    def __init__(self, first: Discovery, look: Callable[[], Discovery], every_s: float = LOOK_S) -> None:
        self.known = find_gpus(first)
        self.look = look
        self.every_s = every_s
        self.suspected: tuple[Device, ...] | None = None
        self.changes: deque[tuple[Device, ...]] = deque(maxlen=1)
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, name="devices", daemon=True)
        if self.known:
            self.thread.start()

    def run(self) -> None:
        """Look until told to end."""
        while not self.ended.wait(self.every_s):
            try:
                found = self.look()
            except Exception as error:
                print(f"springtide: the devices could not be looked at: {error!r}", file=sys.stderr)
                continue
            if not found.problem:  # a driver that gives no answer has lost no GPU: jobs run on
                self.judge(find_gpus(found))

    def judge(self, seen: tuple[Device, ...]) -> None:
        """Compare what is seen with what is known, and with what was seen at the last look."""
        if seen != self.known and seen == self.suspected:
            self.known = seen
            self.changes.append(seen)
        self.suspected = seen

    def take_change(self) -> tuple[Device, ...] | None:
        """The GPUs that are left, once, if they are others than before."""
        return self.changes.popleft() if self.changes else None

    def close(self) -> None:
        """Look no more; a look that hangs is not waited for."""
        self.ended.set()


def find_gpus(found: Discovery) -> tuple[Device, ...]:
    """The GPUs that were found, whoever uses them now."""
    return tuple(Device(one.name, one.type, one.uuid, one.memory_gib) for one in found.devices if one.uuid)


def describe_change(before: tuple[Device, ...], after: tuple[Device, ...]) -> str:
    """What is different, in words."""
    gone = [one.name for one in before if one not in after]
    new = [one.name for one in after if one not in before]
    changes = [f"nvidia-smi does not list {', '.join(gone)} any more"] if gone else []
    changes += [f"{', '.join(new)} came back"] if new else []
    return f"{' and '.join(changes)}; it joins again with {len(after)} devices"
