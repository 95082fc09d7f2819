"""What the determinism levels cost and hold: D1 and D2 against a plain loop, and their bits across device types.

Cost is CPU time per step with all logical workers in one process, against gradient accumulation over the same
micro-batches without any of ours; the three take turns, and the ratio is taken within each round. Device types are
emulated on one CPU (threads, instruction sets): every parameter, optimizer state, buffer and loss of every step is
compared by bits with the first type's. Exits 1 if D2 differs anywhere, or if D1 differs nowhere, which would prove
nothing.
"""

import argparse
import os
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median

import torch
import torch._dynamo  # the first optimizer imports it; forked processes must not pay for it
from experiments.gangs import Trial, time_gang
from experiments.loops import Loop
from experiments.overheads import start_level, start_plain
from rich.console import Console
from rich.table import Table

from springtide.examples import NAMES
from springtide.verification.digest_compare import Records, find_difference, read_records

WORKERS = 4
LEVELS = ("D1", "D2")

#: The first is this machine as it is; the specification's section 5 says which variables change bits, not draws.
DEVICE_TYPES: Mapping[str, Mapping[str, str]] = {
    "as it is": {},
    "2 threads": {"SPRINGTIDE_THREADS": "2"},
    "SSE4.1": {"ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"},
    "ATen AVX2": {"ATEN_CPU_CAPABILITY": "avx2"},
}


def main() -> None:
    """Measure every example and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", default=",".join(NAMES))
    parser.add_argument("--steps", type=int, default=4, help="global steps per measurement")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    costs = Table("example", "D1 / plain", "D2 / plain", title="CPU time per step: median of the rounds (least, most)")
    bits = Table("example", *(f"{kind}, {level}" for kind in list(DEVICE_TYPES)[1:] for level in LEVELS))
    failed = False
    for name in args.examples.split(","):
        ratios = measure_costs(name, args.steps, args.rounds)
        costs.add_row(name, *(describe(ratios[level]) for level in LEVELS))
        verdicts = compare_types(name)
        bits.add_row(name, *(verdicts[kind, level] for kind in list(DEVICE_TYPES)[1:] for level in LEVELS))
        equal = {level: [verdicts[key] == "equal" for key in verdicts if key[1] == level] for level in LEVELS}
        failed |= all(equal["D1"]) or not all(equal["D2"])
    console = Console(width=140)
    console.print(costs)
    console.print("EasyScale, D1+D2 on GPUs: CNNs +160 % on average (at most +447 %), other models +0.4 %")
    console.print(bits)
    raise SystemExit(int(failed))


def measure_costs(name: str, steps: int, rounds: int) -> dict[str, list[float]]:
    """CPU time of each level over a plain loop's, round by round."""
    ratios: dict[str, list[float]] = {level: [] for level in LEVELS}
    for _ in range(rounds):
        plain_s = time_gang([partial(start_plain, {}, name, WORKERS)], Trial(steps)).cpu_s
        for level in LEVELS:
            made = partial(start_level, {}, name, WORKERS, level)
            ratios[level].append(time_gang([made], Trial(steps)).cpu_s / plain_s)
    return ratios


def describe(ratios: list[float]) -> str:
    """The middle of some ratios, and their ends."""
    return f"{median(ratios):.2f} ({min(ratios):.2f}, {max(ratios):.2f})"


def compare_types(name: str) -> dict[tuple[str, str], str]:
    """For each device type but the first and each level: equal to the first, or where it first differs."""
    verdicts = {}
    for level in LEVELS:
        traces = {kind: trace(name, level, variables) for kind, variables in DEVICE_TYPES.items()}
        first, *others = traces
        for kind in others:
            difference = find_difference(traces[first], traces[kind])
            where = "equal" if difference is None else f"step {difference.step}, {difference.tensor.split()[0]}"
            verdicts[kind, level] = where
    return verdicts


def trace(name: str, level: str, variables: Mapping[str, str]) -> Records:
    """The digests of three steps at a level on a device type."""
    with tempfile.TemporaryDirectory() as folder:
        time_gang([partial(start_traced, variables, name, level, folder)], Trial(2, warm=1))
        return read_records(Path(folder))


def start_traced(variables: Mapping[str, str], name: str, level: str, folder: str) -> Loop:
    """Our loop, writing digests."""
    os.environ["SPRINGTIDE_TRACE_DIR"] = folder
    return start_level(variables, name, WORKERS, level)


if __name__ == "__main__":
    main()
