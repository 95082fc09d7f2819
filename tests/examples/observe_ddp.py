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
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from springtide.training.records import Moment, Recorder, name_tensors


class Observer:
    """Records one rank: its model, the losses since the last step, and the moment after each step."""

    def __init__(self, folder: Path, steps: int) -> None:
        self.recorder = Recorder(folder)
        self.steps = steps
        self.step = 0
        self.models: list[DistributedDataParallel] = []
        self.losses: list[Tensor] = []

    def install(self) -> None:
        """Put the hooks in place."""
        backward: Any = Tensor.backward
        initialise: Any = DistributedDataParallel.__init__

        def note_model(model: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
            initialise(model, *args, **kwargs)
            self.models.append(model)

        def note_loss(loss: Tensor, *args: Any, **kwargs: Any) -> None:
            backward(loss, *args, **kwargs)
            self.losses.append(loss.detach().clone())

        setattr(DistributedDataParallel, "__init__", note_model)  # noqa: B010
        setattr(Tensor, "backward", note_loss)  # noqa: B010
        register_optimizer_step_post_hook(self.record)

    def record(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Record this rank's moment, and end the script after the last step asked for."""
        module, rank = self.models[0].module, dist.get_rank()
        moment = Moment(module, [optimizer], {rank: self.losses}, {rank: dict(module.named_buffers())})
        self.recorder.record(self.step, name_tensors(moment))
        self.losses.clear()
        self.step += 1
        if self.step == self.steps:
            raise SystemExit(0)


def run_rank(rank: int, ranks: int, port: int, words: list[str]) -> None:
    """Run the script as one rank."""
    steps, folder, script = words[:3]
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    sys.argv = words[2:]
    sys.path[0] = str(Path(script).parent)
    Observer(Path(folder), int(steps)).install()
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
