"""The platform's time: seconds since 1970 that never go back and never jump while the machine stays up.

The wall clock is read once per boot of the machine, as an anchor; from then on time passes with the monotonic clock.
A wall clock that is set forward or back (by hand, by NTP) moves no deadline. The anchor is stored: a restarted server
continues the same time line. Where servers on several machines take over from one another, the wall clock is that of
the database which they share.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from springtide.executors import boot_clock


class ClockSource(Protocol):
    """Where time comes from: the wall, a steady counter, and what names the counter's origin."""

    def wall_s(self) -> float:
        """Seconds since 1970 by the wall clock, which may be set."""

    def steady_s(self) -> float:
        """Seconds of a counter that only runs forward, as long as `origin` is the same."""

    def origin(self) -> str:
        """The name of the counter's origin: another after a reboot."""


class SystemClocks:
    """This machine's clocks; the counter includes sleep where the system offers that."""

    def wall_s(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def steady_s(self) -> float:
        """Seconds since boot."""
        return boot_clock.read_s()

    def origin(self) -> str:
        """The boot."""
        return boot_clock.find_boot()


class SharedClocks(SystemClocks):
    """This machine's counter, and in place of its wall clock one that all servers of a database read."""

    def __init__(self, read_wall_s: Callable[[], float]) -> None:
        self.read_wall_s = read_wall_s

    def wall_s(self) -> float:
        """Seconds since 1970, by the database."""
        return self.read_wall_s()


@dataclass(frozen=True, slots=True)
class Anchor:
    """A moment on both clocks: time was `at_s` when the counter of `origin` stood at `steady_s`."""

    at_s: float
    steady_s: float
    origin: str


class Clock:
    """Platform time from an anchor: at + (steady now - steady then)."""

    def __init__(self, source: ClockSource, anchor: Anchor | None = None, not_before_s: float = 0.0) -> None:
        self.source = source
        same_boot = anchor is not None and anchor.origin == source.origin() and anchor.steady_s <= source.steady_s()
        if anchor is None or not same_boot:
            anchor = Anchor(max(source.wall_s(), not_before_s), source.steady_s(), source.origin())
        self.anchor = anchor

    def now_s(self) -> float:
        """Seconds since 1970 on the platform's time line."""
        return self.anchor.at_s + self.source.steady_s() - self.anchor.steady_s
