"""The pause of a warm rescale, from the last step before to the first step after, beside torchrun's restart.

Ours: the CNN example under the supervisor, resized while it trains; joiners come from the fork server and run the
script up to `prepare` meanwhile. torchrun: the same network as stock DDP, stopped and started again at the other size.
Wall time.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from experiments.gangs import advance
from experiments.loops import load_workload, step_ddp
from experiments.pauses import measure_sizes
from rich.console import Console
from rich.table import Table

SIZES = (4, 1, 3, 2)


def main() -> None:
    """Measure both and print the table, or be a rank of torchrun's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="times through the sizes 4, 1, 3, 2")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        train_as_rank()
        return
    ours = list(measure_sizes("cnn", (*SIZES, *SIZES * args.rounds)))
    restarts = [measure_torchrun(before, after) for before, after in ((4, 2), (2, 4), (2, 1))]
    table = Table("what", "median s", "worst s", "bar")
    table.add_row(
        "rescale in place, last step before to first step after", *describe([row[2] for row in ours]), "<= 0.15"
    )
    for size in sorted({row[1] for row in ours}):
        table.add_row(f"  to {size} processes", *describe([row[2] for row in ours if row[1] == size]), "")
    table.add_row("torchrun stopped and restarted, stop to first step", *describe(restarts), "beside it")
    Console().print(table)
    print(f"ratio {median(row[2] for row in ours) / median(restarts):.3f}")


def describe(seconds: list[float]) -> tuple[str, str]:
    """Median and worst, as shown."""
    return f"{median(seconds):.3f}", f"{max(seconds):.3f}"


def measure_torchrun(before: int, after: int) -> float:
    """Seconds from telling a torchrun job to stop until its successor of another size has taken a step."""
    with tempfile.TemporaryDirectory() as name:
        first = start_torchrun(before, Path(name) / "first")
        stopped_s = time.monotonic()
        first.send_signal(signal.SIGTERM)
        first.wait()
        second = start_torchrun(after, Path(name) / "second")
        pause_s = time.monotonic() - stopped_s
        second.send_signal(signal.SIGTERM)
        second.wait()
        return pause_s


def start_torchrun(processes: int, stepped: Path) -> "subprocess.Popen[bytes]":
    """A torchrun job that has taken its first step."""
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "BENCHMARK_STEPPED": str(stepped)}
    words += ["-m", "benchmarks.training_rescale", "--rank"]
    job = subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL)
    while not stepped.exists():
        if job.poll() is not None:
            raise SystemExit(f"torchrun ended with code {job.returncode} before its first step")
        time.sleep(0.01)
    return job


def train_as_rank() -> None:
    """Train as a rank of stock DDP until stopped, saying when the first step is taken."""
    torch.set_num_threads(1)
    loop = step_ddp(load_workload("cnn"))
    advance(loop, 1)
    if os.environ["RANK"] == "0":
        Path(os.environ["BENCHMARK_STEPPED"]).write_text(json.dumps(True))
    for _ in loop:
        pass


if __name__ == "__main__":
    main()
