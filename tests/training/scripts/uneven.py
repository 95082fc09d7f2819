"""An elastic script whose steps differ: one is passed over, one is walked twice, with a metric in each walk."""

import torch

import springtide

PASSED_OVER, TWICE = 2, 3
run = springtide.init(logical_workers=4, seed=3)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
features = torch.randn(80, 6)
dataset = torch.utils.data.TensorDataset(features, features.sum(1, keepdim=True))
model, optimizer, loader = run.prepare(model, optimizer, dataset, batch_size=4)  # 5 steps per epoch
for _ in run.epochs(2):
    for step in loader:
        if step.index == PASSED_OVER:
            continue
        for walk in ("first", "second")[: 1 + (step.index == TWICE)]:
            for x, y in step:
                loss = torch.nn.functional.mse_loss(model(x), y)
                loss.backward()
                run.log(**{walk: loss})
            optimizer.step()
            optimizer.zero_grad()
