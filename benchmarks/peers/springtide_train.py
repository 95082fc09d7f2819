"""The script for springtide."""

import torch

import springtide
from benchmarks.peers.workload import BATCH, STEPS, NumberedData, make_model, record, save_weights

run = springtide.init(logical_workers=2)
model = make_model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
loader = torch.utils.data.DataLoader(NumberedData(), batch_size=BATCH, shuffle=True)
model, optimizer, loader = run.prepare(model, optimizer, loader)
for _ in run.steps(STEPS):
    for step in loader:
        used = []
        for x, y, numbers in step:
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            used += numbers
        optimizer.step()
        optimizer.zero_grad()
        record(step.number + 1, used)
if run.is_main:
    save_weights(model)
