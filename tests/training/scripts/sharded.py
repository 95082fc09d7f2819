"""A small sharded model with few rows, tied and frozen weights, dropout and a buffer, in mini-batches."""

import torch
from torch import nn

import springtide


class Tied(nn.Module):
    """The output layer is the embedding again; seven and five rows leave some of four processes without any."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(7, 6)
        parts = [nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.2), nn.Linear(5, 6)) for _ in "ab"]
        parts[0][0].requires_grad_(False)
        self.blocks = nn.ModuleList(parts)
        self.norm = nn.BatchNorm1d(6)
        self.predict = nn.Linear(6, 7, bias=False)
        self.predict.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        stream = self.tokens(tokens)
        for block in self.blocks:
            stream = stream + block(stream)
        found: torch.Tensor = self.predict(self.norm(stream))
        return found


run = springtide.init(logical_workers=4, seed=3)
model: nn.Module = Tied()
for block in model.get_submodule("blocks").children():
    run.fully_shard(block)
run.fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
data = torch.utils.data.TensorDataset(torch.arange(160) % 7, (torch.arange(160) * 3 + 1) % 7)
model, optimizer, loader = run.prepare(model, optimizer, data, batch_size=2, accumulate=2)  # 10 steps per epoch
for _ in run.epochs(1):
    for step in loader:
        for tokens, targets in step:
            loss = nn.functional.cross_entropy(model(tokens), targets)
            loss.backward()
            run.log(loss=loss)
        run.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        if step.number == 4:
            with run.evaluating():
                model(torch.arange(7))
