"""Hosts with networks of their own on this machine: a namespace each, with an address, and a cable that can be pulled.

As root, on Linux with `ip`. Elsewhere hosts share the loopback, and no cable can be pulled.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass

from tests.executors.hosts.loopback_cluster import LoopbackCluster

NET = "10.77.0"


def can_make_networks() -> bool:
    """Whether namespaces can be made here."""
    return os.geteuid() == 0 and shutil.which("ip") is not None


def ip(*words: str) -> None:
    """Change the network."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


@dataclass
class NamespaceCluster(LoopbackCluster):
    """A lead on a bridge, and hosts behind it."""

    address: str = f"{NET}.1"

    def __post_init__(self) -> None:
        self.bridge = f"st{os.getpid() % 100000}"
        self.places: dict[str, int] = {}
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{self.address}/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        super().__post_init__()

    def space_of(self, host: str) -> str:
        """The namespace of a host."""
        return f"{self.bridge}-{host}"

    def enter(self, host: str) -> list[str]:
        """Run on a host, which is made if it is new."""
        if host not in self.places:
            number = self.places[host] = len(self.places) + 2
            space, cable = self.space_of(host), f"{self.bridge}v{number}"
            ip("netns", "add", space)
            ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", cable, "master", self.bridge, "up")
            ip("-n", space, "addr", "add", f"{NET}.{number}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")
        return ["ip", "netns", "exec", self.space_of(host)]

    def pull(self, host: str) -> None:
        """Pull a host's cable: nothing gets through, and nobody is told."""
        ip("link", "set", f"{self.bridge}v{self.places[host]}", "down")

    def plug(self, host: str) -> None:
        """Put it back."""
        ip("link", "set", f"{self.bridge}v{self.places[host]}", "up")

    def close(self) -> None:
        """End all, and leave no network behind."""
        for host in self.places:
            self.plug(host)
        super().close()
        for host in self.places:
            ip("netns", "del", self.space_of(host))
        ip("link", "del", self.bridge)
