"""The script for torchrun's elastic launcher: DDP, and a snapshot to start again from."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from benchmarks.peers.workload import BATCH, FOLDER, SAVE_EVERY, STEPS, NumberedData, make_model, record, save_weights

dist.init_process_group("gloo")
model = DistributedDataParallel(make_model())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
snapshot, first = FOLDER / "snapshot.pt", 0
if snapshot.exists():
    saved = torch.load(snapshot)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["step"]
data = NumberedData()
loader = torch.utils.data.DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data))
batches = iter(loader)
for _ in range(first):
    next(batches)
for step in range(first, STEPS):
    x, y, numbers = next(batches)
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    record(step + 1, numbers)
    if (step + 1) % SAVE_EVERY == 0 and dist.get_rank() == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
        torch.save(state, snapshot.with_suffix(".new"))
        snapshot.with_suffix(".new").rename(snapshot)
if dist.get_rank() == 0:
    save_weights(model)
dist.destroy_process_group()
