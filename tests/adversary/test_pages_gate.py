"""Fuzzers of the pages: every route that a browser has, with forms, cookies and headers that are nearly right.

The routes are the application's own, so a new page is tried without being named here. None may be answered with a 5xx.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import quote, quote_plus, urlencode, urlsplit

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from tests.adversary.nights import SEED, Record, count, report
from tests.adversary.test_gates import UNLIMITED
from tests.control.http_servers import OPTIONS, SLOW, connect, run_server, write_project

from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.server import Server
from springtide.dashboard.pages import add_pages

pytestmark = [pytest.mark.adversary, pytest.mark.timeout(900)]
FORM = "application/x-www-form-urlencoded"
WORDS = (
    *(
        "",
        "0",
        "-1",
        "9" * 30,
        "x",
        "a" * 5000,
        "\u00e9",
        "\U0001f30a",
        "\x00",
        "\r\n",
        "<b>",
        "'\"",
        "{{7*7}}",
        "../..",
    ),
    *("http://[", "//[::1", "//evil.example", "javascript:x", "\x7f", "%", "%ff", "&amp;", "1..2", "NaN", "1e400"),
    *("run: python train.py", "run: [", "a: &a [*a]", "run: x\ndeadline: 1h", "run: x\nsweep: {grid: {a: [1]}}"),
)
RAW = (b"%ff", b"%", b"\xff\xfe", b"=", b"&&&", b"a=%00", b"a=\xed\xa0\x80", b";", b"a" * 3000, b"%u1234")
FIELDS = (
    *("base", "file", "deadline", "devices", "steps", "budget", "attempt", "offer", "grace", "next", "token", "job"),
    *("find", "group", "owner", "past", "page", "ended"),
)
#: What would compute for long if it were right; tried by `test_studies` with limits of their own.
STUDIES = ("/simulate", "/cloud")
HEADERS = (
    *("HX-Request", "HX-Current-URL", "HX-Target", "Referer", "Origin", "Accept", "Accept-Encoding", "Cookie"),
    *("Sec-Fetch-Site", "Idempotency-Key", "If-None-Match", "Range", "Last-Event-ID", "Content-Type"),
)


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A route of the pages: how it is asked, and where, with names in braces."""

    method: str
    path: str


def list_pages(app: FastAPI) -> list[PageRoute]:
    """What browsers may ask for, and not already described as API; streams are asked for by themselves."""
    return [
        PageRoute(method, route.path)
        for route in app.routes
        if isinstance(route, APIRoute) and not route.include_in_schema and not route.path.startswith("/live")
        for method in sorted(route.methods or ())
    ]


