"""Train a small GPT on Python's own source."""

import argparse

import torch
from model import Gpt, TextSource, measure_loss

import springtide

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--windows", type=int, default=1024)
parser.add_argument("--batch-size", dest="batch", type=int, default=8)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

run = springtide.init(logical_workers=4, seed=args.seed)
device = run.device  # the GPU that this process holds, or the CPU
model = Gpt().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=20)
data = TextSource(args.windows)
model, optimizer, scheduler, loader = run.prepare(model, optimizer, scheduler, data, batch_size=args.batch)
for _ in run.epochs(args.epochs):
    for step in loader:
        for tokens, targets in step:
            loss = measure_loss(model(tokens.to(device)), targets.to(device))
            loss.backward()
            run.log(loss=loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
