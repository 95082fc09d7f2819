"""Fuzzers of everything that users send: archives, job files, heads, bodies, and the API against its own description.

None of it may be answered with a 5xx, and what is refused is refused in a sentence.
"""

import hashlib
import io
import json
import random
import select
import socket
import tarfile
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import schemathesis
from benchmarks.nonsense import spoil
from hypothesis import HealthCheck, Phase, given, seed, settings
from tests.adversary.nights import SEED, TIMES, Record, count, report
from tests.control.http_servers import OPTIONS, run_server

from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.server import Server
from springtide.control.storage.archive_reader import ArchiveLimits, read_content, read_member, survey
from springtide.core.job_file import check_job, parse_job_text
from springtide.errors import ArchiveError, JobError

pytestmark = [pytest.mark.adversary, pytest.mark.timeout(900)]
LIMITS = ArchiveLimits(50, 20_000)
UNLIMITED = {"rate_per_s": 1e9, "burst": 10**9, "reads_per_s": 1e9, "read_burst": 10**9}
JOB = {
    "run": "python train.py",
    "deadline": "6h",
    "name": "x",
    "devices": "1..4",
    "env": {"A": "b"},
    "secrets": [],
    "checkpoint": {"every": "5m"},
}
EDGES: dict[str, tuple[Any, ...]] = {
    "deadline": (
        "1h",
        "900h",
        "2034-01-01T00:00:00Z",
        None,
        "9999-12-31T23:59:59-14:00",
        "0001-01-01T00:00:00+14:00",
        "1:30",
    ),
    "devices": (1, "1..2", [1, 2], 64, "64..1", "1..99999999", [0]),
    "steps": (1, 10**12, 2**63),
    "duration": ("1s", "20h", "10000d", "0h"),
    "elastic": (False, True, "no"),
    "logical_workers": (1, 64, 65537),
    "determinism": ("D0", "D1", "D2", "D3"),
    "priority": (0, 5, -(2**63) - 1),
    "budget": ("$5", "-$5"),
    "device_types": (["fake"], ["a100"], []),
    "workdir": (".", "sub", "../../etc"),
    "name": ("a", "A", "a" * 63, "\x1b[2J"),
    "env": ({}, {"LD_PRELOAD": "x"}, {"A": 90}),
}
PLAIN = b"train.py".ljust(100, b"\0") + b"0000644\0" + bytes(16) + b"00000000000\0" + bytes(12)
PLAIN = PLAIN + b"%06o\0 " % (sum(PLAIN) + 8 * 32 + 48) + b"0" + bytes(355) + bytes(1024)


def make_job(dice: random.Random) -> dict[str, Any]:
    """A job of which some things lie at the edge of what may be, and sometimes beyond."""
    keys = dice.sample(sorted(EDGES), dice.randint(0, 3))
    job = JOB | {key: dice.choice(EDGES[key]) for key in keys}
    return spoil(job, dice) if dice.random() < 0.5 else job


