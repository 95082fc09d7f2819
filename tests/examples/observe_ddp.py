"""Runs a stock DDP script unchanged on forked ranks and records every step's fingerprints through torch's own hooks.

Usage: observe_ddp.py RANKS STEPS FOLDER SCRIPT [ARGUMENT ...]. The ranks get the environment that torchrun would give
them; forking after the imports saves each of them three seconds.
"""

import os
import runpy
import socket
import sys
from pathlib import Path
from typing import Any

import sklearn.datasets  # noqa: F401 - imported before forking
import torch._dynamo  # noqa: F401 - which the first optimizer imports, in two seconds
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from springtide.training.traces import Trace, name_tensors


class Observer:
    """Traces one rank of a script that knows nothing of it: its model as DDP is given it, and each step's end."""

    def __init__(self, folder: Path, rank: int, steps: int) -> None:
        self.trace = Trace(folder, f"p{rank}")
        self.trace.worker = rank
        self.steps = steps
        self.step = 0
        self.models: list[DistributedDataParallel] = []

    def install(self) -> None:
        """Put the hooks in place."""
        initialise: Any = DistributedDataParallel.__init__

        def note_model(model: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
            initialise(model, *args, **kwargs)
            self.models.append(model)

        setattr(DistributedDataParallel, "__init__", note_model)  # noqa: B010
        register_optimizer_step_post_hook(self.record)

    def record(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Write this rank's step, and end the script after the last one asked for."""
        self.step += 1
        self.trace.write(self.step, name_tensors(self.models[0].module, [optimizer]), "reference")
        if self.step == self.steps:
            raise SystemExit(0)


def run_rank(rank: int, ranks: int, port: int, words: list[str]) -> None:
    """Run the script as one rank."""
    steps, folder, script = words[:3]
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    sys.argv = words[2:]
    sys.path[0] = str(Path(script).parent)
    Observer(Path(folder), rank, int(steps)).install()
    runpy.run_path(script, run_name="__main__")


def find_port() -> int:
    """A port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def main() -> None:
    """Fork the ranks and exit with the worst of their codes."""
    ranks, port, children = int(sys.argv[1]), find_port(), []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            run_rank(rank, ranks, port, sys.argv[2:])
            raise SystemExit(0)
        children.append(child)
    raise SystemExit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children))


if __name__ == "__main__":
    main()
