"""The examples as loops that can be stepped one global step at a time, for what is measured of training.

Each loop is a generator that yields after every global step: elastic, plain gradient accumulation over the same
micro-batches, and stock DDP. Timing is in `gangs`; this module imports torch.
"""

import runpy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from math import inf
from time import monotonic
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import springtide
from springtide.examples import folder
from springtide.training.elastic_run import ElasticRun
from springtide.training.run import Run, forget_run
from springtide.training.state.turn_guard import FIRST

Loop = Iterator[Tensor]


@dataclass(frozen=True, slots=True)
class Workload:
    """One example: how to build its parts, and its batch per logical worker."""

    name: str
    model: Callable[[], nn.Module]
    data: Callable[[], Dataset[tuple[Tensor, Tensor]]]
    optimizer: Callable[[Any], torch.optim.Optimizer]
    loss: Callable[[Tensor, Tensor], Tensor]
    batch: int
    clip: float | None = None


def load_workload(name: str) -> Workload:
    """The workload of an example, built as its train.py builds it."""
    parts = runpy.run_path(str(folder(name) / "model.py"))
    if name == "cnn":
        return Workload(name, parts["Cnn"], parts["Digits"], momentum(0.05), cross_entropy, 32)
    if name == "gpt":
        return Workload(name, parts["Gpt"], parts["TextSource"], adamw, parts["measure_loss"], 8, 1.0)
    if name == "recommender":
        loss = binary_cross_entropy_with_logits
        return Workload(name, parts["Recommender"], parts["Clicks"], torch.optim.Adam, loss, 256)
    return Workload(name, parts["ResNet"], parts["Digits"], momentum(0.02), cross_entropy, 16)


def momentum(lr: float) -> Callable[[Any], torch.optim.Optimizer]:
    """A maker of SGD with momentum."""
    return lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=0.9)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    """AdamW as the GPT uses it."""
    return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.1)


def step_elastic(workload: Workload, workers: int, guarded: bool = True) -> Loop:
    """Global steps of the elastic loop in this process, looked at by the guards now and then or never."""
    forget_run()
    run = springtide.init(logical_workers=workers, seed=0)
    if not guarded:
        assert isinstance(run, ElasticRun)
        run.divergence.due_s = run.turn_guard.due_s = inf
        run.turn_guard.walks = FIRST
    bare = workload.model()
    made = workload.optimizer(bare.parameters())
    model, optimizer, loader = run.prepare(bare, made, workload.data(), batch_size=workload.batch)
    for _ in run.epochs(1_000_000):
        for step in loader:
            for inputs, targets in step:
                loss = workload.loss(model(inputs), targets)
                loss.backward()
            update(workload, model, optimizer)
            left_s = monotonic()
            yield loss
            leave_out(run, monotonic() - left_s)


def leave_out(run: Run, seconds: float) -> None:
    """Let guards, which take a part of the time, not count that in which others were measured."""
    if isinstance(run, ElasticRun):
        run.divergence.due_s += seconds
        run.turn_guard.due_s += seconds


class Unseeded(Dataset[tuple[Tensor, Tensor]]):
    """A dataset that draws from whatever state it finds, as in a script without us."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        sample: tuple[Tensor, Tensor] = self.data[index]
        return sample

    def set_epoch(self, epoch: int) -> None:
        """Nothing depends on it."""


def step_accumulating(workload: Workload, workers: int, seeding: bool = True) -> Loop:
    """Global steps of plain gradient accumulation over as many micro-batches, of the same seeded data or as drawn."""
    torch.manual_seed(0)
    model = workload.model()
    optimizer = workload.optimizer(model.parameters())
    data = springtide.seeded(workload.data(), seed=0) if seeding else Unseeded(workload.data())
    loader = DataLoader(data, batch_size=workload.batch, shuffle=True, drop_last=True)
    turns = 0
    for epoch in count():
        data.set_epoch(epoch)
        for inputs, targets in loader:
            loss = workload.loss(model(inputs), targets) / workers
            loss.backward()
            turns += 1
            if turns % workers == 0:
                update(workload, model, optimizer)
                yield loss


def step_ddp(workload: Workload) -> Loop:
    """Global steps of stock DDP in one of its ranks."""
    forget_run()
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(workload.model())
    optimizer = workload.optimizer(model.parameters())
    data = springtide.seeded(workload.data(), seed=0)
    sampler: DistributedSampler[Any] = DistributedSampler(data, shuffle=True, seed=0, drop_last=True)
    loader = DataLoader(data, batch_size=workload.batch, sampler=sampler, drop_last=True)
    torch.manual_seed(dist.get_rank())
    for epoch in count():
        sampler.set_epoch(epoch)
        data.set_epoch(epoch)
        for inputs, targets in loader:
            loss = workload.loss(model(inputs), targets)
            loss.backward()
            update(workload, model, optimizer)
            yield loss


def update(workload: Workload, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Clip if the workload does, step, and drop the gradients."""
    if workload.clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), workload.clip)
    optimizer.step()
    optimizer.zero_grad()
