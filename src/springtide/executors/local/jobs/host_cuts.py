"""Hosts that answer their lead and do not reach each other: their job goes on on one of them. Pure: the clock is an
argument.

Neither host is lost, so nobody takes the job away from there, and every start on both stands still until a collective
gives up. What is told is in `exit_causes.describe_cut`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from springtide.core.durations import show_span
from springtide.executors.local.jobs.places import find_host

#: Ends in a row, the first perhaps after steps, by which hosts are believed to be cut from each other.
ENDS = 2
#: How long the job stays on one host the first time; twice as long after each time that it was in vain to go back.
FIRST_S = 600.0
LONGEST_S = 4 * 3600.0


@dataclass
class HostCut:
    """What one job's ends say of the hosts that it was given."""

    hosts: frozenset[str] = frozenset()
    #: How often in a row its processes have lost each other on these hosts, and made no step in between.
    ends: int = 0
    span_s: float = FIRST_S
    until_s: float = 0.0

    def add_end(self, devices: Sequence[str], has_stepped: bool, now_s: float) -> str:
        """Count an end in which processes on these devices lost each other; what follows, as the end of a sentence."""
        there = frozenset(find_host(device) for device in devices)
        if len(there) < 2:
            return ""
        is_again = self.ends >= ENDS and there <= self.hosts and now_s < self.until_s + self.span_s
        if is_again:
            self.span_s = min(2 * self.span_s, LONGEST_S)
        else:
            self.ends = 1 if has_stepped or there != self.hosts else self.ends + 1
            self.hosts, self.span_s = there, FIRST_S
        if self.ends < ENDS:
            return ""
        self.until_s = now_s + self.span_s
        kept = find_host(self.confine(devices, now_s)[0])
        return f"; it goes on on {kept} alone, and tries the others again after {show_span(self.span_s)}"

    def confine(self, devices: Sequence[str], now_s: float) -> tuple[str, ...]:
        """The devices to use: those of one host, the one with the most, while hosts are believed to be cut."""
        hosts = [find_host(device) for device in devices]
        if self.ends < ENDS or now_s >= self.until_s or not set(hosts) <= self.hosts:
            return tuple(devices)
        kept = max(hosts, key=hosts.count, default="")
        return tuple(device for device, host in zip(devices, hosts, strict=True) if host == kept)
