"""What all scripts here train, and the record they leave: which samples each process used for which step.

Nothing of any system is imported. A step sleeps for a while, as a larger model would compute.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

SAMPLES, BATCH, STEPS = 2400, 8, 150
SAVE_EVERY = 10
STEP_S = 0.2
FOLDER = Path(os.environ.get("ELASTICITY_FOLDER", "."))


class NumberedData(torch.utils.data.Dataset[tuple[Tensor, Tensor, int]]):
    """Samples that know their number."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.features = torch.randn(SAMPLES, 16, generator=generator)
        self.targets = self.features[:, :4].prod(1, keepdim=True)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor, int]:
        return self.features[number], self.targets[number], number


def make_model() -> nn.Module:
    """A small network, the same in every run."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))


def record(step: int, numbers: Any) -> None:
    """Note that this process has completed a step (from 1), and with which samples."""
    time.sleep(STEP_S)
    line = {"step": step, "samples": [int(number) for number in numbers], "at_s": time.time()}
    with (FOLDER / f"steps-{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def save_weights(model: nn.Module) -> None:
    """Keep the result."""
    torch.save([parameter.detach().clone() for parameter in model.parameters()], FOLDER / "weights.pt")
