"""A run that is evaluated before its loop, each process with its share; `sum` asks there for a sum of all workers."""

import sys

import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

import springtide

run = springtide.init(logical_workers=4, seed=1)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
model, optimizer, loader = run.prepare(model, optimizer, data, batch_size=2)
held = run.shard(DataLoader(data, batch_size=5))


def evaluate() -> None:
    """Measure all batches, and log their number."""
    with run.evaluating():
        found = held.gather([float(mse_loss(model(x), y)) for x, y in held])
    assert len(found) == 13, found


if sys.argv[1:] == ["sum"]:
    run.sum([torch.ones(1)] * len(run.local))
else:
    evaluate()
for _ in run.epochs(2):
    for step in loader:
        for x, y in step:
            mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    evaluate()
