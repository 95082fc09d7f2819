"""Runs scripts on forked processes and leaves their traces: stock DDP scripts unchanged, or ours under given settings.

Reads from standard input a JSON list of {"script", "imports", "arguments", "steps", "traces", "counts", "mode"}, where
imports is the folder that holds the script's `model` (default: its own), and mode is
`stock` (a script that knows nothing of us, traced through torch's own hooks), `reference` or `elastic`. One process
imports torch for them all; each rank then starts in milliseconds.
"""

import ctypes
import gc
import json
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import sklearn.datasets  # noqa: F401 - imported before forking
import torch._dynamo  # which the first optimizer imports, in two seconds
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.data.dataloader import _BaseDataLoaderIter

from springtide.training import ddp_run, elastic_run
from springtide.training.group.groups import host_store
from springtide.training.group.rosters import make_roster
from springtide.training.settings import Settings, write_settings
from springtide.training.state.digests import DigestTrace, name_tensors

torch.set_num_threads(1)
#: Imported here, and not by every rank.
PRELOADED = (ddp_run, elastic_run)
PR_SET_PDEATHSIG = 1  # Linux


class Observer:
    """Traces one rank of a script that knows nothing of it: its model as DDP is given it, and each step's end."""

    def __init__(self, traces: Path, rank: int, steps: int) -> None:
        self.trace = DigestTrace(traces, f"p{rank}")
        self.trace.worker = rank
        self.steps = steps
        self.step = 0
        self.models: list[DistributedDataParallel] = []
        self.stepped: Optimizer | None = None

    def install(self) -> None:
        """Put the hooks in place."""
        initialise: Any = DistributedDataParallel.__init__

        def note_model(model: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
            initialise(model, *args, **kwargs)
            self.models.append(model)

        setattr(DistributedDataParallel, "__init__", note_model)  # noqa: B010
        register_optimizer_step_post_hook(self.note_step)
        following: Any = _BaseDataLoaderIter.__next__

        def begin_next(batches: _BaseDataLoaderIter) -> Any:
            self.record()
            return following(batches)

        setattr(_BaseDataLoaderIter, "__next__", begin_next)  # noqa: B010

    def note_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """A step is taken; it has ended when the loop asks for the next batch, its schedule too."""
        self.stepped = optimizer

    def record(self) -> None:
        """Write the step that has ended, and end the script after the last one asked for."""
        optimizer, self.stepped = self.stepped, None
        if optimizer is None:
            return
        self.step += 1
        self.trace.write(self.step, name_tensors(self.models[0].module, [optimizer]), "reference")
        if self.step == self.steps:
            dist.barrier()  # a rank that leaves early may take down a connection its peers still read
            raise SystemExit(0)


def run_rank(run: dict[str, Any], rank: int, store: str) -> None:
    """Run the script as one rank of a run."""
    if run["mode"] == "stock":
        host, port = store.split(":")
        # As under torchrun, whose agent holds the store.
        os.environ |= {"MASTER_ADDR": host, "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": "True"}
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(len(run["counts"]))}
        Observer(Path(run["traces"]), rank, run["steps"]).install()
    else:
        os.environ |= write_settings(
            Settings(
                process=f"p{rank}",
                roster=str(make_roster(run["counts"])),
                store=store,
                mode=run["mode"],
                max_steps=run["steps"],
                trace_dir=Path(run["traces"]),
            )
        )
    sys.argv = [run["script"], *run["arguments"]]
    sys.path[0] = run.get("imports") or str(Path(run["script"]).parent)
    runpy.run_path(run["script"], run_name="__main__")


def become_rank(run: dict[str, Any], rank: int, store: str) -> None:
    """In the child: run the script, and leave without the parent's clean-up, which would wait for its threads."""
    end_with_parent()
    code = 1
    try:
        run_rank(run, rank, store)
        code = 0
    except SystemExit as end:
        code = int(bool(end.code))
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def fork_store() -> tuple[int, str]:
    """Fork a process that holds a store, and return it with the address.

    Its threads must not be here: a rank forked beside them can inherit a lock that nobody will release.
    """
    reading, writing = os.pipe()
    keeper = os.fork()
    if keeper == 0:
        end_with_parent()
        _store, address = host_store()
        os.write(writing, address.encode())
        while True:
            signal.pause()
    os.close(writing)
    with os.fdopen(reading) as pipe:
        return keeper, os.read(pipe.fileno(), 100).decode()


def end_with_parent() -> None:
    """Have this process killed when its parent ends, so that a test that is stopped leaves nothing behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def fork_run(run: dict[str, Any]) -> None:
    """Fork the ranks of a run and wait for them; raise if one fails."""
    keeper, address = fork_store()
    children = []
    for rank in range(len(run["counts"])):
        child = os.fork()
        if child == 0:
            become_rank(run, rank, address)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.kill(keeper, signal.SIGKILL)
    os.waitpid(keeper, 0)
    if any(codes):
        raise SystemExit(f"a rank of {run['script']} ({run['mode']}) failed; its error is above")


if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # what was imported is not looked through at each step of each rank for what is alive
    for planned in json.load(sys.stdin):
        fork_run(planned)
