"""Several addresses of one platform: requests go to the server that is active, wherever that is now.

A server that stands by, or is not there, is passed over; while none is active, for as long as a take-over may last. A
request whose answer was lost is sent again only if it changes nothing: others are the caller's business.
"""

import time
from collections.abc import Callable

from springtide.client.quick_httpx import httpx
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


class FailoverTransport(httpx.BaseTransport):
    """Sends each request to the first of `addresses` that answers as an active server, and makes that one the first."""

    def __init__(
        self,
        addresses: list[str],
        inner: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.addresses = addresses
        self.inner = inner or httpx.HTTPTransport()
        self.sleep = sleep
        self.rounds = int(TAKE_OVER_S / PAUSE_S)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The answer of the active server; the last failure where there is none for too long."""
        for _ in range(self.rounds):
            for address in list(self.addresses):
                response = self.try_address(request, address)
                if response is not None:
                    self.addresses.sort(key=lambda one: one != address)
                    return response
            self.sleep(PAUSE_S)
        return self.inner.handle_request(aim(request, self.addresses[0]))

    def try_address(self, request: httpx.Request, address: str) -> httpx.Response | None:
        """The answer of one address; None if it is not active there, and nothing was done."""
        try:
            response = self.inner.handle_request(aim(request, address))
        except (httpx.ConnectError, httpx.ConnectTimeout):
            return None
        except httpx.TransportError:
            if request.method != "GET":
                raise
            return None
        return None if is_standby(response) else response

    def close(self) -> None:
        """Hang up."""
        self.inner.close()


def aim(request: httpx.Request, address: str) -> httpx.Request:
    """The same request, to an address."""
    place = httpx.URL(address)
    url = request.url.copy_with(scheme=place.scheme, host=place.host, port=place.port)
    headers = httpx.Headers(request.headers)
    headers["Host"] = place.netloc.decode("ascii")
    timeouts = dict(request.extensions.get("timeout", {}))
    timeouts["connect"] = min(CONNECT_S, timeouts.get("connect") or CONNECT_S)
    extensions = {**request.extensions, "timeout": timeouts}
    return httpx.Request(request.method, url, headers=headers, stream=request.stream, extensions=extensions)


def is_standby(response: httpx.Response) -> bool:
    """Whether a response is that of a server which stands by, or has just lost the lead."""
    if response.status_code != httpx.codes.SERVICE_UNAVAILABLE:
        return False
    response.read()
    try:
        return bool(response.json()["error"]["reason"] == STANDBY)
    except (ValueError, KeyError, TypeError):
        return False
