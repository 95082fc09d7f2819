"""A classifier of scikit-learn's handwritten digits as a LightningModule."""

from typing import Any

import torch
from lightning.pytorch import LightningModule
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset


class Digits(LightningModule):
    """Two layers with dropout."""

    def __init__(self) -> None:
        super().__init__()
        layers = [torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(128, 10)]
        self.network = torch.nn.Sequential(*layers)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """The loss of a batch."""
        images, targets = batch
        loss = cross_entropy(self.network(images), targets)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def load_data() -> TensorDataset:
    """1797 images of 8x8."""
    pixels, labels = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(pixels / 16).float(), torch.tensor(labels))
