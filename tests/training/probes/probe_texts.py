"""The texts of a probe, stock and elastic, what they use by name, and a digest of what they leave."""

import hashlib
import random
import textwrap
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
import torch.optim.lr_scheduler as S
from tests.training.probes.probe_counts import COUNTS
from tests.training.probes.probe_in_place import IN_PLACE
from tests.training.probes.probe_lasting import LASTING
from tests.training.probes.probe_scripts import SCRIPTS
from tests.training.probes.probe_surroundings import SURROUNDED
from tests.training.probes.probe_table import PROBES, LoopProbe
from tests.training.probes.probe_updates import UPDATES
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

#: Every probe, by its name.
KNOWN = {one.name: one for one in (*PROBES, *SCRIPTS, *UPDATES, *SURROUNDED, *COUNTS, *LASTING, *IN_PLACE)}
EPOCHS, BATCH = 2, 4


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
NAMES |= {"EPOCHS": EPOCHS, "BATCH": BATCH}


def indent(text: str, depth: int) -> str:
    """Lines at a depth."""
    return textwrap.indent(text or "pass", "    " * depth)


def write_stock(probe: LoopProbe) -> str:
    """The probe as a script by hand, without anything of ours."""
    return (
        probe.stock_script
        or f"""
seed(0)
{probe.setup}
net = DistributedDataParallel(model{", " + probe.options if probe.options else ""})
hold = net.no_sync
{probe.stock}
{probe.data}
{probe.split}
share = lambda values: (values, lambda results: results)
state = {{}}
def mean(values):
    total = values[0].detach().clone()
    dist.all_reduce(total)
    return total / WORKERS
{probe.ready}
seed(0 + rank)
for epoch in range(EPOCHS):
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)
{indent(probe.top, 1)}
    for index, (x, y) in enumerate(loader):
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
    )


def write_elastic(probe: LoopProbe) -> str:
    """The probe as an elastic script."""
    options = f", {probe.options}" if probe.options else ""
    given = f", {probe.given}" if probe.given else ""
    return (
        probe.script
        or f"""
run = springtide.init(logical_workers=WORKERS, seed=0)
{probe.setup}
net = model
hold = run.no_sync
mean = run.mean
def share(values):
    shard = run.shard(values)
    return shard, shard.gather
{probe.elastic}
{probe.data}
{probe.shuffled}
model, optimizer, loader{given} = run.prepare(model, optimizer, loader{given}{options})
{probe.ready}
for epoch in run.epochs(EPOCHS):
{indent(probe.top, 1)}
    {probe.loop}
        index = step.index
        def walk():
            global total
            totals = []
            for x, y in step:
                one = F.cross_entropy(net(x), y)
                one.backward()
                totals.append(one)
            total = run.mean(totals)
        turn_losses = []
{write_turns(probe.turn)}
{indent(probe.after, 2)}
{indent(probe.end, 1)}
"""
    )


def write_turns(turn: str) -> str:
    """The loop over a step."""
    if not turn:
        return ""
    return f"""        for x, y in step:
            state = step.worker.state
{indent(turn, 3)}
            turn_losses.append(loss)"""


def digest(space: dict[str, Any], kept: list[Any]) -> str:
    """A hash of weights, buffers, optimizer state and what the probe kept."""
    modules = [one for one in kept if isinstance(one, nn.Module)]
    tensors = [one for one in kept if isinstance(one, torch.Tensor)]
    sign = hashlib.sha256(repr([one for one in kept if isinstance(one, float | int | str)]).encode())
    for module in (space["model"], *modules):
        names = sorted((name.removeprefix("_orig_mod."), tensor) for name, tensor in module.state_dict().items())
        tensors += [tensor for _, tensor in names]
    for state in space["optimizer"].state.values():
        tensors += [value for value in state.values() if isinstance(value, torch.Tensor)]
    for tensor in tensors:
        sign.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    sign.update(repr([group["lr"] for group in space["optimizer"].param_groups]).encode())
    return sign.hexdigest()


def run_text(probe: LoopProbe, text: str, rank: int, **more: Any) -> str:
    """Run a probe's text in this process, and the digest of what it has left."""
    kept: list[Any] = []

    def keep(*values: Any) -> None:
        kept[:] = values

    space = {**NAMES, "WORKERS": probe.workers, "rank": rank, "keep": keep, "__name__": "__main__", **more}
    exec(compile(text, probe.name, "exec"), space)
    return digest(space, kept)
