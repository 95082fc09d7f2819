"""Train a residual network on handwritten digits."""

import argparse

import torch
from model import Digits, ResNet
from torch.nn.functional import cross_entropy

import springtide

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--images", type=int, default=1797)
parser.add_argument("--batch-size", dest="batch", type=int, default=16)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

run = springtide.init(logical_workers=4, seed=args.seed)
device = run.device  # the GPU that this process holds, or the CPU
model = ResNet().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)
data = Digits(args.images)
model, optimizer, scheduler, loader = run.prepare(model, optimizer, scheduler, data, batch_size=args.batch)
for _ in run.epochs(args.epochs):
    for step in loader:
        for images, labels in step:
            loss = cross_entropy(model(images.to(device)), labels.to(device), label_smoothing=0.1)
            loss.backward()
            run.log(loss=loss)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
