"""Peak memory of eight logical workers in one process, against one logical worker and against eight packed processes.

Bar: peak(8) <= 1.15 x peak(1) plus one copy of the gradients per logical worker. Each process is started fresh and
samples its own private memory (RssAnon), so what libraries share is not counted.
"""

import argparse

from experiments.loops import load_workload
from experiments.peaks import MIB, measure_peak
from rich.console import Console
from rich.table import Table

WORKERS = 8


def main() -> None:
    """Measure in fresh processes and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", default="resnet,gpt")
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    table = Table("example", "what", "peak MiB", "against N = 1", "bar")
    for name in args.examples.split(","):
        add_rows(table, name, args.steps)
    Console().print(table)


def add_rows(table: Table, name: str, steps: int) -> None:
    """The rows of one example."""
    copy = sum(p.numel() * p.element_size() for p in load_workload(name).model().parameters())
    one = measure_peak(name, 1, packed=False, steps=steps).memory_bytes
    eight = measure_peak(name, WORKERS, packed=False, steps=steps).memory_bytes
    packed = measure_peak(name, WORKERS, packed=True, steps=steps).memory_bytes
    table.add_row(name, "1 logical worker, one process", f"{one / MIB:.0f}", "1", "")
    beyond = (eight - WORKERS * copy) / one
    table.add_row(name, "8 logical workers, one process", f"{eight / MIB:.0f}", f"{eight / one:.2f}", "")
    table.add_row(name, "  less 8 gradient copies", f"{(eight - WORKERS * copy) / MIB:.0f}", f"{beyond:.2f}", "<= 1.15")
    table.add_row(name, "8 processes of stock DDP", f"{packed / MIB:.0f}", f"{packed / one:.2f}", "beside it")


if __name__ == "__main__":
    main()
