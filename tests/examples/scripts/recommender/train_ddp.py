"""The recommender on stock DistributedDataParallel, one process per rank: the bits `train.py` must equal.

Run it with the example's folder in PYTHONPATH: `torchrun --nproc-per-node 4 train_ddp.py`.
"""

import argparse
import random

import numpy as np
import torch
import torch.distributed as dist
from model import Clicks, Recommender
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", dest="batch", type=int, default=256)
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()


def seed_generators(seed: int) -> None:
    """Seed Python's, NumPy's and torch's global generators."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()

seed_generators(args.seed)
model = DistributedDataParallel(Recommender())
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.99)
data = Clicks()
sampler: DistributedSampler[int] = DistributedSampler(data, shuffle=True, seed=args.seed, drop_last=True)
loader = DataLoader(data, batch_size=args.batch, sampler=sampler, drop_last=True)
seed_generators(args.seed + rank)
for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for rows, clicked in loader:
        loss = binary_cross_entropy_with_logits(model(rows), clicked)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    if rank == 0:
        print(f"epoch {epoch}  loss {loss.item():.4f}", flush=True)
dist.destroy_process_group()
