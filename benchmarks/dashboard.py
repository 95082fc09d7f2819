"""The board with 1,000 jobs and 200 devices: first paint, weight, how soon an event is seen, what open pages cost.

`python -m benchmarks.dashboard`, with Chromium; a server process, whose processor time is read from the system, and
beside it one with the same jobs at which nobody looks: what decisions cost is compared between the two by turns, for
who reads the pages takes processors too. The last lines say which of the bars are met: first contentful paint 1 s,
scripts 100 kB, an event seen within 1 s, 50 open pages 10 % of a core, and decisions as long as without open pages.
"""

import asyncio
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from springtide.client.client import Client
from springtide.control.executor_factory import ExecutorHandle
from springtide.control.scheduling.machines.inventory import make_inventory
from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.server import Listening, Server, ServerSettings
from springtide.control.storage.state_dir import StateDir, read_address
from springtide.core.decisions import Decision, Snapshot
from springtide.dashboard.pages import add_pages
from springtide.executors.fake import FakeJob, RealTimeFake

JOBS, DEVICES, PAGES = 1000, 200, 50
WATCH_S = 20.0
SUBMISSIONS = 30
BETWEEN_S = 0.5  # so that a page is drawn between two submissions, and beside some
DECISIONS = "decisions.txt"
CHROMIUM_FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


@contextmanager
def run_process(home: Path) -> Iterator[psutil.Process]:
    """A server in a process of its own."""
    home.mkdir()
    server = subprocess.Popen([sys.executable, "-m", "benchmarks.dashboard", str(home)], stderr=subprocess.DEVNULL)
    try:
        while read_address(StateDir(home)) is None:
            assert server.poll() is None, "the server ended"
            time.sleep(0.1)
        yield psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait()


def serve(home: Path) -> None:
    """A server on which jobs take hours, and nothing really runs."""
    options = ServerOptions(rate_per_s=1e5, burst=100_000, reads_per_s=1e5, read_burst=100_000, most_active=10_000)
    settings = ServerSettings(StateDir(home).make(), "fake", str(DEVICES), Listening(port=0), options)
    site = make_inventory("fake", [f"fake:{number}" for number in range(DEVICES)], nodes=25)
    slow = FakeJob(100_000, {1: 10.0, 2: 18.0, 4: 30.0}, logical_workers=4)
    server = Server(settings, ExecutorHandle(RealTimeFake(slow), site, lambda: None), add_pages)
    note_decisions(server, home / DECISIONS)
    server.run()


def note_decisions(server: Server, file: Path) -> None:
    """Write down how long each decision takes: processor seconds of its thread, and seconds of the wall."""
    decide = server.reconciler.decide

    def timed(now_s: float, snapshot: Snapshot) -> Decision:
        spent_s, began_s = time.thread_time(), time.perf_counter()
        try:
            return decide(now_s, snapshot)
        finally:
            with file.open("a") as lines:
                lines.write(f"{time.thread_time() - spent_s} {time.perf_counter() - began_s}\n")

    server.reconciler.decide = timed


def measure_decisions(clients: dict[Path, Client], folder: Path) -> list[dict[str, float]]:
    """Median milliseconds of the decisions that some submissions cause, sent to these servers by turns."""
    before = {home: len((home / DECISIONS).read_text().splitlines()) for home in clients}
    for number in range(SUBMISSIONS):
        for client in list(clients.values())[:: 1 if number % 2 else -1]:
            job = {"run": "python train.py", "workdir": str(folder), "name": f"by-turns-{number}", "deadline": "300h"}
            client.submit(job, wait=False)
            time.sleep(BETWEEN_S)
    return [sum_up_decisions(home, first) for home, first in before.items()]


def sum_up_decisions(home: Path, first: int) -> dict[str, float]:
    """Median milliseconds of a server's decisions after the first ones."""
    rows = [tuple(map(float, line.split())) for line in (home / DECISIONS).read_text().splitlines()[first:]]
    cpu, wall = (round(1000 * statistics.median(column), 2) for column in zip(*rows, strict=True))
    return {"cpu_ms": cpu, "wall_ms": wall}


def submit_all(client: Client, folder: Path) -> None:
    """Many jobs: most with deadlines in the next days, some best effort."""
    (folder / "train.py").write_text("print('hello')\n")
    for number in range(JOBS):
        job: dict[str, Any] = {
            "run": "python train.py",
            "workdir": str(folder),
            "name": f"job-{number:04}",
            "steps": 100_000,
        }
        if number % 5:
            job["deadline"] = f"{20 + number % 200}h"
        client.submit(job, wait=False)


