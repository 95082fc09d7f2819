"""A small elastic training script whose model and habits are chosen by its one argument, a JSON object."""

import json
import random
import sys
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import springtide
from springtide.training.reduction import gloo_order

ASKED: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}


class Attention(nn.Module):
    """One transformer layer over embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = (x.flatten(1)[:, :12].abs() * 3).long().clamp(max=9)
        logits: torch.Tensor = self.head(self.layer(self.embed(tokens)).mean(1))
        return logits


class Forking(nn.Module):
    """A model in which one branch is unused in some batches and one is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Linear(64, 16)
        self.left = nn.Linear(16, 10)
        self.right = nn.Linear(16, 10)
        self.never = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.trunk(x.flatten(1)).relu()
        out: torch.Tensor = self.left(hidden)
        return out + self.right(hidden) if float(x[0, 0, 0, 0]) > 0 else out


class Counting(nn.Module):
    """A model that replaces its buffer instead of writing into it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen: torch.Tensor = self.seen + len(x)
        out: torch.Tensor = self.layer(x.flatten(1)) * (1 + self.seen.float() * 1e-4)
        return out


class Describing(nn.Module):
    """A model whose output is a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"of": len(x), "logits": self.layer(x.flatten(1))}


class Centering(nn.Module):
    """A model whose output depends on a buffer that it keeps itself."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.register_buffer("mean", torch.zeros(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(1)
        out: torch.Tensor = self.layer(flat - self.mean)
        with torch.no_grad():
            self.mean.mul_(0.9).add_(flat.mean(0), alpha=0.1)
        return out


class Changing(nn.Module):
    """A model whose forward depends on chance."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 10)
        self.second = nn.Linear(64, 10)
        self.order = random.Random(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pair = [self.first, self.second]
        if self.order.random() < 0.5:
            pair.reverse()
        out: torch.Tensor = pair[0](x.flatten(1)) + pair[1](x.flatten(1))
        return out


class Exotic(nn.Module):
    """A model with an operator that level D2 does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(torch.fft.rfft(x.flatten(1), 127).abs())
        return out


class Noisy(Dataset[tuple[torch.Tensor, int]]):
    """Samples with augmentation from all three generators."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randn(count, 1, 8, 8, generator=generator)
        self.y = torch.randint(0, 10, (count,), generator=generator)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        x = self.x[index] + 0.1 * torch.randn(1, 8, 8) + 0.1 * random.random() + 0.1 * float(np.random.randn())
        return x, int(self.y[index])


def build_model(kind: str) -> nn.Module:
    """The model of this name."""
    if kind == "cnn":
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Flatten(),
            nn.Linear(512, 32),
            nn.ReLU(),
            nn.Linear(32, 10),
        )
    if kind == "wide":  # two buckets after the rebuild: 1 MiB, then the rest
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 640), nn.ReLU(), nn.Linear(640, 640), nn.ReLU(), nn.Linear(640, 10)
        )
    if kind == "huge":  # over 25 MiB: three buckets
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 2600), nn.ReLU(), nn.Linear(2600, 2600), nn.Linear(2600, 10))
    kinds: list[type[nn.Module]] = [Attention, Forking, Counting, Describing, Centering, Changing, Exotic]
    return next(known for known in kinds if known.__name__.lower() == kind)()


def build_optimizer(kind: str, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of this name."""
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    if kind == "adam":
        return torch.optim.Adam(model.parameters(), lr=1e-2)
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def collate_backwards(samples: list[Any]) -> Any:
    """The samples in reverse."""
    return torch.utils.data.default_collate(samples[::-1])


def build_data(kind: str, count: int) -> Dataset[Any]:
    """The dataset of this name."""
    noisy = Noisy(count)
    return noisy if kind == "noisy" else TensorDataset(noisy.x, noisy.y)


def main() -> None:
    """Train as asked."""
    if ASKED.get("strange_gloo"):  # as with a torch whose gloo does not add in the order that is imitated
        gloo_order.fold_order = lambda chunk, ranks: tuple(range(ranks))
    run = springtide.init(logical_workers=ASKED.get("workers", 4), seed=ASKED.get("seed", 3))
    model = build_model(ASKED.get("model", "cnn"))
    optimizer = build_optimizer(ASKED.get("optimizer", "sgd"), model)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    data = build_data(ASKED.get("data", "tensor"), ASKED.get("samples", 134))
    scaler = torch.amp.GradScaler("cpu", **ASKED.get("scaler", {"enabled": False}))
    options = ASKED.get("prepare", {}) | ({"collate_fn": collate_backwards} if ASKED.get("backwards") else {})
    model, optimizer, scheduler, scaler, loader = run.prepare(
        model, optimizer, scheduler, scaler, data, batch_size=4, **options
    )
    for _ in run.epochs(ASKED.get("epochs", 3)):
        for step in loader:
            for x, y in step:
                if ASKED.get("zero_first"):
                    optimizer.zero_grad()
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bool(ASKED.get("autocast"))):
                    out = model(x) + model(-x) if ASKED.get("twice") else model(x)
                    loss = nn.functional.cross_entropy(out["logits"] if isinstance(out, dict) else out, y)
                loss = loss * (1 + 0.01 * np.random.rand() + 0.01 * random.random() + 0.01 * np.random.randn())
                scaler.scale(loss).backward()
                if run.position.step == ASKED.get("save_in_turn"):
                    run.checkpoint()
                if run.is_main or not ASKED.get("main_logs"):
                    run.log(loss=loss)
            if ASKED.get("unscale"):
                scaler.unscale_(optimizer)
            if "clip" in ASKED:
                nn.utils.clip_grad_norm_(model.parameters(), ASKED["clip"])
            scaler.step(optimizer)
            scaler.update()
            if not ASKED.get("zero_first"):
                optimizer.zero_grad(set_to_none=ASKED.get("set_to_none", True))
            scheduler.step()
            if run.position.step == ASKED.get("save_in_step"):
                run.checkpoint()
            run.state["seen"] = run.state.get("seen", 0) + 1
        if ASKED.get("evaluate"):
            with run.evaluating():
                model(torch.randn(4, 1, 8, 8))
                torch.rand(3)
    if run.is_main and "done" in ASKED:
        print(ASKED["done"])


if __name__ == "__main__":
    main()
