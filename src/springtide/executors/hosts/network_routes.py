"""Which address and which interface of this host others reach it by: those of the route to the lead."""

import contextlib
import socket
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Route:
    """This host as seen from another: its address, and the network interface that has it; empty if none says so."""

    address: str
    interface: str

    @property
    def variables(self) -> dict[str, str]:
        """What processes here are told, so that stores and collectives use this network and no other."""
        if not self.interface:
            return {"SPRINGTIDE_ADDRESS": self.address}
        names = dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), self.interface)
        return {"SPRINGTIDE_ADDRESS": self.address, **names}


def find_route(sock: socket.socket) -> Route:
    """The route that a connected socket uses."""
    return find_route_at(str(sock.getsockname()[0]))


def find_route_to(host: str) -> Route:
    """The route to a host, without sending anything there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as unsent:
        unsent.connect((host, 9))
        return find_route(unsent)


def find_route_at(address: str) -> Route:
    """The route by an address of this host."""
    with contextlib.suppress(OSError):
        for name, addresses in psutil.net_if_addrs().items():
            if any(one.address.partition("%")[0] == address for one in addresses):
                return Route(address, name)
    return Route(address, "")
