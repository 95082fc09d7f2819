"""Keeps an average, a hidden state per logical worker, a stray schedule and top-of-epoch lines; and more untold."""

import copy
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.optim.swa_utils import AveragedModel

import springtide


class Trail:
    """An average by hand."""

    def __init__(self, parameters: list[torch.Tensor]) -> None:
        self.shadow = [one.detach().clone() for one in parameters]
        self.count = 0

    def update(self, parameters: list[torch.Tensor]) -> None:
        """Follow the parameters, first fast and then slowly."""
        self.count += 1
        for mine, theirs in zip(self.shadow, parameters, strict=True):
            mine.data.lerp_(theirs.detach(), 1 / self.count)


run = springtide.init(logical_workers=4, seed=5)
model = nn.GRUCell(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
schedule = StepLR(optimizer, 1, 0.5)
ema = AveragedModel(model)
slow, trail = copy.deepcopy(model).requires_grad_(False), Trail(list(model.parameters()))
worst: list[Any] = [0.0, None]
data = torch.utils.data.TensorDataset(torch.randn(80, 4), torch.randn(80, 4))
loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
model, optimizer, loader = run.prepare(model, optimizer, loader)
run.keep(ema=ema)
run.state.setdefault("best", 9.0)
total = run.state.setdefault("total", [torch.zeros(())])
for _ in run.epochs(2):
    schedule.step()
    for step in loader:
        losses = []
        for x, y in step:
            hidden = step.worker.state.get("hidden", torch.zeros(4, 4))
            out = model(x, hidden)
            step.worker.state["hidden"] = out.detach()
            loss = (out - y).square().mean() + (out - slow(x, hidden)).square().mean()
            loss.backward()
            losses.append(loss)
        optimizer.step()
        optimizer.zero_grad()
        ema.update_parameters(model)
        run.state["best"] = min(run.state["best"], float(run.mean(losses)))
        total[0] += run.mean(losses)
        if total[0] > worst[0]:
            worst[:] = float(total[0]), [one.detach().clone() for one in model.parameters()]
        trail.update(list(model.parameters()))
        with torch.no_grad():
            for mine, theirs in zip(slow.parameters(), trail.shadow, strict=True):
                mine.lerp_(theirs + 0.01 * worst[1][0].mean(), 0.5)
        optimizer.param_groups[0]["weight_decay"] = 0.01 * run.state["best"] + 0.001 * float(total[0])
