"""What readers cost: 100 who look at a page of 1,000 jobs once a second, and whether submissions notice them.

Run `python -m benchmarks.readers`. Rounds with and without readers take turns on one server with the fake executor, so
that what else the machine does meets both; the readers are a process of their own. `--every 0` lets them ask again as
soon as they are answered, which no client of ours does.
"""

import argparse
import asyncio
import json
import multiprocessing
import multiprocessing.connection
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median, quantiles

from benchmarks.live_load import OPTIONS, SERVE, Sender, fill, prepare, read_cpu_s, read_pid, wait_end
from springtide.client.client import Client
from springtide.control.background import start_background
from springtide.control.storage.state_dir import StateDir

BOUNDS = {"read_p50_ms": 100.0, "submit_ratio": 1.2}
ROUNDS = 4
SUBMISSIONS = 40  # in a round
SUBMIT_EVERY_S = 0.1  # as people do, not as fast as it goes


@dataclass(frozen=True, slots=True)
class Readers:
    """How many there are, how often each looks, and at how many jobs."""

    count: int
    every_s: float
    limit: int


def main() -> None:
    """Measure, and print each figure beside its bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readers", type=int, default=100)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two looks of a reader")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--limit", type=int, default=100, help="jobs on a page; 100 is what `springtide ps` shows")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="springtide-readers-") as folder:
        figures = measure(Path(folder), given.jobs, Readers(given.readers, given.every, given.limit))
    for name, value in figures.items():
        bound = BOUNDS.get(name)
        print(f"{name:<22} {value:10.2f}" + (f"   bound {bound:g}   ratio {value / bound:.2f}" if bound else ""))


def measure(folder: Path, jobs: int, readers: Readers) -> dict[str, float]:
    """All figures of one server."""
    home = StateDir(folder / "home").make()
    many = {"reads_per_s": 1e6, "read_burst": 10**6}  # all readers are one user here
    home.config.write_text(json.dumps(OPTIONS | many))
    fill(home, jobs)
    url = start_background(home, SERVE)
    server = read_pid(home)
    with Client(url, home=home.root) as client:
        try:
            body = prepare(client, folder / "work")
            return take_turns(client, partial(Sender, url, home, body), readers, partial(read_cpu_s, home))
        finally:
            client.stop()
            wait_end(server)


def take_turns(
    client: Client, connect: Callable[[], Sender], readers: Readers, cpu_s: Callable[[], float]
) -> dict[str, float]:
    """Submissions with and without readers, in turns."""
    alone: list[float] = []
    beside: list[float] = []
    reads: list[float] = []
    submit(client, connect())  # the first one pays for what is loaded late
    spent_s = 0.0
    for _ in range(ROUNDS):
        before_s = cpu_s()
        alone += submit(client, connect())
        between_s = cpu_s()
        with_readers, read = submit_beside_readers(client, connect, readers)
        beside += with_readers
        reads += read
        spent_s += (cpu_s() - between_s) - (between_s - before_s)
    return {
        "reads": float(len(reads)),
        "read_p50_ms": median(reads),
        "read_p99_ms": quantiles(reads, n=100)[98],
        "server_cpu_per_read_ms": 1000 * spent_s / len(reads),
        "submit_alone_ms": median(alone),
        "submit_beside_ms": median(beside),
        "submit_ratio": median(beside) / median(alone),
        "submit_p90_ratio": quantiles(beside, n=10)[8] / quantiles(alone, n=10)[8],
    }


def submit(client: Client, sender: Sender) -> list[float]:
    """Milliseconds that each of some submissions took, as their sender sees it."""
    took = []
    for _ in range(SUBMISSIONS):
        started_s = time.perf_counter()
        document, _ = sender.submit()
        took.append(1000 * (time.perf_counter() - started_s))
        client.cancel(document["id"])
        time.sleep(SUBMIT_EVERY_S)
    return took


def submit_beside_readers(
    client: Client, connect: Callable[[], Sender], readers: Readers
) -> tuple[list[float], list[float]]:
    """Milliseconds of submissions, and of the readers beside them."""
    processes = multiprocessing.get_context("spawn")
    ended = processes.Event()
    ours, theirs = processes.Pipe()
    sender = connect()
    place = (sender.line.host, sender.line.port, sender.headers["Authorization"])
    process = processes.Process(target=read_in_process, args=(place, readers, ended, theirs))
    process.start()
    ours.recv()  # every reader was answered once
    took = submit(client, sender)  # which connects only now
    ended.set()
    reads: list[float] = ours.recv()
    process.join()
    return took, reads


def read_in_process(
    place: tuple[str, int, str], readers: Readers, ended: Event, line: "multiprocessing.connection.Connection"
) -> None:
    """All readers, until told to end; then what they saw."""
    line.send(asyncio.run(read_all(place, readers, ended, line)))


async def read_all(
    place: tuple[str, int, str], readers: Readers, ended: Event, line: "multiprocessing.connection.Connection"
) -> list[float]:
    """Milliseconds of every answer after each reader had its first."""
    host, port, token = place
    path = f"/api/v1/jobs?limit={readers.limit}"
    request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: {token}\r\n\r\n".encode()
    spread = random.Random(0)
    took: list[float] = []
    began = asyncio.Barrier(readers.count + 1)

    async def read() -> None:
        reader, writer = await asyncio.open_connection(host, port, limit=1 << 22)
        await ask(reader, writer, request)
        await began.wait()
        await asyncio.sleep(spread.random() * readers.every_s)
        while not ended.is_set():
            started_s = time.perf_counter()
            await ask(reader, writer, request)
            spent_s = time.perf_counter() - started_s
            took.append(1000 * spent_s)
            await asyncio.sleep(max(0.0, readers.every_s - spent_s))
        writer.close()

    everyone = asyncio.gather(*(read() for _ in range(readers.count)))
    await began.wait()
    line.send("began")
    await everyone
    return took


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    """One request and its whole answer."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))


if __name__ == "__main__":
    main()
