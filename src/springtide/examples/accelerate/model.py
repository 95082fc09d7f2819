"""scikit-learn's handwritten digits and a classifier of them, in two parts: to train on, and held out."""

import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

HELD = 297


def make_model() -> torch.nn.Module:
    """Two layers with dropout."""
    layers = [torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(128, 10)]
    return torch.nn.Sequential(*layers)


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """Images of 8x8 with their digits."""
    pixels, labels = load_digits(return_X_y=True)
    images, digits = torch.tensor(pixels / 16).float(), torch.tensor(labels)
    return TensorDataset(images[HELD:], digits[HELD:]), TensorDataset(images[:HELD], digits[:HELD])
