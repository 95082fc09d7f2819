"""The script of a job on hosts without a shared disk: it prints, records, uses a secret, and writes at its end."""

import atexit
import os
import sys
import time

import torch
from torch.utils.data import TensorDataset

import springtide

steps, step_s = int(sys.argv[1]), float(sys.argv[2])
run = springtide.init(logical_workers=4, seed=1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
model, optimizer, loader = run.prepare(model, optimizer, TensorDataset(torch.randn(80, 4)), batch_size=2)
if run.is_main:
    atexit.register(lambda: (run.output_dir / "last.txt").write_text("written at the very end"))
print("a secret of", len(os.environ["SECRET"]), "letters")
for _epoch in run.steps(steps):
    for step in loader:
        for (x,) in step:
            time.sleep(step_s / 4)
            model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        run.log(number=float(step.number))
if run.is_main:
    (run.output_dir / "report.txt").write_text("written after the last step")
