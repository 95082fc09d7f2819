"""A small elastic script whose loss and learning rate go to the tracker that it is told."""

import sys

import torch

import springtide

run = springtide.init(logical_workers=4, seed=3, track=sys.argv[1])
model = torch.nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
features = torch.randn(80, 6)
dataset = torch.utils.data.TensorDataset(features, features.sum(1, keepdim=True))
model, optimizer, loader = run.prepare(model, optimizer, dataset, batch_size=4)  # 5 steps per epoch
for _ in run.epochs(8):
    for step in loader:
        for x, y in step:
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            run.log(loss=loss)
        run.log(rate=0.01 * step.number)
        optimizer.step()
        optimizer.zero_grad()
