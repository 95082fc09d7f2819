"""The counter of this machine that nobody sets: seconds since boot, sleep included where the system offers that.

Events carry it beside the wall clock's time, so that a wall clock set forward or back makes no event old or new.
"""

import functools
import time
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def read_s() -> float:
    """Seconds since boot."""
    return time.clock_gettime(CLOCK)


@functools.cache
def find_boot() -> str:
    """The name of this boot of this machine, by which counters are told apart."""
    return BOOT_ID.read_text().strip() if BOOT_ID.exists() else "boot"
