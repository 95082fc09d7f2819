"""Several addresses of one platform: requests go to the server that is active, wherever that is now.

A server that stands by, or is not there, is passed over; while none is active, for as long as a take-over may last. A
request whose answer was lost is sent again only if it changes nothing: others are the caller's business.
"""

import time
from collections.abc import Callable
from http import HTTPStatus

from springtide.client.http_connections import (
    Address,
    ConnectError,
    HttpRequest,
    HttpResponse,
    Transport,
    TransportError,
)
from springtide.errors import InputError

TAKE_OVER_S = 20.0
PAUSE_S = 0.5
CONNECT_S = 3.0  # an address that drops what is sent to it must not hold up the others
STANDBY = "standby"


def split_addresses(text: str) -> list[str]:
    """The addresses in `URL,URL`."""
    found = [one.strip().rstrip("/") for one in text.split(",") if one.strip()]
    if not found:
        raise InputError(f"{text!r} names no server; give SPRINGTIDE_URL=http://HOST:PORT, or several with commas")
    for one in found:
        if not one.startswith(("http://", "https://")):
            raise InputError(
                f"address {one!r} of a server must begin with http:// or https:// (SPRINGTIDE_URL=URL,URL)"
            )
    return found


class Failover:
    """Sends each request to the first of `addresses` that answers as an active server, and makes that one the first."""

    def __init__(
        self,
        addresses: list[str],
        reach: Callable[[str], Transport] = lambda address: Address(address, CONNECT_S),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.addresses = addresses
        self.servers = {address: reach(address) for address in addresses}
        self.sleep = sleep
        self.rounds = int(TAKE_OVER_S / PAUSE_S)

    def send(self, request: HttpRequest) -> HttpResponse:
        """The answer of the active server; the last failure where there is none for too long."""
        for _ in range(self.rounds):
            for address in list(self.addresses):
                response = self.try_address(request, address)
                if response is not None:
                    self.addresses.sort(key=lambda one: one != address)
                    return response
            self.sleep(PAUSE_S)
        return self.servers[self.addresses[0]].send(request)

    def try_address(self, request: HttpRequest, address: str) -> HttpResponse | None:
        """The answer of one address; None if it is not active there, and nothing was done."""
        try:
            response = self.servers[address].send(request)
        except ConnectError:
            return None
        except TransportError:
            if request.method != "GET":
                raise
            return None
        if not is_standby(response):
            return response
        response.close()
        return None

    def close(self) -> None:
        """Hang up."""
        for server in self.servers.values():
            server.close()


def is_standby(response: HttpResponse) -> bool:
    """Whether a response is that of a server which stands by, or has just lost the lead."""
    if response.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
        return False
    try:
        return bool(response.json()["error"]["reason"] == STANDBY)
    except (ValueError, KeyError, TypeError):
        return False
