"""Train a residual network on handwritten digits."""

import argparse

import torch
from model import Digits, ResNet
from torch.nn.functional import cross_entropy

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--images", type=int, default=1797)
parser.add_argument("--batch-size", dest="batch", type=int, default=16)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

torch.manual_seed(args.seed)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = ResNet().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)
data = Digits(args.images)
loader = torch.utils.data.DataLoader(data, batch_size=args.batch, shuffle=True, drop_last=True)
for epoch in range(args.epochs):
    for images, labels in loader:
        loss = cross_entropy(model(images.to(device)), labels.to(device), label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    print(f"epoch {epoch}  loss {loss.item():.4f}", flush=True)
