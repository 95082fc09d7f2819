"""A run that is evaluated before its loop, each process with its share.

With `sum` it asks there for a sum of all workers; with `sharded` it calls a sharded model; with `slow` the last
process takes long there when it joins.
"""

import sys
import time
from typing import Any

import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

import springtide

run: Any = springtide.init(logical_workers=4, seed=1)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
if sys.argv[1:] == ["sharded"]:
    run.fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
model, optimizer, loader = run.prepare(model, optimizer, data, batch_size=2)
held = run.shard(DataLoader(data, batch_size=5)) if sys.argv[1:] != ["sharded"] else None


def evaluate() -> None:
    """Measure all batches, and log their number."""
    with run.evaluating():
        if held is None:
            model(data.tensors[0])
            return
        found = held.gather([float(mse_loss(model(x), y)) for x, y in held])
    assert len(found) == 13, found


if sys.argv[1:] == ["sum"]:
    run.sum([torch.ones(1)] * len(run.local))
else:
    evaluate()
if sys.argv[1:] == ["slow"] and run.settings.joining and run.rank == len(run.roster.names) - 1:
    time.sleep(3 * run.settings.collective_timeout_s)
for _ in run.epochs(2):
    for step in loader:
        for x, y in step:
            mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    evaluate()
