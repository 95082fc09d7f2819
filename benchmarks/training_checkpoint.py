"""Training time lost to an asynchronous checkpoint of 100 MB, against a blocking save of the same state, in wall time.

Lost is what a save and the steps after it take beyond as many undisturbed steps taken just before. The block of steps
is longer than the writing, so whatever the writing costs training is in it. Blocks of both kinds take turns, and the
result is the median over the rounds. Run at the highest priority where the system allows it, because wall time on a
shared machine is other programs' too.
"""

import argparse
import math
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.utils.data import TensorDataset

import springtide
from springtide.experiments.gangs import take_cores
from springtide.training import persistence

KINDS = ("async", "blocking")
WIDTH, LAYERS = 1448, 4  # 8.4 million parameters: with Adam's two moments, 100 MB of state
BLOCK = 2  # steps of a block, in blocking saves
MOST_STEPS = 60


@dataclass(frozen=True, slots=True)
class Sample:
    """One save: seconds that the call took, seconds lost in all, and whether it was on disk when the block ended."""

    call_s: float
    lost_s: float
    covered: bool


def main() -> None:
    """Measure and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--dir", type=Path, help="where checkpoints go; default: a temporary folder")
    args = parser.parse_args()
    take_cores(frozenset(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory(dir=args.dir) as name:
        os.environ |= {"SPRINGTIDE_CHECKPOINT_DIR": name, "SPRINGTIDE_CHECKPOINT_EVERY_S": "0"}
        samples = measure(args.rounds)
    table = Table("save", "call s", "lost s, median", "least", "most", "on disk within the block")
    for kind, found in samples.items():
        lost = [sample.lost_s for sample in found]
        covered = f"{sum(sample.covered for sample in found)} of {len(found)}"
        numbers = (median(sample.call_s for sample in found), median(lost), min(lost), max(lost))
        table.add_row(kind, *(f"{number:.4f}" for number in numbers), covered)
    Console().print(table)
    lost_s = {kind: median(sample.lost_s for sample in found) for kind, found in samples.items()}
    print(f"lost, asynchronous / blocking: {lost_s['async'] / lost_s['blocking']:.3f} (bar: <= 0.10)")


def measure(rounds: int) -> dict[str, list[Sample]]:
    """Both kinds of save, in turns."""
    run, loop = start_training()
    take(loop, 10)
    steps = choose_steps(run, loop)
    print(f"blocks of {steps} steps", flush=True)
    samples: dict[str, list[Sample]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind in KINDS:
            samples[kind].append(save_once(run, loop, kind, steps))
    return samples


def choose_steps(run: Any, loop: Iterator[None]) -> int:
    """As many steps as take twice a blocking save, within reason."""
    persistence.save(run, wait=True)  # the first one also gets the memory for the copy
    step_s = take(loop, 10) / 10
    before = time.perf_counter()
    persistence.save(run, wait=True)
    return min(MOST_STEPS, max(20, math.ceil(BLOCK * (time.perf_counter() - before) / step_s)))


def save_once(run: Any, loop: Iterator[None], kind: str, steps: int) -> Sample:
    """A block of undisturbed steps, then a save and as many steps."""
    undisturbed_s = take(loop, steps)
    before = time.perf_counter()
    persistence.save(run, wait=kind == "blocking")
    call_s = time.perf_counter() - before
    disturbed_s = take(loop, steps)
    covered = not run.checkpoints.is_busy
    persistence.settle(run)
    return Sample(call_s, call_s + disturbed_s - undisturbed_s, covered)


def start_training() -> tuple[Any, Iterator[None]]:
    """A run of one logical worker with 100 MB of state, and its steps."""
    run: Any = springtide.init(logical_workers=1, seed=0)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters())
    data = TensorDataset(torch.randn(4096, WIDTH))
    model, optimizer, loader = run.prepare(model, optimizer, data, batch_size=8)
    return run, step(run, model, optimizer, loader)


def step(run: Any, model: nn.Module, optimizer: torch.optim.Optimizer, loader: Any) -> Iterator[None]:
    """Steps without end."""
    for _ in run.epochs(1_000_000):
        for (inputs,) in loader:
            model(inputs).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            yield


def take(loop: Iterator[None], steps: int) -> float:
    """Take this many steps; the seconds they took."""
    before = time.perf_counter()
    for _ in range(steps):
        next(loop)
    return time.perf_counter() - before


if __name__ == "__main__":
    main()
