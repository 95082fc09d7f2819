"""How fast the results of a job come over loopback: `springtide fetch` as typed, also interrupted and resumed.

Run `python -m benchmarks.fetch`. The whole command is timed, its start included; beside it, in the same run, a plain
copy of the same file and `curl` from Python's own file server, since the disk and the machine have their say in all.
Outputs are not hashed, weights are.
"""

import argparse
import filecmp
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.logs import serve_fake, write_job

BOUND_MB_PER_S = 200.0
JOB, STEP = "weighty", "step-000000010"
CURL = "curl, http.server"


def write_output(path: Path, megabytes: int) -> None:
    """A file that no disk can shorten."""
    path.parent.mkdir(parents=True)
    rng = random.Random(0)
    block = rng.randbytes(1_000_000)
    with path.open("wb") as file:
        for number in range(megabytes):
            file.write(number.to_bytes(8, "big") + block[8:])


def write_weights(folder: Path, source: Path) -> None:
    """The same file as the weights of a checkpoint, with the manifest that has its hash."""
    folder.mkdir(parents=True)
    (folder / "model.safetensors").hardlink_to(source)
    with source.open("rb") as file:
        told = {"bytes": source.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    (folder / "manifest.json").write_text(json.dumps({"torch": "none", "files": {"model.safetensors": told}}))


def fetch(home: Path, folder: Path, *words: str, stop_at: int | None = None) -> float:
    """Run the command in a folder; with `stop_at`, interrupt it once that much has come. The seconds it took."""
    command = [str(Path(sys.executable).with_name("springtide")), "fetch", JOB, *words, "--out", str(folder)]
    begin_s = time.perf_counter()
    process = subprocess.Popen(command, env={**os.environ, "SPRINGTIDE_HOME": str(home)}, stdout=subprocess.DEVNULL)
    while stop_at is not None and process.poll() is None:
        if sum(path.stat().st_size for path in folder.rglob("*.part")) >= stop_at:
            process.send_signal(signal.SIGINT)
            break
        time.sleep(0.005)
    code = process.wait()
    assert code == (0 if stop_at is None else 130), code
    return time.perf_counter() - begin_s


@contextmanager
def serve_plainly(folder: Path) -> Iterator[str]:
    """The URL of a folder as `python -m http.server` serves it."""
    command = [sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory", str(folder), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        found = re.search(r"http://[\d.:]+", server.stdout.readline())
        assert found is not None
        try:
            yield found[0]
        finally:
            server.terminate()


class FetchBench:
    """One file that is brought to a folder again and again, each time compared and removed, so that disks keep up."""

    def __init__(self, source: Path, folder: Path, home: Path, repeats: int) -> None:
        self.source = source
        self.target = folder / "target"
        self.home = home
        self.repeats = repeats

    def time(self, act: Callable[[], object], arrives: str) -> float:
        """The seconds of the fastest of several runs; the file arrives at a path below the target."""
        taken_s = []
        for _ in range(self.repeats):
            self.target.mkdir()
            os.sync()
            begin_s = time.perf_counter()
            act()
            taken_s.append(time.perf_counter() - begin_s)
            assert filecmp.cmp(self.source, self.target / arrives, shallow=False), arrives
            shutil.rmtree(self.target)
        return min(taken_s)

    def copy(self) -> float:
        """A plain copy on the same disk."""
        return self.time(lambda: shutil.copyfile(self.source, self.target / "copy"), "copy")

    def curl(self) -> float:
        """The same file by `curl` from a plain server."""
        with serve_plainly(self.source.parent) as url:
            command = ["curl", "--silent", "--fail", "-o", str(self.target / "curled"), f"{url}/{self.source.name}"]
            return self.time(lambda: subprocess.run(command, check=True), "curled")

    def fetch(self) -> float:
        """As an output, which has no hash."""
        return self.time(lambda: fetch(self.home, self.target, "--outputs"), f"output/{self.source.name}")

    def fetch_twice(self) -> float:
        """The same, interrupted half-way."""

        def act() -> None:
            fetch(self.home, self.target, "--outputs", stop_at=self.source.stat().st_size // 2)
            fetch(self.home, self.target, "--outputs")

        return self.time(act, f"output/{self.source.name}")

    def fetch_weights(self) -> float:
        """As weights, whose hash is checked."""
        return self.time(lambda: fetch(self.home, self.target), f"{STEP}/model.safetensors")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    # a background job of a shell ignores it, and so would what is measured
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="springtide-fetch-") as name, serve_fake(Path(name)) as (client, home):
        job = client.wait(client.submit(write_job(Path(name) / "work", JOB)))
        source = home.output(job.id) / "weights.bin"
        write_output(source, given.megabytes)
        write_weights(home.checkpoints(job.id) / STEP, source)
        bench = FetchBench(source, Path(name), home.root, given.repeats)
        taken_s = {"plain copy": bench.copy()}
        taken_s |= {CURL: bench.curl()} if shutil.which("curl") is not None else {}
        taken_s |= {"fetch --outputs": bench.fetch(), "interrupted + resumed": bench.fetch_twice()}
        taken_s["fetch, hash checked"] = bench.fetch_weights()
    for label, seconds in taken_s.items():
        rate = given.megabytes / seconds
        beside = f"   {taken_s[CURL] / seconds:.2f} of curl" if CURL in taken_s else ""
        print(f"{label:<22} {seconds:6.2f} s   {rate:6.0f} MB/s   {rate / BOUND_MB_PER_S:.2f} of the bound{beside}")
    print(f"bound {BOUND_MB_PER_S:g} MB/s; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
