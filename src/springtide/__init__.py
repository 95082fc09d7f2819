"""Springtide: elastic, serverless training with deadlines, on any number of devices, with the same bits.

Public names are resolved on first use, so that importing the package imports nothing else, and no command imports
torch unless it trains:

- `init`, `seeded`, `Run`: in a training script;
- `Client`, `AsyncClient`, `JobFile`, `job_from`: to submit jobs and follow them;
- `simulate`: to replay a trace under a policy;
- `errors`: everything that is raised.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_MODULES = {
    "AsyncClient": "springtide.client.async_client",
    "Client": "springtide.client.client",
    "JobFile": "springtide.core.job_file",
    "Run": "springtide.training.run",
    "init": "springtide.training.run",
    "job_from": "springtide.client.function_jobs",
    "seeded": "springtide.training.workers.sampling",
    "simulate": "springtide.simulator.front",
}

__all__ = ["AsyncClient", "Client", "JobFile", "Run", "__version__", "errors", "init", "job_from", "seeded", "simulate"]

if TYPE_CHECKING:
    from springtide import errors
    from springtide.client.async_client import AsyncClient
    from springtide.client.client import Client
    from springtide.client.function_jobs import job_from
    from springtide.core.job_file import JobFile
    from springtide.simulator.front import simulate
    from springtide.training.run import Run, init
    from springtide.training.workers.sampling import seeded


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("springtide.errors")
    if name not in _MODULES:
        raise AttributeError(f"module 'springtide' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
