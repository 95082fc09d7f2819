"""The digits network on stock DistributedDataParallel, one process per rank: the bits `train.py` must equal.

Run it with the example's folder in PYTHONPATH: `torchrun --nproc-per-node 4 train_ddp.py`.
"""

import argparse
import random

import numpy as np
import torch
import torch.distributed as dist
from model import Cnn, Digits
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import springtide

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch-size", dest="batch", type=int, default=32)
parser.add_argument("--lr", type=float, default=0.05)
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
model = DistributedDataParallel(Cnn())
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.7)
data = springtide.seeded(Digits(), seed=args.seed)
sampler: DistributedSampler[int] = DistributedSampler(data, shuffle=True, seed=args.seed, drop_last=True)
loader = DataLoader(data, batch_size=args.batch, sampler=sampler, drop_last=True)
seed_generators(args.seed + rank)
for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    data.set_epoch(epoch)
    for images, labels in loader:
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    if rank == 0:
        print(f"epoch {epoch}  loss {loss.item():.4f}", flush=True)
dist.destroy_process_group()
