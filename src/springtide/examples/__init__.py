"""Real, small training jobs that ship with the package, one folder each.

A folder holds the model and its data (`model.py`), an ordinary single-process script (`train_plain.py`), its elastic
version (`train.py`), the run on stock `DistributedDataParallel` that it must equal bit for bit (`train_ddp.py`), and a
`job.yaml`. The scripts import `model` from their own folder, so a copied folder is a project of its own. This module
only says where the folders are.
"""

from pathlib import Path

NAMES = ("cnn", "gpt", "recommender", "resnet")


def folder(name: str) -> Path:
    """The folder of one example."""
    if name not in NAMES:
        raise KeyError(f"no example is called {name!r}; there are {', '.join(NAMES)}")
    return Path(__file__).parent / name
