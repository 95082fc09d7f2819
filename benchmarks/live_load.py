"""How the control plane bears load: answers, submissions, listing and memory, over HTTP with the fake executor.

Run `python -m benchmarks.live_load`. Each figure is printed beside its bound. Answers are timed by the server itself
(its `Server-Timing` header) and by the client. The flood is sent on a schedule over plain sockets: no submission waits
for the answer to another. With `--beside CHECKOUT` instead: this code's answers and those of another commit, by turns.
"""

import argparse
import asyncio
import json
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from statistics import quantiles
from typing import Any
from urllib.parse import urlsplit

import psutil

from springtide.client.client import Client
from springtide.client.job_folders import load_job
from springtide.control.background import start_background
from springtide.control.storage.database.store_batches import Batch
from springtide.control.storage.records import JobRecord
from springtide.control.storage.state_dir import StateDir
from springtide.control.storage.store import Store
from springtide.core.job_file import JobFile
from springtide.core.job_states import JobState

OPTIONS = {"rate_per_s": 100_000.0, "burst": 1_000_000, "most_active": 1_000_000}
SERVE = ("--engine", "fake", "--devices", "2", "--port", "0")
ACTIVE = 100
ANSWERS = 300
HUNG_UP = "hung up"
FLOOD_S = 4.9  # the last submission is sent then
BOUNDS = {
    "answer_p99_ms": 50.0,
    "submitted_in_s": 5.0,
    "answered_in_s": 15.0,
    "ps_ms": 200.0,
    "memory_mb": 200.0,
    "restart_s": 3.0,
}


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--submissions", type=int, default=1000)
    parser.add_argument("--finished", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="compare with another commit, by turns")
    parser.add_argument("--answers", type=int, default=600, help="of each, with --beside")
    parser.add_argument("--starts", type=int, default=5, help="of each, with --beside")
    given = parser.parse_args()
    if given.beside:
        from benchmarks.load_beside import compare

        return compare(given.beside, given.answers, given.starts, given.finished)
    with tempfile.TemporaryDirectory(prefix="springtide-load-") as folder:
        figures = measure(Path(folder), given.submissions, given.finished)
    if given.json:
        print(json.dumps({"schema": 1, "figures": figures, "bounds": BOUNDS}, indent=2))
        return
    for name, value in figures.items():
        bound = BOUNDS.get(name)
        print(f"{name:<22} {value:10.1f}" + (f"   bound {bound:g}   ratio {value / bound:.2f}" if bound else ""))


def measure(folder: Path, submissions: int, finished: int) -> dict[str, float]:
    """All figures from one state directory."""
    home = StateDir(folder / "home").make()
    home.config.write_text(json.dumps(OPTIONS))
    fill(home, finished)
    try:
        return measure_server(home, folder / "work", submissions)
    finally:
        end_server(home)


def measure_server(home: StateDir, work: Path, submissions: int) -> dict[str, float]:
    """What a server does before it is killed and started again, and a flood of submissions after that."""
    url = start_background(home, SERVE)
    with Client(url, home=home.root) as client:
        body = prepare(client, work)
        figures = {"ps_ms": time_ms(client.jobs), "ps_all_ms": time_ms(lambda: client.jobs(all=True))}
        figures |= answer(client, url, home, body)
        figures["memory_mb"] = read_memory_mb(home)
        figures["load_at_answers"] = os.getloadavg()[0]
    url, figures["restart_s"] = restart(home)
    with Client(url, home=home.root) as client:
        for job in client.jobs(limit=1000):
            client.cancel(job.id)
        figures |= flood(url, home, body, submissions)
        figures["memory_after_flood_mb"] = read_memory_mb(home)
    return figures


def fill(home: StateDir, finished: int) -> None:
    """Put ended jobs into the database before the server starts."""
    store = Store(f"sqlite:///{home.database}")
    now_s = time.time()
    jobs = {
        f"old{n}": JobRecord(
            f"old{n}", f"old-{n}", "ann", JobState.SUCCEEDED, JobFile(run="x"), now_s, seq=n, finished_s=now_s
        )
        for n in range(1, finished + 1)
    }
    store.write(Batch(jobs=jobs))
    store.close()


def prepare(client: Client, folder: Path) -> dict[str, Any]:
    """A body of known code: it was measured by one run."""
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n")
    job = {"run": "python train.py", "deadline": "900h"}
    (folder / "job.yaml").write_text(json.dumps(job))
    client.wait(client.submit(folder / "job.yaml").id)
    return {"job": job, "archive": client.upload(load_job(folder / "job.yaml").pack())}


class Sender:
    """One connection that submits the same body again and again."""

    def __init__(self, url: str, home: StateDir, body: dict[str, Any]) -> None:
        self.line = HTTPConnection(urlsplit(url).netloc, timeout=60)
        self.body = json.dumps(body)
        token = home.token.read_text().strip()
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def submit(self) -> tuple[dict[str, Any], float]:
        """The answer, and the milliseconds it took the server."""
        self.line.request("POST", "/api/v1/jobs", self.body, self.headers)
        response = self.line.getresponse()
        timing = response.headers["Server-Timing"].partition("dur=")[2]
        return json.loads(response.read()), float(timing)

    def cancel(self, job: str) -> None:
        """End a job that was submitted."""
        self.line.request("POST", f"/api/v1/jobs/{job}/cancel", "{}", self.headers)
        self.line.getresponse().read()


