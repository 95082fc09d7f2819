"""Generated clicks of people on items, and a recommender that is mostly embeddings."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

PEOPLE, ITEMS, HOURS = 4000, 2000, 24
TASTES = 8


class Clicks(Dataset[tuple[Tensor, Tensor]]):
    """Rows of (person, item, hour) with a click or none, from hidden tastes; few items get most of the views."""

    def __init__(self, rows: int = 40_000, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        people = draw.integers(PEOPLE, size=rows)
        items = np.minimum(draw.zipf(1.2, size=rows) - 1, ITEMS - 1)
        hours = draw.integers(HOURS, size=rows)
        likes, appeals = draw.normal(size=(PEOPLE, TASTES)), draw.normal(size=(ITEMS, TASTES))
        interest = (likes[people] * appeals[items]).sum(1) + np.sin(hours * np.pi / 12)
        self.rows = torch.from_numpy(np.stack([people, items, hours], 1))
        self.clicked = torch.from_numpy(interest > draw.logistic(size=rows)).float()

    def __len__(self) -> int:
        return len(self.clicked)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.rows[index], self.clicked[index]


class Recommender(nn.Module):
    """Embeddings of person, item and hour, joined by a product and a small network: 0.2 million parameters."""

    def __init__(self, width: int = 32, dropout: float = 0.1) -> None:
        super().__init__()
        self.person = nn.Embedding(PEOPLE, width)
        self.item = nn.Embedding(ITEMS, width)
        self.hour = nn.Embedding(HOURS, width)
        self.mix = nn.Sequential(nn.Linear(3 * width, 64), nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, 1))
        for table in (self.person, self.item, self.hour):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, rows: Tensor) -> Tensor:
        person, item, hour = self.person(rows[:, 0]), self.item(rows[:, 1]), self.hour(rows[:, 2])
        mixed = self.mix(torch.cat([person, item, hour], 1)).squeeze(1)
        scores: Tensor = (person * item).sum(1) + mixed
        return scores
