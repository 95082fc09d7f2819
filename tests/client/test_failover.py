"""Several addresses: the active server is found, and nothing that changes something is sent twice."""

import json
from http.client import HTTPMessage

import pytest

from springtide.client.failover import Failover, split_addresses
from springtide.client.http_connections import ConnectError, HttpCaller, HttpRequest, HttpResponse, TransportError
from springtide.errors import InputError

STANDBY = json.dumps({"error": {"reason": "standby", "sentence": "this server stands by"}}).encode()


class Platform:
    """Two servers, `a` and `b`; what each does by its name: active, standby, gone, or lost (an answer that is lost)."""

    def __init__(self, **states: str) -> None:
        self.states = states
        self.asked: list[str] = []


class OneServer:
    """A server of a platform."""

    def __init__(self, platform: Platform, name: str) -> None:
        self.platform = platform
        self.name = name

    def send(self, request: HttpRequest) -> HttpResponse:
        self.platform.asked.append(self.name)
        state = self.platform.states[self.name]
        if state == "gone":
            raise ConnectError("refused")
        if state == "lost":
            raise TransportError("reset")
        if state == "standby":
            return HttpResponse(503, HTTPMessage(), [STANDBY])
        return HttpResponse(200, HTTPMessage(), [self.name.encode()])

    def close(self) -> None:
        pass


def connect(platform: Platform) -> tuple[HttpCaller, list[str]]:
    addresses = split_addresses("http://a:1, http://b:2/")
    servers = {"http://a:1": OneServer(platform, "a"), "http://b:2": OneServer(platform, "b")}
    transport = Failover(addresses, lambda one: servers[one], lambda seconds: platform.states.update(b="active"))
    return HttpCaller(transport, {}), addresses


@pytest.mark.parametrize("first", ["standby", "gone"])
def test_the_active_one_is_asked_and_from_then_on_first(first: str) -> None:
    platform = Platform(a=first, b="active")
    http, addresses = connect(platform)
    assert http.post("/jobs", json={"x": 1}).text == "b"
    assert http.get("/jobs").text == "b"
    assert platform.asked == ["a", "b", "b"] and addresses[0] == "http://b:2"


def test_a_take_over_is_waited_for() -> None:
    platform = Platform(a="gone", b="standby")
    http, _ = connect(platform)
    assert http.get("/jobs").text == "b"
    assert platform.asked == ["a", "b", "a", "b"]


def test_a_change_whose_answer_was_lost_is_not_sent_again() -> None:
    platform = Platform(a="lost", b="active")
    http, _ = connect(platform)
    with pytest.raises(TransportError):
        http.post("/jobs")
    assert platform.asked == ["a"]
    assert http.get("/jobs").text == "b"


@pytest.mark.parametrize("text", ["", " , ", "a:1,http://b:2"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="SPRINGTIDE_URL"):
        split_addresses(text)
