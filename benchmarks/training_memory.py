"""Peak memory of eight logical workers in one process, against one logical worker and against eight packed processes.

Bar: peak(8) <= 1.15 x peak(1) plus one copy of the gradients per logical worker. Each process is started fresh and
samples its own private memory (RssAnon), so what libraries share is not counted.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table

from benchmarks.training_timing import advance, set_ranks
from benchmarks.training_workloads import load_workload, step_ddp, step_elastic

MIB = 1 << 20
WORKERS = 8


class Peak(threading.Thread):
    """Samples this process's private memory every two milliseconds and keeps the largest."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.bytes = 0

    def run(self) -> None:
        while True:
            self.bytes = max(self.bytes, read_private_bytes())
            time.sleep(0.002)


def read_private_bytes() -> int:
    """Private memory of this process now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def main() -> None:
    """Measure in fresh processes and print the table, or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", default="resnet,gpt")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--child", nargs=3, metavar=("KIND", "WORKERS", "RANK"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.child is not None:
        report_peak(args.examples, args.child[0], int(args.child[1]), args.steps)
        return
    table = Table("example", "what", "peak MiB", "against N = 1", "bar")
    for name in args.examples.split(","):
        add_rows(table, name, args.steps)
    Console().print(table)


def add_rows(table: Table, name: str, steps: int) -> None:
    """The rows of one example."""
    copy = sum(p.numel() * p.element_size() for p in load_workload(name).model().parameters())
    one = measure(name, "elastic", 1, steps)
    eight = measure(name, "elastic", WORKERS, steps)
    packed = measure(name, "ddp", WORKERS, steps)
    table.add_row(name, "1 logical worker, one process", f"{one / MIB:.0f}", "1", "")
    beyond = (eight - WORKERS * copy) / one
    table.add_row(name, "8 logical workers, one process", f"{eight / MIB:.0f}", f"{eight / one:.2f}", "")
    table.add_row(name, "  less 8 gradient copies", f"{(eight - WORKERS * copy) / MIB:.0f}", f"{beyond:.2f}", "<= 1.15")
    table.add_row(name, "8 processes of stock DDP", f"{packed / MIB:.0f}", f"{packed / one:.2f}", "beside it")


def measure(name: str, kind: str, workers: int, steps: int) -> int:
    """Sum of the peaks of fresh processes: all logical workers in one, or one stock rank in each."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks = workers if kind == "ddp" else 1
    children = []
    for rank in range(ranks):
        words = [sys.executable, "-m", "benchmarks.training_memory", "--examples", name, "--steps", str(steps)]
        words += ["--child", kind, str(workers), str(rank)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "BENCHMARK_PORT": str(store.port)}
        children.append(subprocess.Popen(words, stdout=subprocess.PIPE, env=environment, text=True))
    return sum(int(json.loads(child.communicate()[0])) for child in children)


def report_peak(name: str, kind: str, workers: int, steps: int) -> None:
    """Train a few steps and print the peak of this process."""
    workload = load_workload(name)
    peak = Peak()
    peak.start()
    if kind == "ddp":
        set_ranks(int(sys.argv[-1]), workers, int(os.environ["BENCHMARK_PORT"]))
        advance(step_ddp(workload), steps)
        dist.barrier()
    else:
        advance(step_elastic(workload, workers, workers), steps)
    print(peak.bytes, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
