"""Leaves much between steps: gradients that are added up, modes, a frozen layer, a rate of dropout, a later group."""

import torch
from torch import nn

import springtide

run = springtide.init(logical_workers=4, seed=5)
model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
slow, fast = torch.optim.SGD(model[4].parameters(), lr=0.1), torch.optim.AdamW(model[0].parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(160, 6), torch.randn(160, 2))
loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
model, slow, fast, loader = run.prepare(model, slow, fast, loader, find_unused_parameters=True)
model.train()
for _ in run.epochs(2):
    for step in loader:
        for x, y in step:
            loss = (model(x) - y).square().mean()
            loss.backward()
        fast.step()
        fast.zero_grad()
        if step.number == 2:
            model[1].p = 0.25
            model[3].eval()
        if step.number == 4:
            fast.add_param_group({"params": model[2].parameters(), "lr": 0.02})
        if step.number == 6:
            model[2].bias.requires_grad_(False)
        if step.number % 3 == 2:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            slow.step()
            slow.zero_grad()
