"""The small GPT on stock DistributedDataParallel, one process per rank: the bits `train.py` must equal.

Run it with the example's folder in PYTHONPATH: `torchrun --nproc-per-node 4 train_ddp.py`.
"""

import argparse
import random

import numpy as np
import torch
import torch.distributed as dist
from model import Gpt, TextSource, measure_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--windows", type=int, default=1024)
parser.add_argument("--batch-size", dest="batch", type=int, default=8)
parser.add_argument("--lr", type=float, default=1e-3)
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
model = DistributedDataParallel(Gpt())
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=20)
data = TextSource(args.windows)
sampler: DistributedSampler[int] = DistributedSampler(data, shuffle=True, seed=args.seed, drop_last=True)
loader = DataLoader(data, batch_size=args.batch, sampler=sampler, drop_last=True)
seed_generators(args.seed + rank)
for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for tokens, targets in loader:
        loss = measure_loss(model(tokens), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    if rank == 0:
        print(f"epoch {epoch}  loss {loss.item():.4f}", flush=True)
dist.destroy_process_group()
