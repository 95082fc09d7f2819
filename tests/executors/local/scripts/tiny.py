"""A small elastic training that starts fast, takes slow steps, and misbehaves on request."""

import argparse
import json
import os
import sys
import time

import torch
from torch.utils.data import TensorDataset

import springtide
from springtide.training.group import paces

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--sleep", type=float, default=0.02)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--crash-at", type=int)
parser.add_argument("--exit-at", type=int)
parser.add_argument("--stop-at", type=int)
parser.add_argument("--block-at", type=int, help="once, in the second process only")
parser.add_argument("--lag", type=float, default=0.0, help="further sleep of the second process, for 60 steps")
args = parser.parse_args()
if args.lag:
    paces.LASTING_S = 1.0

run = springtide.init(logical_workers=args.workers, seed=1)
if run.is_main:
    (run.output_dir / "environment.json").write_text(json.dumps(dict(os.environ)))
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
generator = torch.Generator().manual_seed(3)
data = TensorDataset(torch.randn(320, 8, generator=generator), torch.randn(320, 1, generator=generator))
model, optimizer, loader = run.prepare(model, optimizer, data, batch_size=8)
for _epoch in run.steps(args.steps):
    for step in loader:
        for x, y in step:
            time.sleep(args.sleep + (0.0 if run.is_main or step.number > 60 else args.lag))
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            run.log(loss=loss)
        optimizer.step()
        optimizer.zero_grad()
        if args.crash_at == step.number:
            raise RuntimeError(f"told to crash at step {step.number}")
        if args.exit_at == step.number:
            sys.exit(0)
        blocked = run.output_dir / "blocked"
        if args.block_at == step.number and not run.is_main and not blocked.exists():
            blocked.touch()
            time.sleep(10_000)
        if args.stop_at == step.number:
            run.stop("converged")
print("the end")
