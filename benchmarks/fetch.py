"""How fast the output of a job comes over loopback: `springtide fetch` as typed, also interrupted and resumed.

Run `python -m benchmarks.fetch`. The whole command is timed, its start included; beside it a plain copy of the same
file in the same run, since the disk has its say in both.
"""

import argparse
import filecmp
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.logs import serve_fake, write_job

BOUND_MB_PER_S = 200.0


def write_output(path: Path, megabytes: int) -> None:
    """A file that no disk can shorten."""
    path.parent.mkdir(parents=True)
    rng = random.Random(0)
    block = rng.randbytes(1_000_000)
    with path.open("wb") as file:
        for number in range(megabytes):
            file.write(number.to_bytes(8, "big") + block[8:])


def fetch(home: Path, folder: Path, stop_at: int | None = None) -> float:
    """Run the command in a folder; with `stop_at`, interrupt it once that much has come. The seconds it took."""
    command = [str(Path(sys.executable).with_name("springtide")), "fetch", "weighty", "--outputs", "--out", str(folder)]
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


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="springtide-fetch-") as name, serve_fake(Path(name)) as (client, home):
        folder = Path(name)
        job = client.wait(client.submit(write_job(folder / "work", "weighty")))
        source = home.output(job.id) / "weights.bin"
        write_output(source, given.megabytes)
        begin_s = time.perf_counter()
        shutil.copyfile(source, folder / "copy")
        copy_s = time.perf_counter() - begin_s
        whole_s = min(fetch(home.root, folder / f"whole-{number}") for number in range(given.repeats))
        first_s = fetch(home.root, folder / "parts", stop_at=given.megabytes * 500_000)
        rest_s = fetch(home.root, folder / "parts")
        for target in ("whole-0", "parts"):
            assert filecmp.cmp(source, folder / target / "output" / "weights.bin", shallow=False), target
    for label, seconds in (("plain copy", copy_s), ("fetch", whole_s), ("interrupted + resumed", first_s + rest_s)):
        rate = given.megabytes / seconds
        beside = f"bound {BOUND_MB_PER_S:g}   ratio {rate / BOUND_MB_PER_S:.2f}"
        print(f"{label:<22} {seconds:6.2f} s   {rate:6.0f} MB/s   {beside}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
