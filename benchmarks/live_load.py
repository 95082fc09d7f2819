"""How the control plane bears load: answers, submissions, listing and memory, over HTTP with the fake executor.

Run `python -m benchmarks.live_load`. Each figure is printed beside its bound.
"""

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import quantiles
from typing import Any

import psutil

from springtide.control.client import Client, load_job
from springtide.control.homes import Home
from springtide.control.records import JobRecord, State
from springtide.control.server import start_background
from springtide.control.store import Batch, Store

OPTIONS = {"rate_per_s": 100_000.0, "burst": 1_000_000, "most_active": 1_000_000}
BOUNDS = {
    "answer_p99_ms": 50.0,
    "submitted_in_s": 5.0,
    "answered_in_s": 15.0,
    "ps_ms": 200.0,
    "memory_mb": 200.0,
}


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--submissions", type=int, default=1000)
    parser.add_argument("--finished", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="springtide-load-") as folder:
        figures = measure(Path(folder), given.submissions, given.finished)
    if given.json:
        print(json.dumps({"schema": 1, "figures": figures, "bounds": BOUNDS}, indent=2))
        return
    for name, value in figures.items():
        bound = BOUNDS.get(name)
        print(f"{name:<16} {value:10.1f}" + (f"   bound {bound:g}   ratio {value / bound:.2f}" if bound else ""))


def measure(folder: Path, submissions: int, finished: int) -> dict[str, float]:
    """All figures from one server."""
    home = Home(folder / "home").make()
    home.config.write_text(json.dumps(OPTIONS))
    fill(home, finished)
    url = start_background(home, ("--engine", "fake", "--devices", "2", "--port", "0"))
    with Client(url, home=folder / "home") as client:
        body = prepare(client, folder / "work")
        figures = {"ps_ms": time_ms(client.jobs), "ps_all_ms": time_ms(lambda: client.jobs(all=True))}
        for _ in range(100):
            client.ask("POST", "/api/v1/jobs", json=body)
        times = [time_ms(lambda: client.ask("POST", "/api/v1/jobs", json=body)) for _ in range(200)]
        figures["answer_p50_ms"], figures["answer_p99_ms"] = quantiles(times, n=100)[49], quantiles(times, n=100)[98]
        for job in client.jobs(limit=1000):
            client.cancel(job["id"])
        figures |= flood(url, home, body, submissions)
        pid = json.loads(home.address.read_text())["pid"]
        figures["memory_mb"] = psutil.Process(pid).memory_info().rss / 1e6
        client.stop()
    return figures


def fill(home: Home, finished: int) -> None:
    """Put ended jobs into the database before the server starts."""
    store = Store(f"sqlite:///{home.database}")
    now_s = time.time()
    jobs = {
        f"old{n}": JobRecord(
            f"old{n}", f"old-{n}", "ann", State.SUCCEEDED, {"run": "x"}, now_s, seq=n, finished_s=now_s
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
    client.wait(client.submit(folder / "job.yaml")["id"])
    return {"job": job, "archive": client.upload(load_job(folder / "job.yaml").pack())}


def flood(url: str, home: Home, body: dict[str, Any], submissions: int) -> dict[str, float]:
    """Many submissions at once: when the last was sent, when the last was answered, and that none was refused."""
    local = threading.local()
    sent: list[float] = []
    started_s = time.monotonic()

    def submit(_: int) -> str:
        if not hasattr(local, "client"):
            local.client = Client(url, home=home.root)
        sent.append(time.monotonic() - started_s)
        return str(local.client.ask("POST", "/api/v1/jobs", json=body)["answer"])

    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(submit, range(submissions)))
    answered_s = time.monotonic() - started_s
    refused = sum(answer not in ("admitted", "waitlisted", "declined") for answer in answers)
    return {"submitted_in_s": max(sent), "answered_in_s": answered_s, "refused": float(refused)}


def time_ms(act: Callable[[], object]) -> float:
    """Milliseconds that something takes."""
    started_s = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - started_s)


if __name__ == "__main__":
    main()
