"""The script for torchft: a replica per process, a quorum per step, weights healed from a peer."""

import os
from datetime import timedelta

import torch
from torchft import DistributedDataParallel, DistributedSampler, Manager, Optimizer, ProcessGroupGloo

from benchmarks.peers.workload import BATCH, STEPS, NumberedData, make_model, record, save_weights

replica = int(os.environ["REPLICA_GROUP_ID"])
model = make_model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)


def load_state(state: dict[str, dict[str, object]]) -> None:
    """Take over a peer's state."""
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])


def get_state() -> dict[str, dict[str, object]]:
    """What a peer that joins needs."""
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
    load_state_dict=load_state,
    state_dict=get_state,
    min_replica_size=1,
    replica_id=f"replica_{replica}",
    timeout=timedelta(seconds=10),
)
wrapped = DistributedDataParallel(manager, model)
managed = Optimizer(manager, optimizer)
data = NumberedData()
sampler = DistributedSampler(data, replica_rank=replica, num_replica_groups=2, group_rank=0, num_replicas=1)
loader = torch.utils.data.DataLoader(data, batch_size=BATCH, sampler=sampler)
batches = iter(loader)
while manager.current_step() < STEPS:
    x, y, numbers = next(batches)
    managed.zero_grad()
    loss = torch.nn.functional.mse_loss(wrapped(x), y)
    loss.backward()
    before = manager.current_step()
    managed.step()
    if manager.current_step() > before:
        record(manager.current_step(), numbers)
save_weights(model)
