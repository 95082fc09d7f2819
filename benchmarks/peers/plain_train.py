"""The script before anything is elastic: one process. What others change is counted against it."""

import torch

from benchmarks.peers.workload import BATCH, STEPS, NumberedData, make_model, record, save_weights

model = make_model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
loader = torch.utils.data.DataLoader(NumberedData(), batch_size=BATCH, shuffle=True)
batches = iter(loader)
for step in range(STEPS):
    x, y, numbers = next(batches)
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    record(step + 1, numbers)
save_weights(model)
