"""A small elastic training with slow steps, which writes down every step it takes. Submitted by the live benchmarks.

Its steps sleep: a device that is busy, without keeping the machine busy. `--full-while FILE` lets every checkpoint fail
as on a full disk for as long as the file is there.
"""

import argparse
import errno
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import TensorDataset

import springtide

parser = argparse.ArgumentParser()
parser.add_argument("steps", type=int)
parser.add_argument("--sleep", type=float, default=0.04, help="seconds per logical worker and step")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--full-while", type=Path)
args = parser.parse_args()

if args.full_while is not None:
    from springtide.training.state import checkpoints

    write_bytes = checkpoints.write_bytes

    def write_if_there_is_room(path: Path, chunks: Any) -> dict[str, Any]:
        """Write a file, or find the disk full."""
        if args.full_while.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return write_bytes(path, chunks)

    checkpoints.write_bytes = write_if_there_is_room

run = springtide.init(logical_workers=2, seed=args.seed)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
generator = torch.Generator().manual_seed(args.seed)
data = TensorDataset(torch.randn(320, 8, generator=generator), torch.randn(320, 1, generator=generator))
model, optimizer, loader = run.prepare(model, optimizer, data, batch_size=8)
ledger = os.open(run.output_dir / "steps.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for _epoch in run.steps(args.steps):
    for step in loader:
        if run.is_main and step.number:
            os.write(ledger, f"{os.getpid()} {step.number} {time.monotonic():.3f}\n".encode())
        for x, y in step:
            time.sleep(args.sleep)
            torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
