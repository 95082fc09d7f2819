"""What once brought a platform down, by name: training without end, a stop for a reason that is no text, nonsense said
to the agent. Submitted by `chaos`.
"""

import sys
import time

import torch
from torch.utils.data import TensorDataset

import springtide

what = sys.argv[1]
run = springtide.init(logical_workers=1, seed=0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = run.prepare(model, optimizer, TensorDataset(torch.ones(4, 2)), batch_size=2)
if what == "nonsense":
    assert run.channel.line is not None
    run.channel.line.sendall(b'{"event": "progressed", "step": 9223372036854775808, "epoch": []}\n{"event"\n')
    time.sleep(2.0)
for _epoch in run.epochs(sys.maxsize if what == "endless" else 5):
    for step in loader:
        for (x,) in step:
            model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)
        if what == "reason":
            run.stop("bytes that are no text: \udcff")
