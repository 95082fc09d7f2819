"""Springtide: elastic, serverless training with deadlines, on any number of devices, with the same bits.

Public names are resolved on first use, so that no command imports torch unless it trains.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Client": "springtide.client.client",
    "init": "springtide.training.run",
    "seeded": "springtide.training.workers.sampling",
}

__all__ = ["Client", "__version__", "init", "seeded"]

if TYPE_CHECKING:
    from springtide.client.client import Client
    from springtide.training.run import init
    from springtide.training.workers.sampling import seeded


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'springtide' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
