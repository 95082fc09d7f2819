"""The training script of the checks, for executors that run real processes: `script.py STEPS STEP_S CRASHES_AT`.

Four logical workers, steps of a known length, and a crash after a step if that is not 0. Run, never imported.
"""

import sys
import time

import torch
from torch.utils.data import TensorDataset

import springtide

steps, step_s, crashes_at = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
run = springtide.init(logical_workers=4, seed=1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
model, optimizer, loader = run.prepare(model, optimizer, TensorDataset(torch.randn(80, 4)), batch_size=2)
for _epoch in run.steps(steps):
    for step in loader:
        for (x,) in step:
            time.sleep(step_s / 4)
            model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step.number == crashes_at > 0:
            raise RuntimeError(f"told to crash after step {crashes_at}")
