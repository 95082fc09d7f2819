"""What logical workers cost: against gradient accumulation, and against stock DDP on one process and on four.

Prints ratios; the alternative of every row is measured in the same run, in turns with it. CPU time unless said. Wall
time on one core is measured at the highest priority, where the system allows that: at equal priority four processes get
a larger part of a shared core than one, and the ratio would measure the neighbours. What ran beside is printed.
"""

import argparse
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from time import monotonic

import torch
import torch._dynamo  # the first optimizer imports it; forked ranks must not pay for it
from experiments.gangs import WARM, Cost, Made, Trial, time_gang, time_in_turns, time_interleaved
from experiments.loops import Workload, load_workload, step_accumulating, step_ddp, step_elastic
from experiments.switches import GUARDS, measure_switches
from rich.console import Console
from rich.table import Table

WORKERS = 4
#: Blocks of steps over which the guards' share is taken.
GUARDED_BLOCKS = 12
#: Rounds of gangs that are measured from their first step on, each made anew.
COLD_ROUNDS = 3
# What is compared, seconds per step of ours and of what is beside it, round by round, and the bar.
Row = tuple[str, list[float], list[float], str]


def main() -> None:
    """Measure every ratio and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", default="gpt,cnn")
    parser.add_argument("--batch", type=int, help="batch per logical worker instead of the example's")
    parser.add_argument("--blocks", type=int, default=9)
    parser.add_argument("--steps", type=int, default=10, help="global steps per block")
    parser.add_argument("--rounds", type=int, default=30, help="rounds in which gangs of processes take a block each")
    args = parser.parse_args()
    torch.set_num_threads(1)
    began_s, busy_s, own_s = monotonic(), read_busy(), sum(os.times()[:4])
    table = Table("example", "what", "ours ms/step", "beside it ms/step", "ratio", "bar", title="N = 4")
    for name in args.examples.split(","):
        workload = load_workload(name)
        if args.batch:
            workload = replace(workload, batch=args.batch)
        for what, ours_s, other_s, bar in measure(workload, args.blocks, args.steps, args.rounds):
            ratio = median(ours / other for ours, other in zip(ours_s, other_s, strict=True))
            times = (f"{median(values) * 1e3:.2f}" for values in (ours_s, other_s))
            table.add_row(name, what, *times, f"{ratio:.3f}", bar)
    console = Console()
    console.print(table)
    beside = (read_busy() - busy_s - sum(os.times()[:4]) + own_s) / (monotonic() - began_s)
    console.print(f"other programs used {max(0.0, beside):.2f} of {os.cpu_count()} cores meanwhile; ratios are medians")


def read_busy() -> float:
    """CPU seconds that this machine has spent on anything since it started; 0 where it does not say."""
    file = Path("/proc/stat")
    if not file.exists():
        return 0.0
    user, nice, system = (int(word) for word in file.read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def measure(workload: Workload, blocks: int, steps: int, rounds: int) -> Iterator[Row]:
    """Every row of one example. Gangs first: this process must not have trained when it forks them."""
    small = workload.name == "cnn"
    yield from measure_gangs(workload, steps, rounds)
    loops = {
        "ours": step_elastic(workload, WORKERS),
        "other": step_accumulating(workload, WORKERS),
        "unseeded": step_accumulating(workload, WORKERS, seeding=False),
    }
    seconds = time_interleaved(loops, blocks, steps)
    yield "one process / gradient accumulation", seconds["ours"], seconds["other"], "<= 1.15" if small else "<= 1.05"
    yield "  where the data draws unseeded", seconds["ours"], seconds["unseeded"], "reported"
    switching_s, step_s = measure_switches(loops["ours"], steps * 3)
    yield "context switches / whole step", [switching_s], [step_s], "<= 0.03" if small else "<= 0.01"


def measure_gangs(workload: Workload, steps: int, rounds: int) -> Iterator[Row]:
    """Rows against stock DDP with four processes, in turns."""
    one: list[Made] = [partial(step_elastic, workload, WORKERS)]
    four: list[Made] = [partial(step_elastic, workload, WORKERS)] * WORKERS
    unguarded: list[Made] = [partial(step_elastic, workload, WORKERS, guarded=False)] * WORKERS
    stock: list[Made] = [partial(step_ddp, workload)] * WORKERS
    cold = {"four cold": four, "stock cold": stock}
    costs: dict[str, list[Cost]] = {name: [] for name in cold}
    for _ in range(COLD_ROUNDS):
        for name, makers in cold.items():
            costs[name].append(time_gang(makers, Trial(WARM, warm=0)))
    pinned = Trial(steps, cores=frozenset({0}))
    costs |= time_in_turns({"one pinned": (one, pinned), "stock pinned": (stock, pinned)}, rounds)
    free = {"one": one, "four": four, "four unguarded": unguarded, "stock": stock}
    costs |= time_in_turns({name: (makers, Trial(steps)) for name, makers in free.items()}, rounds)
    cpu = {name: [cost.cpu_s for cost in values] for name, values in costs.items()}
    wall = {name: [cost.wall_s for cost in values] for name, values in costs.items()}
    yield "one process / DDP on 4, CPU", cpu["one"], cpu["stock"], "<= 0.9"
    yield "one process / DDP on 4, wall on one core", wall["one pinned"], wall["stock pinned"], "<= 1.0"
    yield "one process / DDP on 4, wall unpinned", wall["one"], wall["stock"], "reported"
    yield "4 processes / DDP on 4, CPU", cpu["four"], cpu["stock"], "<= 1.03"
    yield "4 processes / DDP on 4, wall", wall["four"], wall["stock"], "reported"
    yield f"  in the first {WARM} steps of a run, CPU", cpu["four cold"], cpu["stock cold"], "reported"
    yield "4 processes guarded / unguarded, CPU", cpu["four"], cpu["four unguarded"], "reported"
    # The bar is held against the share itself, for two runs differ by more than that: a look of a guard
    # comes once in several steps, and is timed where it stands, over as many steps as have many looks.
    looked = time_gang(four, Trial(steps * GUARDED_BLOCKS, within=GUARDS))
    yield "  guards / whole step, CPU", [looked.within_s], [looked.cpu_s], "<= 0.01"


if __name__ == "__main__":
    main()
