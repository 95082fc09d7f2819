"""Hosts with networks of their own on this machine: a namespace each, with an address, and a cable that can be pulled.

As root, on Linux with `ip`. Elsewhere hosts share the loopback, and no cable can be pulled.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from itertools import cycle

from tests.executors.hosts.loopback_cluster import LoopbackCluster

LETTERS = cycle("abcdefghijklm")


def can_make_networks() -> bool:
    """Whether namespaces can be made here."""
    return os.geteuid() == 0 and shutil.which("ip") is not None


def ip(*words: str) -> str:
    """Look at the network, or change it."""
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


@dataclass
class HostNetwork:
    """A bridge at `NET.1`, and hosts behind it, each in a namespace."""

    net: str
    #: Whether this machine is on the bridge. If not, the bridge has a namespace too, and the net may be any.
    has_this_machine: bool = True
    cables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # A name of its own each time: the kernel takes a while to let go of those of a network that was closed.
        self.bridge = f"st{os.getpid() % 100000}{next(LETTERS)}{'' if self.has_this_machine else 'n'}"
        self.at = () if self.has_this_machine else ("-n", self.bridge)
        if self.at:
            ip("netns", "add", self.bridge)
        ip(*self.at, "link", "add", self.bridge, "type", "bridge")
        ip(*self.at, "addr", "add", f"{self.net}.1/24", "dev", self.bridge)
        ip(*self.at, "link", "set", self.bridge, "up")

    def space_of(self, host: str) -> str:
        """The namespace of a host."""
        return f"{self.bridge}-{host}"

    def add(self, host: str, number: int) -> None:
        """A host at `NET.NUMBER`."""
        space = self.space_of(host)
        cable = self.cables[host] = f"{self.bridge}v{number}"
        ip("netns", "add", space)
        ip(*self.at, "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
        ip(*self.at, "link", "set", cable, "master", self.bridge, "up")
        ip("-n", space, "addr", "add", f"{self.net}.{number}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            ip("-n", space, "link", "set", device, "up")
        # No way further: torch asks for the names of peers, and where packets to a name server vanish each start waits.

    def enter(self, host: str) -> list[str]:
        """The words before a command that is to run on a host."""
        return ["ip", "netns", "exec", self.space_of(host)]

    def pull(self, host: str) -> None:
        """Pull a host's cable: nothing gets through, and nobody is told."""
        ip(*self.at, "link", "set", self.cables[host], "down")

    def plug(self, host: str) -> None:
        """Put it back."""
        ip(*self.at, "link", "set", self.cables[host], "up")

    def part(self, apart: bool = True) -> None:
        """Keep hosts from each other, or no more; each still reaches this machine."""
        for cable in self.cables.values():
            ip(*self.at, "link", "set", cable, "type", "bridge_slave", "isolated", "on" if apart else "off")

    def close(self) -> None:
        """Leave no network behind, and nobody in it."""
        for host in self.cables:
            for pid in map(int, ip("netns", "pids", self.space_of(host)).split()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            ip("netns", "del", self.space_of(host))
        ip(*self.at, "link", "del", self.bridge)
        if self.at:
            ip("netns", "del", self.bridge)


@dataclass
class NamespaceCluster(LoopbackCluster):
    """A lead on a bridge, and hosts behind it."""

    address: str = "10.77.0.1"

    def __post_init__(self) -> None:
        self.network = HostNetwork(self.address.rpartition(".")[0])
        super().__post_init__()

    def enter(self, host: str) -> list[str]:
        """Run on a host, which is made if it is new."""
        if host not in self.network.cables:
            self.network.add(host, len(self.network.cables) + 2)
        return self.network.enter(host)

    def pull(self, host: str) -> None:
        """Pull a host's cable."""
        self.network.pull(host)

    def plug(self, host: str) -> None:
        """Put it back."""
        self.network.plug(host)

    def close(self) -> None:
        """End all, and leave no network behind."""
        for host in self.network.cables:
            self.plug(host)
        super().close()
        self.network.close()
