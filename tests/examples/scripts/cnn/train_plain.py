"""Train a convolutional network on handwritten digits."""

import argparse

import torch
from model import Cnn, Digits, measure_accuracy
from torch.nn.functional import cross_entropy

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch-size", dest="batch", type=int, default=32)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

torch.manual_seed(args.seed)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = Cnn().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.7)
data = Digits()
loader = torch.utils.data.DataLoader(data, batch_size=args.batch, shuffle=True, drop_last=True)
for epoch in range(args.epochs):
    for images, labels in loader:
        loss = cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    print(f"epoch {epoch}  loss {loss.item():.4f}  accuracy {measure_accuracy(model):.3f}", flush=True)
