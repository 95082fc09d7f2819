"""Says to the agent what no training says, or what some do and should not."""

import base64
import os
import socket
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


def say(data: bytes) -> None:
    """Send bytes over the line of this process."""
    assert run.channel.line is not None
    run.channel.line.sendall(data)


if what.startswith("raw:"):
    say(sys.argv[1].removeprefix("raw:").encode() + b"\n")
    time.sleep(100)
elif what.startswith("lines:"):
    say(base64.b64decode(what.removeprefix("lines:")))
    time.sleep(0.5)
elif what == "huge":
    say(b'{"event": "warned", "text": "' + b"x" * (2 << 20))
    time.sleep(100)
elif what == "deep":
    say(b'{"event": ' + b"[" * 100_000 + b"\n")
    time.sleep(100)
elif what == "flood":
    for number in range(20_000):
        run.channel.send("warned", text=f"warning {number}")
elif what == "lines":
    lines = []
    for _ in range(200):
        lines.append(socket.socket(socket.AF_UNIX))
        lines[-1].connect(os.environ["SPRINGTIDE_CONTROL"].removeprefix("unix:"))
        if os.fork() == 0:
            other = socket.socket(socket.AF_UNIX)
            other.connect(os.environ["SPRINGTIDE_CONTROL"].removeprefix("unix:"))
            time.sleep(100)
            os._exit(0)
epochs = sys.maxsize if what == "for-ever" else 2
for _ in run.epochs(epochs):
    for step in loader:
        for (x,) in step:
            model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        run.log(loss=float("nan"), most=float("inf"))
        if what == "surrogate":
            run.stop("caf\udce9 \x1b[2J")
    if what == "wait":
        time.sleep(float(sys.argv[2]))
    if what == "wait-inside-busy":
        with run.busy("uploading"):
            time.sleep(float(sys.argv[2]))
