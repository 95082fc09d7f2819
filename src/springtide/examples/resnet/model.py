"""Handwritten digits and a residual network of 45 MB, large enough for several of DDP's gradient buckets."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import relu
from torch.utils.data import Dataset


class Digits(Dataset[tuple[Tensor, Tensor]]):
    """Scikit-learn's 8 x 8 images with their labels; there are 1797."""

    def __init__(self, images: int = 1797) -> None:
        pixels, labels = load_digits(return_X_y=True)
        self.images = torch.from_numpy(pixels[:images].reshape(-1, 1, 8, 8) / 16.0).float()
        self.labels = torch.from_numpy(labels[:images]).long()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.images[index], self.labels[index]


class Residual(nn.Module):
    """Two normalised convolutions, added to their input (projected where the shape changes)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *normalise(nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)),
            nn.ReLU(),
            *normalise(nn.Conv2d(width, width, 3, padding=1, bias=False)),
        )
        self.skip: nn.Module = nn.Identity()
        if stride > 1 or channels != width:
            self.skip = nn.Sequential(*normalise(nn.Conv2d(channels, width, 1, stride, bias=False)))

    def forward(self, images: Tensor) -> Tensor:
        return relu(self.body(images) + self.skip(images))


class ResNet(nn.Module):
    """The stages of a ResNet-18 on small images: 11.2 million parameters, three gradient buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*normalise(nn.Conv2d(1, 64, 3, padding=1, bias=False)), nn.ReLU())
        shapes = ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
        self.stages = nn.Sequential(*(block for shape in shapes for block in stage(*shape)))
        self.classify = nn.Linear(512, 10)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.classify(self.stages(self.stem(images)).mean((2, 3)))
        return scores


def stage(channels: int, width: int, stride: int) -> tuple[Residual, Residual]:
    """Two residual blocks, the first of which may halve the image."""
    return Residual(channels, width, stride), Residual(width, width, 1)


def normalise(convolution: nn.Conv2d) -> tuple[nn.Module, nn.Module]:
    """The convolution and the BatchNorm behind it."""
    return convolution, nn.BatchNorm2d(convolution.out_channels)
