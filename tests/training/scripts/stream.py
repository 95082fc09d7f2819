"""A small elastic script over an iterable dataset that augments: `python stream.py`."""

import random
from collections.abc import Iterator

import torch
from torch.utils.data import IterableDataset

import springtide


class Walk(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """Items in an order of their own, with noise from two global generators."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Walk in the order of this epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return 80

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for place in range(80):
            x = torch.full((6,), float((place * 7 + self.epoch) % 80)) / 80
            yield x + 0.1 * torch.randn(6) + 0.1 * random.random(), x[:1]


run = springtide.init(logical_workers=4, seed=3)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
model, optimizer, loader = run.prepare(model, optimizer, Walk(), batch_size=4)  # 5 steps per epoch
for _ in run.epochs(2):
    for step in loader:
        for x, y in step:
            torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
