"""Memory per process of a sharded GPT on 1, 2 and 4 processes, beside the same unsharded; four logical workers.

Bar: parameters, gradients and optimizer state of a process at P = 4 <= 0.35 of those at P = 1. They are counted as the
bytes of all tensors alive between a backward and the optimizer's step, in the process that has most. Beside it stands
the peak of private memory within steps, as the system counts it (activations, what is gathered, what is on its way, the
allocator's rest), less that of the same script with a model of no size, which is torch's and ours on any P.
"""

import json
import tempfile
from pathlib import Path

from experiments.codes import reach_checkout
from experiments.peaks import MIB
from rich.console import Console
from rich.table import Table

from springtide.training.group.rosters import spread
from springtide.training.settings import Settings
from springtide.verification.scripted_jobs import Host, ScriptedJob, follow

SCRIPT = Path(__file__).parent / "scripts" / "sharded_memory.py"
WORKERS = 4
WIDTH, NO_WIDTH = 384, 8
BAR = 0.35


def measure(host: Host, kind: str, processes: int) -> dict[str, int]:
    """What the process that holds most holds, and its peak without what a process needs for no model."""
    empty, found = (train(host, kind, processes, width) for width in (NO_WIDTH, WIDTH))
    return {**found, "peak": found["peak"] - empty["peak"], "empty": empty["peak"]}


def train(host: Host, kind: str, processes: int, width: int) -> dict[str, int]:
    """The largest figures that any process of a run has written."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        variables = {"PYTHONPATH": reach_checkout()["PYTHONPATH"]}
        job = ScriptedJob(SCRIPT, (kind, str(width)), folder, Settings(output=folder), variables=variables)
        follow(job, [(0, spread(WORKERS, processes))], host=host)
        found = [json.loads(file.read_text()) for file in folder.glob("memory-*.json")]
    assert len(found) == processes
    return {name: max(one[name] for one in found) for name in found[0]}


def main() -> None:
    """Measure and print the table."""
    table = Table("model", "P", "tensors held MiB", "of P = 1", "bar", "peak MiB", "of P = 1", "no model MiB")
    with Host() as host:
        for kind in ("sharded", "whole"):
            base: dict[str, int] = {}
            for processes in (1, 2, 4):
                found = measure(host, kind, processes)
                base = base or found
                held, peak = found["held"] / base["held"], found["peak"] / base["peak"]
                bar = f"<= {BAR}" if (kind, processes) == ("sharded", WORKERS) else ""
                cells = [f"{found['held'] / MIB:.0f}", f"{held:.2f}", bar, f"{found['peak'] / MIB:.0f}", f"{peak:.2f}"]
                table.add_row(kind, str(processes), *cells, f"{found['empty'] / MIB:.0f}")
    Console().print(table)
    Console().print(f"parameters: {found['parameters'] / MIB:.0f} MiB")


if __name__ == "__main__":
    main()
