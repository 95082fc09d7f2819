"""Real, small training jobs that ship with the package, one folder each.

A folder holds the model and its data (`model.py`), the elastic script (`train.py`) and a `job.yaml`. The script imports
`model` from its own folder, so a copied folder is a project of its own. What it is compared with, by lines and by bits,
lies in `tests/examples/scripts` of the repository. This module only says where the folders are.
"""

from pathlib import Path

NAMES = ("cnn", "gpt", "recommender", "resnet")
#: Those of frameworks, which need an extra of their name: `springtide[hf]`.
TEMPLATES = (*NAMES, "accelerate", "hf", "lightning")


def folder(name: str) -> Path:
    """The folder of one example."""
    if name not in TEMPLATES:
        raise KeyError(f"no example is called {name!r}; there are {', '.join(TEMPLATES)}")
    return Path(__file__).parent / name
