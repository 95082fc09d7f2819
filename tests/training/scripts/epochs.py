"""A small elastic script whose end-of-epoch lines need the loss of the epoch's last step, as users' scripts do.

With an argument, an epoch is left after so many of its 5 steps.
"""

import sys

import torch

import springtide

LAST = int(sys.argv[1]) if len(sys.argv) > 1 else 5
run = springtide.init(logical_workers=4, seed=3)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
features = torch.randn(80, 6)
dataset = torch.utils.data.TensorDataset(features, features.sum(1, keepdim=True))
model, optimizer, loader = run.prepare(model, optimizer, dataset, batch_size=4)  # 5 steps per epoch
for _ in run.epochs(3):
    for step in loader:
        for x, y in step:
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step.index + 1 == LAST:
            break
    scheduler.step()
    print(f"loss {loss.item():.6f}")
