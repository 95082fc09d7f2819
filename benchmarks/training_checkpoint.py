"""Training time lost to an asynchronous checkpoint of 100 MB, against a blocking save of the same state.

Lost is what a save and the steps until it is on disk (but no more than MOST_STEPS) take beyond as many undisturbed
steps, by the blocks of steps before and after it. Saves of both kinds take turns; the result is the ratio of their
medians, with the interval that holds 90 % of resampled ones. Twice: in wall time, which on a shared machine is other
programs' too, and with the steps counted in CPU time of the training thread, which does not see waiting. Run at the
highest priority where the system allows it.
"""

import argparse
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from experiments.gangs import take_cores
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.utils.data import TensorDataset

import springtide
from springtide.training.state import checkpointing

KINDS = ("async", "blocking")
CLOCKS = {"wall": "wall time", "cpu": "CPU time of the training thread"}
WIDTH, LAYERS = 1448, 4  # 8.4 million parameters: with Adam's two moments, 100 MB of state
BLOCK = 6  # steps, undisturbed or at least after a save
MOST_STEPS = 24  # after a save; the writer yields to everything, so on a busy machine it takes long
MOST_S = 150  # all rounds; a busy machine gets fewer of them
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Block:
    """Some steps: how many, and the seconds they took by both clocks."""

    steps: int
    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One save: seconds of the call, seconds lost in all with the steps by each clock, and whether it was on disk."""

    call_s: float
    lost_s: dict[str, float]
    covered: bool


def main() -> None:
    """Measure and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=90)
    parser.add_argument("--dir", type=Path, help="where checkpoints go; default: a temporary folder")
    args = parser.parse_args()
    take_cores(frozenset(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory(dir=args.dir) as name:
        os.environ |= {"SPRINGTIDE_CHECKPOINT_DIR": name, "SPRINGTIDE_CHECKPOINT_EVERY_S": "0"}
        samples = measure(args.rounds)
    table = Table("steps in", "save", "call s", "lost s, median", "mean", "least", "most", "on disk")
    for clock, meaning in CLOCKS.items():
        for kind, found in samples.items():
            lost = [sample.lost_s[clock] for sample in found]
            numbers = (median(sample.call_s for sample in found), median(lost), mean(lost), min(lost), max(lost))
            covered = f"{sum(sample.covered for sample in found)} of {len(found)}"
            table.add_row(meaning, kind, *(f"{number:.4f}" for number in numbers), covered)
    Console().print(table)
    for clock, meaning in CLOCKS.items():
        ours, other = ([sample.lost_s[clock] for sample in samples[kind]] for kind in KINDS)
        low, high = resample(ours, other)
        ratio = median(ours) / median(other)
        print(f"lost, asynchronous / blocking, {meaning}: {ratio:.3f} ({low:.3f} to {high:.3f}; bar: <= 0.10)")


def resample(ours: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """The bounds between which 90 % of the ratios lie when the samples are drawn again from themselves."""
    draw = random.Random(0)
    ratios = sorted(
        median(draw.choices(ours, k=len(ours))) / median(draw.choices(other, k=len(other))) for _ in range(RESAMPLES)
    )
    return ratios[RESAMPLES // 20], ratios[-RESAMPLES // 20]


def measure(rounds: int) -> dict[str, list[Sample]]:
    """Both kinds of save in turns, with an undisturbed block between each two."""
    run, loop = start_training()
    take(loop, BLOCK)
    checkpointing.save(run, wait=True)  # the first one also gets the memory for the copy
    samples: dict[str, list[Sample]] = {kind: [] for kind in KINDS}
    before = take(loop, BLOCK)
    end_s = time.monotonic() + MOST_S
    for _ in range(rounds):
        if time.monotonic() > end_s:
            break
        for kind in KINDS:
            call_s, disturbed = save_once(run, loop, wait=kind == "blocking")
            covered = not run.checkpoints.is_busy
            checkpointing.finish_writing(run)
            after = take(loop, BLOCK)
            wall_s = call_s + disturbed.wall_s - disturbed.steps * (before.wall_s + after.wall_s) / (2 * BLOCK)
            cpu_s = call_s + disturbed.cpu_s - disturbed.steps * (before.cpu_s + after.cpu_s) / (2 * BLOCK)
            samples[kind].append(Sample(call_s, {"wall": wall_s, "cpu": cpu_s}, covered))
            before = after
    return samples


def save_once(run: Any, loop: Iterator[None], wait: bool) -> tuple[float, Block]:
    """Seconds of a save's call, and the steps from then until it is on disk, or as many as are waited for."""
    before = time.perf_counter()
    checkpointing.save(run, wait=wait)
    call_s = time.perf_counter() - before
    blocks = [take(loop, BLOCK)]
    while run.checkpoints.is_busy and len(blocks) <= MOST_STEPS - BLOCK:
        blocks.append(take(loop, 1))
    wall_s, cpu_s = sum(block.wall_s for block in blocks), sum(block.cpu_s for block in blocks)
    return call_s, Block(sum(block.steps for block in blocks), wall_s, cpu_s)


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
        for step in loader:
            for (inputs,) in step:
                model(inputs).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            yield


def take(loop: Iterator[None], steps: int) -> Block:
    """Take this many steps."""
    wall, cpu = time.perf_counter(), time.thread_time()
    for _ in range(steps):
        next(loop)
    return Block(steps, time.perf_counter() - wall, time.thread_time() - cpu)


if __name__ == "__main__":
    main()
