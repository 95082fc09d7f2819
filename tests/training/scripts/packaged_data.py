"""An elastic script fed by a loader or a dataset of another package: `stateful` or `shards FILE [SEED]`."""

import io
import sys
from importlib import import_module
from typing import Any

import torch

import springtide

ITEMS = 80


def open_stateful() -> Any:
    """torchdata's loader, which keeps its own place."""
    features = torch.randn(ITEMS, 6, generator=torch.Generator().manual_seed(5))
    data = torch.utils.data.TensorDataset(features, features.sum(1, keepdim=True))
    return import_module("torchdata.stateful_dataloader").StatefulDataLoader(data, batch_size=4, shuffle=True)


def read_tensor(text: bytes) -> torch.Tensor:
    """A tensor of a shard."""
    tensor: torch.Tensor = torch.load(io.BytesIO(text))
    return tensor


def open_shards(file: str, seed: str = "") -> Any:
    """A WebDataset, shuffled by a seed or by the clock."""
    chosen = {"seed": int(seed)} if seed else {}
    data = import_module("webdataset").WebDataset(file, shardshuffle=False, **chosen).shuffle(40, **chosen)
    data = data.to_tuple("x.pth", "y.pth").map_tuple(read_tensor, read_tensor)
    return torch.utils.data.DataLoader(data.with_length(ITEMS), batch_size=4)


run = springtide.init(logical_workers=4, seed=3)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
loader = open_stateful() if sys.argv[1] == "stateful" else open_shards(*sys.argv[2:])
model, optimizer, loader = run.prepare(model, optimizer, loader)  # 5 steps per epoch
for _ in run.epochs(2):
    for step in loader:
        for x, y in step:
            torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
