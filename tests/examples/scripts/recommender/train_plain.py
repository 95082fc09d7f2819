"""Train a recommender on generated clicks."""

import argparse

import torch
from model import Clicks, Recommender
from torch.nn.functional import binary_cross_entropy_with_logits

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", dest="batch", type=int, default=256)
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

torch.manual_seed(args.seed)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = Recommender().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.99)
data = Clicks()
loader = torch.utils.data.DataLoader(data, batch_size=args.batch, shuffle=True, drop_last=True)
for epoch in range(args.epochs):
    for rows, clicked in loader:
        loss = binary_cross_entropy_with_logits(model(rows.to(device)), clicked.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    print(f"epoch {epoch}  loss {loss.item():.4f}", flush=True)