def measure_paint(url: str, link: str, folder: Path) -> dict[str, float]:
    """First contentful paint of the board in milliseconds, the median of five, and its weight."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            folder, executable_path="/usr/bin/chromium", args=CHROMIUM_FLAGS, viewport={"width": 1440, "height": 900}
        )
        page = browser.pages[0]
        page.goto(link)
        paints = []
        for _ in range(5):
            page.goto(url)
            page.wait_for_timeout(1500)
            paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        browser.close()
    return {"first_paint_ms": round(statistics.median(paints), 1), "slowest_ms": round(max(paints), 1)}


def weigh_scripts(http: httpx.Client) -> int:
    """Bytes of script over the wire, compressed."""
    total = 0
    for name in re.findall(r'<script src="([^"]+)"', http.get("/", headers={"accept": "text/html"}).text):
        with http.stream("GET", name, headers={"accept-encoding": "gzip"}) as answer:
            total += sum(len(part) for part in answer.iter_raw())
    return total


async def watch(url: str, cookies: dict[str, str], seconds: float, query: str = "") -> list[tuple[float, str]]:
    """When a page was drawn anew, and what came."""
    seen: list[tuple[float, str]] = []
    async with httpx.AsyncClient(base_url=url, cookies=cookies, timeout=None) as http:
        try:
            async with asyncio.timeout(seconds), http.stream("GET", f"/live/{query}") as answer:
                async for line in answer.aiter_lines():
                    if line.startswith("data: "):
                        seen.append((time.time(), line))
        except TimeoutError:
            pass
    return seen


async def measure_delay(url: str, cookies: dict[str, str], client: Client, folder: Path) -> list[float]:
    """Seconds from a submission until the board shows it, for five of them."""
    watching = asyncio.create_task(watch(url, cookies, 14.0, "?find=new-"))
    sent = []
    await asyncio.sleep(3.0)
    for number in range(5):
        name = f"new-{number}"
        job = {"run": "python train.py", "workdir": str(folder), "name": name, "deadline": "100h"}
        sent.append((time.time(), name))
        await asyncio.to_thread(client.submit, job, False, False)
        await asyncio.sleep(2.0)
    seen = await watching
    return [min((at for at, text in seen if name in text), default=float("inf")) - sent_s for sent_s, name in sent]


def measure_load(server: psutil.Process) -> float:
    """Which part of a processor the server uses."""
    time.sleep(4.0)
    before = server.cpu_times()
    time.sleep(WATCH_S)
    after = server.cpu_times()
    return round((after.user + after.system - before.user - before.system) / WATCH_S, 4)


@contextmanager
def open_pages(url: str, cookies: dict[str, str]) -> Iterator[None]:
    """Many open pages, read by a process of their own."""
    words = [sys.executable, "-m", "benchmarks.dashboard", url, json.dumps(cookies)]
    watcher = subprocess.Popen(words)
    try:
        yield
    finally:
        watcher.terminate()
        watcher.wait()


async def watch_many(url: str, cookies: dict[str, str], pages: int, seconds: float) -> None:
    """So many open pages."""
    await asyncio.gather(*(watch(url, cookies, seconds) for _ in range(pages)))


def main() -> None:
    """Measure, and print one document."""
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as servers:
        folder = Path(scratch) / "work"
        folder.mkdir()
        homes = [Path(scratch) / name for name in ("seen", "unseen")]
        server, _ = (servers.enter_context(run_process(home)) for home in homes)
        seen, unseen = (servers.enter_context(Client(home=home)) for home in homes)
        began_s = time.monotonic()
        submit_all(seen, folder)
        found: dict[str, Any] = {"submit_s": round(time.monotonic() - began_s, 1)}
        submit_all(unseen, folder)
        found |= measure_paint(seen.url, seen.make_link(), Path(scratch) / "profile")
        with httpx.Client(base_url=seen.url) as http:
            http.get(seen.make_link().removeprefix(seen.url))
            cookies = dict(http.cookies)
            found["script_bytes"] = weigh_scripts(http)
            began_s = time.monotonic()
            page = http.get("/", headers={"accept": "text/html"})
            found |= {"page_ms": round(1000 * (time.monotonic() - began_s), 1), "page_bytes": len(page.content)}
        found["cpu_without_pages"] = measure_load(server)
        with open_pages(seen.url, cookies):
            found["cpu_with_50_pages"] = measure_load(server)
            both = measure_decisions(dict(zip(homes, (seen, unseen), strict=True)), folder)
            found["decision_with_50_pages"], found["decision_without_pages"] = both
        delays = asyncio.run(measure_delay(seen.url, cookies, seen, folder))
        found["event_on_page_s"] = [round(one, 2) for one in delays]
    print(json.dumps(found, indent=2))
    for bar, value, most in list_bars(found):
        print(f"{'met   ' if value <= most else 'MISSED'}  {bar}: {value:g} (at most {most:g})")


def list_bars(found: dict[str, Any]) -> list[tuple[str, float, float]]:
    """What was measured beside what it must not exceed; decisions may differ by a tenth, as two runs of the same do."""
    without, beside = found["decision_without_pages"], found["decision_with_50_pages"]
    return [
        ("first contentful paint, ms", found["first_paint_ms"], 1000),
        ("scripts over the wire, bytes", found["script_bytes"], 100_000),
        ("slowest event on the page, s", max(found["event_on_page_s"]), 1),
        ("part of a core for 50 pages", found["cpu_with_50_pages"] - found["cpu_without_pages"], 0.1),
        ("a decision beside 50 pages, ms of CPU", beside["cpu_ms"], 1.1 * without["cpu_ms"]),
    ]


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(Path(sys.argv[1]))
    elif len(sys.argv) == 3:
        asyncio.run(watch_many(sys.argv[1], json.loads(sys.argv[2]), PAGES, 600.0))
    else:
        main()