def make_archive(dice: random.Random) -> bytes:
    """A tar that is nearly right: strange names, kinds and headers, then a few bytes changed, or its end gone."""
    buffer = io.BytesIO()
    form = dice.choice([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for number in range(dice.choice([0, 1, 2, 5, 60])):
            name = dice.choice(
                [f"f{number}", f"d/{number}", "a", "a/b", "../x", "/x", "é" * 20, "n" * 90, "d/" * 70 + "x"]
            )
            member = tarfile.TarInfo(name)
            member.type = dice.choices([tarfile.REGTYPE, bytes([dice.randrange(256)])], [9, 1])[0]
            if form == tarfile.PAX_FORMAT and dice.random() < 0.3:
                key = dice.choice(["size", "path", "GNU.sparse.map", "GNU.sparse.realsize", "mtime", "hdrcharset", "x"])
                member.pax_headers = {key: dice.choice(["-1", "0", "9" * 30, "../x", "a\x00b", "0,1", "x" * 3000])}
            member.size = dice.choice([0, 1, 511, 512, 513, 3000])
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    data = bytearray(buffer.getvalue())
    for _ in range(dice.choice([0, 0, 1, 3, 20])):
        change_byte(data, dice)
    return bytes(data[: dice.randrange(len(data))] if dice.random() < 0.1 else data)


def change_byte(data: bytearray, dice: random.Random) -> None:
    """Change a byte, mostly of a header, whose sum is then made right again."""
    block = 512 * dice.randrange(min(8, len(data) // 512))
    data[block + dice.choice([dice.randrange(512), 124 + dice.randrange(12), 156])] = dice.randrange(256)
    if dice.random() < 0.8:
        data[block + 148 : block + 156] = b" " * 8
        data[block + 148 : block + 156] = b"%06o\0 " % sum(data[block : block + 512])


def judge_archive(data: bytes) -> str:
    """Whether an archive is taken; what is taken is counted, stays inside and has no name twice."""
    file = io.BytesIO(data)
    names, size = set(), 0
    try:
        survey(file, LIMITS)
        while (member := read_member(file)) is not None:
            assert not member.name.startswith("/") and ".." not in Path(member.name).parts and member.name not in names
            names.add(member.name)
            size += sum(map(len, read_content(file, member.size)))
    except ArchiveError as error:
        assert str(error).strip()
        return "refused"
    assert len(names) <= LIMITS.files and size <= LIMITS.bytes
    return "taken"


def test_archives(record_property: Record) -> None:
    dice = random.Random(SEED)
    seen = Counter(judge_archive(make_archive(dice)) for _ in count(13_500))
    assert seen["taken"] and seen["refused"], "both ways are tried"
    report(record_property, "archives", seen)


def write_text(dice: random.Random) -> str:
    """The text of a job file that is nearly right."""
    text = json.dumps(make_job(dice), indent=dice.choice([None, 1]))
    for _ in range(dice.choice([0, 0, 1, 4])):
        at = dice.randrange(len(text))
        odd = dice.choice(
            ["{", "]", ":", "&a ", "*a", "!!python/object:os.system ", "\t", "\n- ", "? ", "|", "<<: ", "'"]
        )
        text = text[:at] + odd + text[at + dice.randrange(3) :]
    return text


def judge_text(text: str) -> str:
    """Whether a job file is taken; what is taken can be written and read again."""
    try:
        job = parse_job_text(text, "job.yaml")
    except JobError as error:
        assert str(error).startswith("job.yaml")
        return "refused"
    assert check_job(json.loads(job.model_dump_json(exclude_defaults=True)), "again") == job
    return "taken"


def test_job_files(record_property: Record) -> None:
    dice = random.Random(SEED)
    seen = Counter(judge_text(write_text(dice)) for _ in count(17_000))
    assert seen["taken"] and seen["refused"], "both ways are tried"
    report(record_property, "job files", seen)


@pytest.fixture
def sender(server: Server) -> Iterator["RawSender"]:
    with RawSender(server) as sender:
        yield sender


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ServerOptions(**{"policy": OPTIONS.policy, "most_active": 50, **UNLIMITED})  # type: ignore[arg-type]
    with run_server(tmp_path_factory.mktemp("server"), options) as server:
        yield server


class RawSender:
    """Sends bytes to a server as its admin."""

    def __init__(self, server: Server) -> None:
        self.line = HTTPConnection(urlsplit(server.url).netloc, timeout=120)
        self.token = server.settings.state_dir.token.read_text().strip()

    def send(self, method: str, path: str, body: bytes, kind: str = "application/json") -> int:
        """The status of the answer; a line that the server has closed meanwhile is opened again."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        for _ in range(2):
            try:
                self.line.request(method, path, body, headers)
                response = self.line.getresponse()
                response.read()
                return response.status
            except (HTTPException, ConnectionError):
                self.line.close()
        raise AssertionError("the server hangs up")

    def __enter__(self) -> "RawSender":
        return self

    def __exit__(self, *exception: object) -> None:
        self.line.close()


def test_bodies(sender: RawSender, record_property: Record) -> None:
    dice = random.Random(SEED)
    archive = hashlib.sha256(PLAIN).hexdigest()
    assert sender.send("PUT", f"/api/v1/archives/{archive}", PLAIN, "application/x-tar") == 201
    seen: Counter[int] = Counter()
    for number in count(10_000):
        document: dict[str, Any] = {"job": make_job(dice), "archive": archive, "secrets": {}}
        document = spoil(document, dice) if number % 3 == 0 else document
        path = "/api/v1/jobs" if number % 10 == 0 else "/api/v1/plan"
        status = sender.send("POST", path, json.dumps(document).encode())
        assert status < 500, (number, document)
        seen[status] += 1
    assert seen[200] and seen[422], "both ways are tried"
    report(record_property, "bodies over HTTP", seen)


def test_uploads(server: Server, sender: RawSender, record_property: Record) -> None:
    dice = random.Random(SEED)
    seen: Counter[int] = Counter()
    for number in count(200):
        data = make_archive(dice)
        path = f"/api/v1/archives/{hashlib.sha256(data).hexdigest()}"
        status = sender.send("PUT", path, data, "application/x-tar")
        assert status < 500, (number, data[:2000])
        seen[status] += 1
    report(record_property, "uploads over HTTP", seen)
    left = [path.name for path in (server.settings.state_dir.root / "code").iterdir() if path.name.startswith(".")]
    assert left == []


def make_request(server: Server, dice: random.Random) -> bytes:
    """A request that is nearly right: other methods, targets, lengths and names, then some bytes changed."""
    method = dice.choice(["GET", "POST", "PUT", "DELETE", "OPTIONS", "get", "G" * 300, ""])
    target = dice.choice(
        ["/healthz", "/api/v1/jobs", "/api/v1/jobs/%ff", "/api/v1/jobs?limit=-1", "*", "//", "/" * 5000]
    )
    body = dice.choice([b"", b"{}", b"0\r\n\r\n", b"\xff" * 40])
    headers = {"Host": urlsplit(server.url).netloc, "Connection": "close", "Content-Length": str(len(body))}
    for _ in range(dice.choice([0, 0, 1, 2])):
        headers[
            dice.choice([*headers, "Transfer-Encoding", "Authorization", "Range", "Idempotency-Key", "X" * 300])
        ] = dice.choice(["chunked", "-1", "9" * 30, "", "\u00ff", "Bearer " + "x" * 70, "bytes=9-1", "a\tb"])
    lines = [
        f"{method} {target} HTTP/{dice.choice(['1.1', '1.1', '1.0', '9'])}",
        *(f"{k}: {v}" for k, v in headers.items()),
    ]
    data = bytearray("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
    for _ in range(dice.choice([0, 0, 1, 3])):
        data[dice.randrange(len(data))] = dice.randrange(256)
    return bytes(data)


def ask_raw(server: Server, request: bytes) -> str:
    """The status of the answer to some bytes; `waits` if the server waits for more of them, `none` if it hangs up."""
    place = urlsplit(server.url)
    with socket.create_connection((place.hostname, place.port), timeout=60) as line, line.makefile("rb") as answer:
        try:
            line.sendall(request)
            if not select.select([line], [], [], 0.3)[0]:
                return "waits"
            words = answer.readline(1000).split()
        except ConnectionError:
            return "none"
    return words[1].decode() if len(words) > 1 else "none"


def test_heads(server: Server, record_property: Record) -> None:
    dice = random.Random(SEED)
    seen: Counter[str] = Counter()
    for number in count(6_000):
        request = make_request(server, dice)
        status = ask_raw(server, request)
        assert not status.startswith("5"), (number, status, request[:500])
        seen[status] += 1
    assert seen["200"] and seen["400"], "both ways are tried"
    report(record_property, "heads over HTTP", seen)


def test_described_operations(server: Server, sender: RawSender, record_property: Record) -> None:
    sender.line.request("GET", "/openapi.json", headers={"Authorization": f"Bearer {sender.token}"})
    document = json.loads(sender.line.getresponse().read())
    del document["paths"]["/api/v1/stop"]
    operations = list(schemathesis.openapi.from_dict(document).get_all_operations())
    seen: Counter[int] = Counter()
    for operation in operations:
        attack(server, operation.ok(), round(3000 * TIMES / len(operations)), seen)  # type: ignore[union-attr]
    report(record_property, "described operations over HTTP", seen)


def attack(server: Server, operation: Any, cases: int, seen: Counter[int]) -> None:
    """Send what hypothesis makes up for one operation."""
    token = server.settings.state_dir.token.read_text().strip()

    @seed(SEED)
    @settings(
        max_examples=cases,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(case=operation.as_strategy())
    def send(case: Any) -> None:
        response = case.call(base_url=server.url, headers={"Authorization": f"Bearer {token}"})
        assert response.status_code < 500, (case, response.text)
        seen[response.status_code] += 1

    send()
