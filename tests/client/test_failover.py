"""Several addresses: the active server is found, and nothing that changes something is sent twice."""

import json

import httpx
import pytest

from springtide.client.failover import FailoverTransport, split_addresses
from springtide.errors import InputError

STANDBY = json.dumps({"error": {"reason": "standby", "sentence": "this server stands by"}})


class Platform(httpx.BaseTransport):
    """Two servers, `a` and `b`; what each does by its name: active, standby, gone, or lost (an answer that is lost)."""

    def __init__(self, **states: str) -> None:
        self.states = states
        self.asked: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        name = request.url.host
        assert request.headers["host"] == f"{name}:{request.url.port}"
        self.asked.append(name)
        state = self.states[name]
        if state == "gone":
            raise httpx.ConnectError("refused")
        if state == "lost":
            raise httpx.ReadError("reset")
        return httpx.Response(503, text=STANDBY) if state == "standby" else httpx.Response(200, text=name)


def connect(platform: Platform) -> tuple[httpx.Client, list[str]]:
    addresses = split_addresses("http://a:1, http://b:2/")
    transport = FailoverTransport(addresses, platform, lambda seconds: platform.states.update(b="active"))
    return httpx.Client(base_url=addresses[0], transport=transport), addresses


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
    with pytest.raises(httpx.ReadError):
        http.post("/jobs")
    assert platform.asked == ["a"]
    assert http.get("/jobs").text == "b"


@pytest.mark.parametrize("text", ["", " , ", "a:1,http://b:2"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="SPRINGTIDE_URL"):
        split_addresses(text)
