"""Training time lost to an asynchronous checkpoint of 100 MB, against a blocking save of the same state.

Lost time is how long the call holds training up (wall), plus what the steps during the writing cost the training
thread beyond undisturbed ones (its CPU time, so that other work on the machine does not count). Blocks with an
asynchronous save, with a blocking save and without take turns; medians.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.utils.data import TensorDataset

import springtide
from springtide.training import persistence

KINDS = ("none", "async", "blocking")
Seconds = dict[str, list[float]]
WIDTH, LAYERS = 1448, 4  # 8.4 million parameters: with Adam's two moments, 100 MB of state


def main() -> None:
    """Measure and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=20, help="steps per block, longer than a write takes")
    parser.add_argument("--dir", type=Path, help="where checkpoints go; default: a temporary folder")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as name:
        os.environ |= {"SPRINGTIDE_CHECKPOINT_DIR": name, "SPRINGTIDE_CHECKPOINT_EVERY_S": "0"}
        blocks, calls = measure(args.rounds, args.steps)
    table = Table("save", "call s", "slower steps s", "lost s")
    lost = {}
    for kind in KINDS[1:]:
        slower_s = max(0.0, median(blocks[kind]) - median(blocks["none"]))
        lost[kind] = median(calls[kind]) + slower_s
        table.add_row(kind, f"{median(calls[kind]):.4f}", f"{slower_s:.4f}", f"{lost[kind]:.4f}")
    Console().print(table)
    print(f"{args.steps} steps take {median(blocks['none']):.3f} s of CPU undisturbed")
    print(f"lost, asynchronous / blocking: {lost['async'] / lost['blocking']:.3f} (bar: <= 0.10)")


def measure(rounds: int, steps: int) -> tuple[Seconds, Seconds]:
    """CPU seconds of blocks of steps after each kind of save, and wall seconds of the saves."""
    run, loop = start_training()
    blocks: Seconds = {kind: [] for kind in KINDS}
    calls: Seconds = {kind: [] for kind in KINDS}
    take(loop, steps)
    persistence.save(run, wait=True)
    for _ in range(rounds):
        for kind in KINDS:
            take(loop, 1)
            before = time.perf_counter()
            if kind != "none":
                persistence.save(run, wait=kind == "blocking")
            calls[kind].append(time.perf_counter() - before)
            begun = time.thread_time()
            take(loop, steps)
            blocks[kind].append(time.thread_time() - begun)
            persistence.settle(run)
    return blocks, calls


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


def take(loop: Iterator[None], steps: int) -> None:
    """Take this many steps."""
    for _ in range(steps):
        next(loop)


if __name__ == "__main__":
    main()
