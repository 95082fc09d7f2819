"""Train a convolutional network on handwritten digits."""

import argparse

import torch
from model import Cnn, Digits, measure_accuracy
from torch.nn.functional import cross_entropy

import springtide

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch-size", dest="batch", type=int, default=32)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

run = springtide.init(logical_workers=4, seed=args.seed)
device = run.device  # the GPU that this process holds, or the CPU
model = Cnn().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.7)
data = Digits()
model, optimizer, scheduler, loader = run.prepare(model, optimizer, scheduler, data, batch_size=args.batch)
for epoch in run.epochs(args.epochs):
    for step in loader:
        for images, labels in step:
            loss = cross_entropy(model(images.to(device)), labels.to(device))
            loss.backward()
            run.log(loss=loss)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    run.log(epoch=epoch, accuracy=measure_accuracy(model))
