"""Scikit-learn's handwritten digits, and a small convolutional network with BatchNorm and dropout."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import Dataset

# Of 1797 images; the other 357 are for evaluation. An epoch of four logical workers is then 11 steps of 4 x 32.
TRAINING_IMAGES = 1440


class Digits(Dataset[tuple[Tensor, Tensor]]):
    """The 8 x 8 images with their labels; for training, each is shifted and made a little noisy."""

    def __init__(self, train: bool = True) -> None:
        pixels, labels = load_digits(return_X_y=True)
        part = slice(0, TRAINING_IMAGES) if train else slice(TRAINING_IMAGES, None)
        self.images = torch.from_numpy(pixels[part].reshape(-1, 1, 8, 8) / 16.0).float()
        self.labels = torch.from_numpy(labels[part]).long()
        self.augmenting = train

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = self.images[index]
        return (augment(image) if self.augmenting else image), self.labels[index]


def augment(image: Tensor) -> Tensor:
    """The image shifted by up to one pixel, with noise; draws from NumPy's and torch's global generators."""
    across, down = np.random.randint(-1, 2, size=2)
    shifted = torch.roll(image, (int(down), int(across)), (1, 2))
    return shifted + 0.05 * torch.randn_like(shifted)


class Cnn(nn.Module):
    """Three convolutions with BatchNorm, dropout, and a linear layer: 0.1 million parameters."""

    def __init__(self, dropout: float = 0.2) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *convolve(1, 32), *convolve(32, 64), nn.MaxPool2d(2), *convolve(64, 64), nn.Dropout(dropout), nn.Flatten()
        )
        self.classify = nn.Linear(64 * 4 * 4, 10)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.classify(self.features(images))
        return scores


def convolve(channels: int, width: int) -> tuple[nn.Module, ...]:
    """A 3 x 3 convolution, normalised and rectified."""
    return nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()


def measure_accuracy(model: nn.Module) -> float:
    """The share of the held-out digits that the model names rightly; leaves the model in training mode."""
    held_out = Digits(train=False)
    device = next(model.parameters()).device
    model.eval()
    with torch.no_grad():
        guesses = model(held_out.images.to(device)).argmax(1).cpu()
    model.train()
    return float((guesses == held_out.labels).float().mean())
