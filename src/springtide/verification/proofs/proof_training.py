"""What `springtide doctor --prove` trains: a small network with all that makes bits hard to keep.

Convolutions, BatchNorm, dropout, momentum, clipping and a schedule; by option with autocast and gradient scaling, or
compiled. Arguments: `cpu|cuda D1|D2 plain|amp|compile`.
"""

import sys
from typing import cast

import torch

import springtide

SAMPLES, SIZE = 256, 8


def build(kind: str, level: str) -> torch.nn.Module:
    """The network; at D2 of operators that are the same on every device type."""
    if level == "D2":
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(SIZE * SIZE, 32), torch.nn.ReLU(), head(32))
    body = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten())
    model = torch.nn.Sequential(body, torch.nn.Dropout(0.1), head(8 * (SIZE - 2) ** 2))
    # Sequential.compile() does nothing in torch 2.13, unless there are hooks.
    return cast(torch.nn.Module, torch.compile(model)) if kind == "compile" else model


def head(features: int) -> torch.nn.Module:
    """The last layer."""
    return torch.nn.Linear(features, 10)


def main(device: str, level: str, kind: str) -> None:
    """Train for an epoch or as long as allowed."""
    run = springtide.init(logical_workers=4, seed=0, determinism=level)
    model = build(kind, level).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 16)
    scaler = torch.amp.GradScaler(device, enabled=kind == "amp" and device == "cuda")
    data = torch.utils.data.TensorDataset(torch.randn(SAMPLES, 1, SIZE, SIZE), torch.randint(10, (SAMPLES,)))
    model, optimizer, schedule, scaler, loader = run.prepare(model, optimizer, schedule, scaler, data, batch_size=4)
    for _ in run.epochs(1):
        for step in loader:
            for images, labels in step:
                with torch.autocast(
                    device, torch.bfloat16 if device == "cpu" else torch.float16, enabled=kind == "amp"
                ):
                    loss = torch.nn.functional.cross_entropy(model(images.to(device)).float(), labels.to(device))
                scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            schedule.step()


if __name__ == "__main__":
    main(*sys.argv[1:4])
