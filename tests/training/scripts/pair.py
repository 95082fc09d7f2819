"""A small elastic script with two optimizers, a scheduler for each, and embeddings: `python pair.py`."""

import torch

import springtide

run = springtide.init(logical_workers=4, seed=3)
table = torch.nn.Embedding(20, 6)
head = torch.nn.Sequential(torch.nn.Dropout(0.2), torch.nn.Linear(6, 1))
model = torch.nn.Sequential(table, head)
slow = torch.optim.SGD(table.parameters(), lr=0.5, momentum=0.9)
fast = torch.optim.Adam(head.parameters(), lr=0.01)
schedules = [torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5) for optimizer in (slow, fast)]
dataset = torch.utils.data.TensorDataset(torch.randint(0, 20, (80,)), torch.randn(80, 1))
model, slow, fast, *schedules, loader = run.prepare(model, slow, fast, *schedules, dataset, batch_size=4)
for _ in run.epochs(2):
    for step in loader:
        for x, y in step:
            torch.nn.functional.mse_loss(model(x), y).backward()
        for optimizer, schedule in zip((slow, fast), schedules, strict=True):
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
