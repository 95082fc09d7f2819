"""Peak private memory, and time, of training in fresh processes: logical workers in one, or packed one in each.

    python -m experiments.peaks     (an order as JSON on its input, as `measure_children` gives it)

Each process samples its own private memory (RssAnon), so what libraries share is not counted. CPU time, because packed
processes disturb one another on a small machine.
"""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.codes import reach_checkout

MIB = 1 << 20
WARM_STEPS = 1
PORT = "SPRINGTIDE_PEAKS_PORT"


@dataclass(frozen=True, slots=True)
class Peak:
    """What training took: bytes over all processes, and CPU seconds of one worker's mini-batch."""

    memory_bytes: int
    minibatch_cpu_s: float


class Sampler(threading.Thread):
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


def measure_peak(example: str, workers: int, packed: bool, steps: int) -> Peak:
    """All logical workers in one fresh process, or as many packed processes of stock DDP with one each."""
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    environment = {**reach_checkout(), "OMP_NUM_THREADS": "1", PORT: str(store.port)}
    order: dict[str, Any] = {"example": example, "workers": workers, "packed": packed, "steps": steps}
    children = []
    for rank in range(workers if packed else 1):
        child = subprocess.Popen(
            [sys.executable, "-m", "experiments.peaks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        assert child.stdin is not None, "the order goes to the child's input"
        child.stdin.write(json.dumps(order | {"rank": rank}))
        child.stdin.close()
        child.stdin = None
        children.append(child)
    answers = [json.loads(child.communicate()[0]) for child in children]
    return Peak(sum(answer["bytes"] for answer in answers), sum(answer["cpu_s"] for answer in answers) / workers)


def report_peak(order: dict[str, Any]) -> None:
    """Train a few steps as one of the processes, and print its peak and the CPU seconds of a step."""
    import torch
    import torch.distributed as dist

    from experiments.gangs import advance, set_ranks
    from experiments.loops import load_workload, step_ddp, step_elastic

    torch.set_num_threads(1)
    workload = load_workload(order["example"])
    sampler = Sampler()
    sampler.start()
    if order["packed"]:
        # A single stock rank needs a group as well, which torchrun's variables describe.
        set_ranks(order["rank"], order["workers"], int(os.environ[PORT]), always=True)
        loop = step_ddp(workload)
    else:
        loop = step_elastic(workload, order["workers"])
    advance(loop, WARM_STEPS)
    before_s = time.process_time()
    advance(loop, order["steps"])
    cpu_s = (time.process_time() - before_s) / order["steps"]
    if order["packed"]:
        dist.barrier()
    print(json.dumps({"bytes": sampler.bytes, "cpu_s": cpu_s}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    report_peak(json.load(sys.stdin))
