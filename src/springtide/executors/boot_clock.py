"""The counter of this machine that nobody sets: seconds since boot, sleep included where the system offers that.

Events carry it beside the wall clock's time, so that a wall clock set forward or back makes no event old or new.
"""

import time

CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def read_s() -> float:
    """Seconds since boot."""
    return time.clock_gettime(CLOCK)
