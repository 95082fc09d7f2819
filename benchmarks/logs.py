"""How long the log of a job takes to read: `springtide logs` as a user types it, on a log of 100 MB.

Run `python -m benchmarks.logs`. The whole command is timed, its start included; the best of several runs stands beside
its bound, with the start of `springtide --version` in the same run for comparison.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from springtide.client.client import Client
from springtide.control.background import start_background
from springtide.control.storage.state_dir import StateDir
from springtide.executors.local.jobs.worker_logs import JobLogs

SERVE = ("--engine", "fake", "--devices", "2", "--port", "0")
BOUNDS_S = {"--version": 0.25, "logs -n 100": 0.3, "logs --grep over all": 2.0, "submit of a known job": 0.5}


@contextmanager
def serve_fake(folder: Path) -> Iterator[tuple[Client, StateDir]]:
    """A server of its own process in which nothing really runs."""
    home = StateDir(folder / "home").make()
    url = start_background(home, SERVE)
    with Client(url, home=home.root) as client:
        try:
            yield client, home
        finally:
            client.stop()


def write_job(folder: Path, name: str) -> Path:
    """A job file with a script beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text("print('hello')\n")
    path = folder / "job.yaml"
    path.write_text(json.dumps({"name": name, "run": "python train.py", "steps": 10, "deadline": "10h"}))
    return path


def write_log(logs: JobLogs, megabytes: int) -> None:
    """A log as a chatty script leaves it: a line of 80 bytes every millisecond, metrics every thousand."""
    lines = megabytes * 1_000_000 // 80
    text = "".join(f"{number:09d} " + "x" * 69 + "\n" for number in range(1000)).encode()
    for block in range(lines // 1000):
        logs.write(0, text[:-10] + b"needle" + f"{block % 1000:03d}\n".encode(), 1e9 + block)
        logs.write_metrics(block + 1, {"loss": 1.0}, 1e9 + block + 0.5)
    logs.close()


def time_command(home: StateDir, words: list[str], repeats: int) -> tuple[float, str]:
    """The best wall time of a command, and what it printed."""
    command = [str(Path(sys.executable).with_name("springtide")), *words]
    environment = {**os.environ, "SPRINGTIDE_HOME": str(home.root)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what was installed or run once is compiled; the best run counts
    best_s, said = float("inf"), ""
    for _ in range(repeats):
        begin_s = time.perf_counter()
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        best_s = min(best_s, time.perf_counter() - begin_s)
        said = done.stdout
        assert done.returncode == 0, done.stderr
    return best_s, said


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="springtide-logs-") as folder, serve_fake(Path(folder)) as (client, home):
        file = write_job(Path(folder) / "work", "chatty")
        job = client.wait(client.submit(file))
        write_log(JobLogs(home.logs(job.id)), given.megabytes)
        figures["--version"], _ = time_command(home, ["--version"], given.repeats)
        figures["logs -n 100"], last = time_command(home, ["logs", "chatty", "-n", "100"], given.repeats)
        assert len(last.splitlines()) == 100
        grep = ["logs", "chatty", "--grep", r"needle77\d"]
        figures["logs --grep over all"], found = time_command(home, grep, given.repeats)
        assert set(found.split()) and all("needle77" in line for line in found.splitlines())
        figures["submit of a known job"], _ = time_command(home, ["submit", str(file)], given.repeats)
    for name, value in figures.items():
        print(f"{name:<22} {value:6.2f} s   bound {BOUNDS_S[name]:g} s   ratio {value / BOUNDS_S[name]:.2f}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
