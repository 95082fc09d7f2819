"""The residual network on stock DistributedDataParallel, one process per rank: the bits `train.py` must equal.

Run it with the example's folder in PYTHONPATH: `torchrun --nproc-per-node 4 train_ddp.py`.
"""

import argparse
import random

import numpy as np
import torch
import torch.distributed as dist
from model import Digits, ResNet
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--images", type=int, default=1797)
parser.add_argument("--batch-size", dest="batch", type=int, default=16)
parser.add_argument("--lr", type=float, default=0.02)
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
model = DistributedDataParallel(ResNet())
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)
data = Digits(args.images)
sampler: DistributedSampler[int] = DistributedSampler(data, shuffle=True, seed=args.seed, drop_last=True)
loader = DataLoader(data, batch_size=args.batch, sampler=sampler, drop_last=True)
seed_generators(args.seed + rank)
for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for images, labels in loader:
        loss = cross_entropy(model(images), labels, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    if rank == 0:
        print(f"epoch {epoch}  loss {loss.item():.4f}", flush=True)
dist.destroy_process_group()
