"""Small models that together use every operator level D2 is tested with; prints digests and operators as JSON lines.

Each argument is a device type as CPUs can emulate one, as JSON: level, environment, threads, oneDNN on or off. torch is
imported once; each device type is a fork that has run no operator, as the fork server's children have not.
"""

import hashlib
import json
import os
import sys

import torch
import torch._dynamo
from torch import nn

from springtide.training.determinism import levels
from springtide.training.determinism.operators import OperatorScan
from springtide.training.workers import randomness

Case = tuple[nn.Module, torch.Tensor, nn.Module, torch.Tensor]


class Recommender(nn.Module):
    """Embeddings, a dot product and a tower."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(50, 16)
        self.items = nn.Embedding(70, 16)
        self.tower = nn.Sequential(nn.Linear(32, 16), nn.SiLU(), nn.Linear(16, 1))

    def forward(self, pair: torch.Tensor) -> torch.Tensor:
        user, item = self.users(pair[:, 0]), self.items(pair[:, 1])
        score: torch.Tensor = self.tower(torch.cat([user, item], 1)).squeeze(1) + (user * item).sum(1)
        return score


class Causal(nn.Module):
    """Causal attention as small GPTs write it: by hand, and by torch's operator for one head and for several."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(32, 96)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.mix(x).split(32, dim=2)
        attend = nn.functional.scaled_dot_product_attention
        queries, keys, values = (part.view(*x.shape[:2], 4, 8).transpose(1, 2) for part in (query, key, value))
        several = attend(queries, keys, values, is_causal=True).transpose(1, 2).reshape(x.shape)
        fused = attend(query, key, value, is_causal=True) + several
        weights = (query @ key.transpose(1, 2) / 32**0.5).masked_fill(torch.ones(8, 8).tril() == 0, float("-inf"))
        by_hand = weights.softmax(-1) @ value
        scale = (fused.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        out: torch.Tensor = self.head(((fused * scale + by_hand).exp() + 1).log().pow(1.5).mean(1))
        return out


def build_cases() -> dict[str, Case]:
    """Model, input, loss and target by name."""
    classes = torch.randint(0, 10, (16,))
    cnn = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.2),
        nn.Conv2d(8, 8, 3, stride=2),
        nn.AvgPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )
    attention = nn.Sequential(
        nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True, activation="gelu"),
        nn.LayerNorm(32),
        nn.Flatten(),
        nn.Linear(32 * 8, 10),
    )
    mlp = nn.Sequential(nn.Linear(40, 300), nn.Tanh(), nn.Linear(300, 30), nn.Sigmoid(), nn.Linear(30, 1))
    pairs = torch.randint(0, 50, (16, 2))
    return {
        "cnn": (cnn, torch.randn(16, 3, 16, 16), nn.CrossEntropyLoss(), classes),
        "attention": (attention, torch.randn(16, 8, 32), nn.CrossEntropyLoss(), classes),
        "causal": (Causal(), torch.randn(16, 8, 32), nn.CrossEntropyLoss(), classes),
        "mlp": (mlp, torch.randn(16, 40), nn.MSELoss(), torch.randn(16, 1)),
        "recommender": (Recommender(), pairs, nn.BCEWithLogitsLoss(), torch.rand(16)),
    }


def build_optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
    """One of each kind."""
    parameters = list(model.parameters())
    return [
        torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
        torch.optim.Adam(parameters, lr=0.01),
        torch.optim.AdamW(parameters, lr=0.01),
    ]


def train(case: Case) -> str:
    """The digest of the weights after three steps with each optimizer."""
    model, x, loss, target = case
    for optimizer in build_optimizers(model):
        for _ in range(3):
            loss(model(x), target).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    sign = hashlib.sha256()
    for tensor in model.state_dict().values():
        sign.update(tensor.contiguous().numpy().tobytes())
    return sign.hexdigest()


def run(level: str, environment: dict[str, str], threads: int, onednn: bool) -> None:
    """Train every model on one device type and print what came of it."""
    os.environ.update(environment)
    levels.apply(levels.choose(level, threads, cuda=False))
    if level != "D2":
        torch.backends.mkldnn.enabled = onednn  # type: ignore[assignment]
    randomness.seed_all(0)
    cases = build_cases()
    with OperatorScan() as scan:
        digests = {name: train(case) for name, case in cases.items()}
    print(json.dumps({"digests": digests, "operators": sorted(scan.seen)}), flush=True)


for argument in sys.argv[1:]:
    if (child := os.fork()) == 0:
        run(*json.loads(argument))
        os._exit(0)
    os.waitpid(child, 0)
