"""Runs probes on forked processes: stock DDP by hand on N ranks, ours on 1, 3 and N, and prints a verdict for each.

`python -m tests.training.probes.probe_runner all|short [NAME ...]`: one JSON line per probe.
"""

import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import textwrap
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo
import torch.distributed as dist
import torch.nn.functional as F
import torch.optim.lr_scheduler as S
from tests.training.probes.probe_table import PROBES, LoopProbe
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WORKERS, EPOCHS, BATCH = 4, 2, 4
COUNTS = ((4,), (2, 1, 1), (1, 1, 1, 1))


def make_data() -> TensorDataset:
    """The same samples for all."""
    chance = torch.Generator().manual_seed(7)
    return TensorDataset(torch.randn(70, 6, generator=chance), torch.randint(3, (70,), generator=chance))


def seed(number: int) -> None:
    """Seed as a user's script does."""
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


#: What probes use by name.
NAMES = {"F": F, "S": S, "nn": nn, "np": np, "random": random, "torch": torch, "dist": dist, "seed": seed}
NAMES |= {"DistributedDataParallel": DistributedDataParallel, "AveragedModel": AveragedModel, "DataLoader": DataLoader}
NAMES |= {"DistributedSampler": DistributedSampler, "make_data": make_data}
NAMES |= {"WORKERS": WORKERS, "EPOCHS": EPOCHS, "BATCH": BATCH}


def indent(text: str, depth: int) -> str:
    """Lines at a depth."""
    return textwrap.indent(text or "pass", "    " * depth)


def write_stock(probe: LoopProbe) -> str:
    """The probe as a script by hand, without anything of ours."""
    return f"""
seed(0)
{probe.setup}
net = DistributedDataParallel(model{", " + probe.options if probe.options else ""})
hold = net.no_sync
data = make_data()
sampler = DistributedSampler(data, shuffle=True, seed=0)
loader = DataLoader(data, batch_size=BATCH, sampler=sampler)
def mean(values):
    total = values[0].detach().clone()
    dist.all_reduce(total)
    return total / WORKERS
seed(0 + rank)
for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
{indent(probe.top, 1)}
    for x, y in loader:
        def walk():
            global total
            total = F.cross_entropy(net(x), y)
            total.backward()
            total = mean([total])
        turn_losses = []
        for _ in (0,):
{indent(probe.turn, 3)}
            turn_losses = [loss] if "loss" in globals() else []
{indent(probe.after, 2)}
{indent(probe.end, 1)}
"""


def write_elastic(probe: LoopProbe) -> str:
    """The probe as an elastic script."""
    return f"""
run = springtide.init(logical_workers=WORKERS, seed=0)
{probe.setup}
net = model
hold = run.no_sync
mean = run.mean
loader = DataLoader(make_data(), batch_size=BATCH, shuffle=True)
model, optimizer, loader = run.prepare(model, optimizer, loader{", " + probe.options if probe.options else ""})
for epoch in run.epochs(EPOCHS):
{indent(probe.top, 1)}
    for step in loader:
        def walk():
            global total
            totals = []
            for x, y in step:
                one = F.cross_entropy(net(x), y)
                one.backward()
                totals.append(one)
            total = run.mean(totals)
        turn_losses = []
{
        ""
        if not probe.turn
        else f'''        for x, y in step:
{indent(probe.turn, 3)}
            turn_losses.append(loss)'''
    }
{indent(probe.after, 2)}
{indent(probe.end, 1)}
"""


def digest(space: dict[str, Any], kept: list[Any]) -> str:
    """A hash of weights, buffers, optimizer state and what the probe kept."""
    sign = hashlib.sha256()
    modules = [one for one in kept if isinstance(one, nn.Module)]
    tensors = [one for one in kept if isinstance(one, torch.Tensor)]
    for module in (space["model"], *modules):
        tensors += [tensor for name, tensor in sorted(module.state_dict().items())]
    for state in space["optimizer"].state.values():
        tensors += [value for value in state.values() if isinstance(value, torch.Tensor)]
    for tensor in tensors:
        sign.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    sign.update(repr([group["lr"] for group in space["optimizer"].param_groups]).encode())
    return sign.hexdigest()


def run_rank(probe: LoopProbe, stock: bool, rank: int, counts: tuple[int, ...], folder: Path) -> None:
    """One process of a run: leaves its digest, or the sentence it was refused with."""
    kept: list[Any] = []

    def keep(*values: Any) -> None:
        kept[:] = values

    space: dict[str, Any] = {**NAMES, "rank": rank, "keep": keep}
    if stock:
        store = dist.FileStore(str(folder / "stock"), WORKERS)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=WORKERS)
    else:
        import springtide
        from springtide.training.group.rosters import make_roster

        space["springtide"] = springtide
        os.environ |= {"SPRINGTIDE_PROCESS": f"p{rank}", "SPRINGTIDE_ROSTER": str(make_roster(counts))}
        if len(counts) > 1:
            os.environ["SPRINGTIDE_STORE"] = (folder / "store").read_text()
    try:
        exec(compile(write_stock(probe) if stock else write_elastic(probe), probe.name, "exec"), space)
        (folder / f"rank{rank}").write_text(digest(space, kept))
        if stock:
            dist.barrier()
    except Exception as error:
        if not probe.refused:
            traceback.print_exc()
        (folder / f"rank{rank}").write_text(f"{type(error).__name__}: {error}")


def run_once(probe: LoopProbe, stock: bool, counts: tuple[int, ...]) -> list[str]:
    """What every process of a run left."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keeper = 0 if stock or len(counts) == 1 else fork_store(folder)
        children = []
        for rank in range(len(counts)):
            child = os.fork()
            if child == 0:
                try:
                    run_rank(probe, stock, rank, counts, folder)
                finally:
                    sys.stderr.flush()
                    os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        if keeper:
            os.kill(keeper, 9)
            os.waitpid(keeper, 0)
        files = [folder / f"rank{rank}" for rank in range(len(counts))]
        return [file.read_text() if file.exists() else "nothing" for file in files]


def fork_store(folder: Path) -> int:
    """A process that holds the store of a run."""
    keeper = os.fork()
    if keeper == 0:
        from springtide.training.group.groups import host_store

        _store, address = host_store()
        (folder / "store.new").write_text(address)
        (folder / "store.new").rename(folder / "store")
        while True:
            signal.pause()
    while not (folder / "store").exists():
        time.sleep(0.005)
    return keeper


def judge(probe: LoopProbe) -> dict[str, Any]:
    """The verdict on one probe."""
    sizes = COUNTS[:1] if probe.refused else COUNTS
    ours = {len(counts): run_once(probe, False, counts) for counts in sizes}
    if probe.refused:
        said = ours[1][0]
        refused = said.startswith(("JobError", "NondeterminismError")) and probe.refused in said
        return {"name": probe.name, "verdict": "refused" if refused else f"NOT REFUSED: {said[:300]}"}
    stock = run_once(probe, True, (1,) * WORKERS)
    bad = {size: [one[:200] for one in left] for size, left in ours.items() if set(left) != {stock[0]}}
    return {"name": probe.name, "verdict": "equal" if not bad else f"DIFFERENT: stock {stock[0][:200]}, ours {bad}"}


if __name__ == "__main__":
    torch.set_num_threads(1)
    which, *names = sys.argv[1:]
    for one in PROBES:
        if (which == "all" or one.short) and (not names or one.name in names):
            print(json.dumps(judge(one)), flush=True)
