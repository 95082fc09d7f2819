"""Draws samples by weights that follow the last epoch's losses, which are kept in run.state if MINING_KEEPS is set."""

import os

import torch
from torch import nn
from torch.nn import functional

import springtide

run = springtide.init(logical_workers=4, seed=5)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))
sampler = torch.utils.data.WeightedRandomSampler([1.0] * 64, 64)
look = torch.utils.data.DataLoader(data, batch_size=64)
model, optimizer, loader = run.prepare(
    model, optimizer, torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)
)
run.state.setdefault("weights", sampler.weights)
for _ in run.epochs(3):
    if "MINING_KEEPS" in os.environ:
        sampler.weights = run.state["weights"]
    for step in loader:
        for x, y in step:
            functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    with run.evaluating():
        (losses,) = [functional.cross_entropy(model(x), y, reduction="none") for x, y in look]
    run.state["weights"] = losses.double() ** 2
    sampler.weights = run.state["weights"]
