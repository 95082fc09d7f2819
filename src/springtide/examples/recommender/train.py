"""Train a recommender on generated clicks."""

import argparse

import torch
from model import Clicks, Recommender
from torch.nn.functional import binary_cross_entropy_with_logits

import springtide

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", dest="batch", type=int, default=256)
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

run = springtide.init(logical_workers=4, seed=args.seed)
device = run.device  # the GPU that this process holds, or the CPU
model = Recommender().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.99)
data = Clicks()
model, optimizer, scheduler, loader = run.prepare(model, optimizer, scheduler, data, batch_size=args.batch)
for _ in run.epochs(args.epochs):
    for step in loader:
        for rows, clicked in step:
            loss = binary_cross_entropy_with_logits(model(rows.to(device)), clicked.to(device))
            loss.backward()
            run.log(loss=loss)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
