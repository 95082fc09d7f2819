"""Keeps an average, a hidden state per logical worker, a stray schedule and top-of-epoch lines."""

import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.optim.swa_utils import AveragedModel

import springtide

run = springtide.init(logical_workers=4, seed=5)
model = nn.GRUCell(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
schedule = StepLR(optimizer, 1, 0.5)
ema = AveragedModel(model)
data = torch.utils.data.TensorDataset(torch.randn(80, 4), torch.randn(80, 4))
loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
model, optimizer, loader = run.prepare(model, optimizer, loader)
run.keep(ema=ema)
run.state.setdefault("best", 9.0)
for _ in run.epochs(2):
    schedule.step()
    for step in loader:
        losses = []
        for x, y in step:
            hidden = step.worker.state.get("hidden", torch.zeros(4, 4))
            out = model(x, hidden)
            step.worker.state["hidden"] = out.detach()
            loss = (out - y).square().mean()
            loss.backward()
            losses.append(loss)
        optimizer.step()
        optimizer.zero_grad()
        ema.update_parameters(model)
        run.state["best"] = min(run.state["best"], float(run.mean(losses)))
        optimizer.param_groups[0]["weight_decay"] = 0.01 * run.state["best"]