def answer(client: Client, url: str, home: StateDir, body: dict[str, Any]) -> dict[str, float]:
    """Answers to single submissions while about `ACTIVE` jobs are active."""
    sender = Sender(url, home, body)
    for _ in range(ACTIVE):
        sender.submit()
    inside, outside = [], []
    for _ in range(ANSWERS):
        started_s = time.perf_counter()
        document, server_ms = sender.submit()
        outside.append(1000 * (time.perf_counter() - started_s))
        inside.append(server_ms)
        sender.cancel(document["id"])
    server, seen = quantiles(inside, n=100), quantiles(outside, n=100)
    return {
        "answer_p50_ms": server[49],
        "answer_p99_ms": server[98],
        "answer_p99_client_ms": seen[98],
        "active": float(len(client.jobs(limit=1000))),
    }


def restart(home: StateDir) -> tuple[str, float]:
    """Kill the server and start it again; its address, and the seconds until it answers with its jobs adopted."""
    before = read_pid(home)
    os.kill(before, signal.SIGKILL)
    wait_end(before)
    home.address.unlink()
    started_s = time.monotonic()
    url = start_background(home, SERVE)
    with Client(url, home=home.root) as client:
        assert len(client.jobs(limit=1000)) >= ACTIVE // 2, "the jobs are here again"
    return url, time.monotonic() - started_s


def end_server(home: StateDir) -> None:
    """End the server if there is one, whatever was measured."""
    if home.address.exists():
        server = read_pid(home)
        os.kill(server, signal.SIGTERM)
        wait_end(server)


def read_pid(home: StateDir) -> int:
    """The process of the server."""
    return int(json.loads(home.address.read_text())["pid"])


def wait_end(pid: int) -> None:
    """Wait until a process has ended: a server that was stopped still writes what it knows."""
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)


def flood(url: str, home: StateDir, body: dict[str, Any], submissions: int) -> dict[str, float]:
    """Submissions sent on a schedule of `FLOOD_S`, whatever the answers do: when the last was sent and answered."""
    before_s = read_cpu_s(home)
    flooded = asyncio.run(send_all(Sender(url, home, body), submissions))
    refused = Counter(answer for answer in flooded.answers if answer not in ("admitted", "waitlisted", "declined"))
    return {
        "submitted_in_s": flooded.sent_s,
        "answered_in_s": flooded.answered_s,
        "refused": float(refused.total()),
        **{f"  {reason}": float(count) for reason, count in refused.items()},
        "flood_cpu_s": read_cpu_s(home) - before_s,
    }


@dataclass(slots=True)
class Flooded:
    """What became of a flood of submissions."""

    answers: list[str]
    sent_s: float
    answered_s: float


async def send_all(sender: Sender, submissions: int) -> Flooded:
    """Send each submission at its time, over a connection that is free or a new one."""
    host, port = sender.line.host, sender.line.port
    lines = "".join(f"{name}: {value}\r\n" for name, value in sender.headers.items())
    head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: {host}\r\n{lines}Content-Length: {len(sender.body)}\r\n\r\n"
    request = (head + sender.body).encode()
    free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    sent: list[float] = []
    started_s = time.monotonic()

    async def submit(number: int) -> str:
        await asyncio.sleep(number * FLOOD_S / submissions)
        reader, writer = free.pop() if free else await asyncio.open_connection(host, port)
        try:
            writer.write(request)
            await writer.drain()
            sent.append(time.monotonic() - started_s)
            header = await reader.readuntil(b"\r\n\r\n")
        except (ConnectionResetError, asyncio.IncompleteReadError):  # more lines than the server has
            return HUNG_UP
        size = int(header.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        document = json.loads(await reader.readexactly(size))
        if b"connection: close" not in header.lower():
            free.append((reader, writer))
        return str(document.get("answer") or document["error"]["reason"])

    answers = await asyncio.gather(*(submit(number) for number in range(submissions)))
    answered_s = time.monotonic() - started_s
    for _, writer in free:
        writer.close()
    return Flooded(list(answers), max(sent), answered_s)


def read_memory_mb(home: StateDir) -> float:
    """Resident memory of the server."""
    return float(psutil.Process(json.loads(home.address.read_text())["pid"]).memory_info().rss / 1e6)


def read_cpu_s(home: StateDir) -> float:
    """Processor time the server has used: the part of its speed that other load does not blur."""
    times = psutil.Process(json.loads(home.address.read_text())["pid"]).cpu_times()
    return float(times.user + times.system)


def time_ms(act: Callable[[], object]) -> float:
    """Milliseconds that something takes."""
    started_s = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - started_s)


if __name__ == "__main__":
    main()