class PageSender:
    """Sends requests of a browser that is signed in, or of nobody, or of a script with a token."""

    def __init__(self, server: Server, jobs: list[str]) -> None:
        self.url, self.jobs = server.url, jobs
        self.line = HTTPConnection(urlsplit(server.url).netloc, timeout=120)
        self.token = server.settings.state_dir.token.read_text().strip()
        self.cookie = ""
        self.sign_in()

    def sign_in(self) -> None:
        """Have the cookie of a session: one that was sent to sign out has none."""
        body = urlencode({"token": self.token}).encode()
        self.line.request("POST", "/signin", body, {"Origin": self.url, "Content-Type": FORM})
        answer = self.line.getresponse()
        answer.read()
        self.cookie = (answer.getheader("set-cookie") or "").partition(";")[0]

    def make_path(self, path: str, dice: random.Random) -> str:
        """A path with something in the place of each name, and a query."""
        while "{" in path:
            before, _, rest = path.partition("{")
            word = dice.choice([*self.jobs, *self.jobs, *WORDS, "fake-0", "style.css"])
            path = before + quote(word[:2000], safe="") + rest.partition("}")[2]
        pairs = [(dice.choice(FIELDS), dice.choice(WORDS)) for _ in range(dice.choice([0, 0, 1, 3]))]
        return path + (f"?{urlencode(pairs)}" if pairs else "")

    def make_headers(self, dice: random.Random) -> dict[str, str]:
        """Headers of which some are odd."""
        headers = {"Origin": self.url, "Content-Type": FORM, "Accept": dice.choice(["text/html", "*/*"])}
        headers |= dice.choice([{"Cookie": self.cookie}] * 3 + [{"Authorization": f"Bearer {self.token}"}] * 3 + [{}])
        for _ in range(dice.choice([0, 1, 2, 4])):
            word = dice.choice([*WORDS, f"{self.url}/ask?job=x", "1", "true", "text/html", "gzip"])
            headers[dice.choice(HEADERS)] = "".join(one for one in word if 31 < ord(one) < 256)
        return headers

    def make_form(self, dice: random.Random) -> bytes:
        """A form that is nearly right."""
        pairs = {"base": dice.choice(self.jobs), "file": "run: python train.py", "deadline": "1h"}
        for _ in range(dice.choice([0, 1, 2, 5])):
            pairs[dice.choice(FIELDS)] = dice.choice(WORDS)
        body = urlencode(pairs).encode()
        for _ in range(dice.choice([0, 0, 0, 1, 2])):
            at = dice.randrange(len(body))
            body = body[:at] + dice.choice(RAW) + body[at + dice.randrange(3) :]
        many = dice.random() < 0.05
        return body + b"".join(b"&%s=1" % quote_plus(str(number)).encode() for number in range(many * 400))

    def send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> int:
        """The status of the answer; a line that the server has closed meanwhile is opened again."""
        for _ in range(2):
            try:
                self.line.request(method, path, body, headers)
                answer = self.line.getresponse()
                answer.read()
                return answer.status
            except (HTTPException, ConnectionError):
                self.line.close()
        raise AssertionError("the server hangs up")

    def try_route(self, route: PageRoute, dice: random.Random) -> tuple[int, object]:
        """The status of the answer to a request of a route, and the request."""
        body = self.make_form(dice) if route.method == "POST" else None
        request = (route.method, self.make_path(route.path, dice), body, self.make_headers(dice))
        return self.send(*request), request


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ServerOptions(**{"policy": OPTIONS.policy, "most_active": 40, **UNLIMITED})  # type: ignore[arg-type]
    folder = tmp_path_factory.mktemp("pages")
    with run_server(folder, options, add_pages=add_pages, job=SLOW) as server:
        yield server


@pytest.fixture
def sender(server: Server, tmp_path: Path) -> Iterator[PageSender]:
    with connect(server) as client:
        jobs = [client.submit(write_project(tmp_path / name, name=name)).id for name in ("one", "two")]
    sender = PageSender(server, jobs)
    yield sender
    sender.line.close()


def test_pages(server: Server, sender: PageSender, record_property: Record) -> None:
    dice = random.Random(SEED)
    routes = [one for one in list_pages(server.app.app) if one.path.split("/runs.")[0] not in STUDIES]  # type: ignore[arg-type]
    seen: Counter[int] = Counter()
    for number in count(32_000):
        status, request = sender.try_route(dice.choice(routes), dice)
        assert status < 500, (number, status, request)
        seen[status] += 1
        if number % 50 == 0:
            sender.sign_in()
    assert seen[200] and seen[303] and seen[422], "all ways are tried"
    report(record_property, "pages and forms over HTTP", seen)


def test_streams(server: Server, sender: PageSender, record_property: Record) -> None:
    dice = random.Random(SEED)
    seen: Counter[int] = Counter()
    for number in count(300):
        path = sender.make_path(dice.choice(["/live/", "/live/fleet", "/live/jobs/{job}"]), dice)
        sender.line.request("GET", path, headers=sender.make_headers(dice))
        answer = sender.line.getresponse()
        assert answer.status < 500, (number, answer.status, path)
        seen[answer.status] += 1
        sender.line.close()
    assert seen[200]
    report(record_property, "streams over HTTP", seen)


def test_study_forms(server: Server, sender: PageSender, record_property: Record) -> None:
    dice = random.Random(SEED)
    seen: Counter[int] = Counter()
    names = (
        "synthetic",
        "trace",
        "cluster",
        "policies",
        "model",
        "points",
        "steps",
        "global_batch",
        "clouds",
        "deadline",
    )
    for number in count(200):
        pairs = [(dice.choice(names), dice.choice(WORDS)) for _ in range(dice.randrange(6))]
        path = dice.choice(["/simulate", "/simulate/runs.csv", "/simulate/runs.png", "/cloud"])
        status = sender.send("POST", path, urlencode(pairs).encode(), sender.make_headers(dice))
        assert status < 500, (number, status, path, pairs)
        seen[status] += 1
    report(record_property, "forms of studies over HTTP", seen)
