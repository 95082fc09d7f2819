"""`springtide.init` and the run it returns: what a training script calls.

The run knows its goal, its position and the user's state. What one global step does is in `elastic_run` (our runtime)
or `ddp_run` (the same script under stock DistributedDataParallel), which derive from it.
"""

import abc
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import default_collate

from springtide.core.limits import MOST_STEPS
from springtide.errors import JobError
from springtide.training.determinism import levels
from springtide.training.group.control_channel import Channel
from springtide.training.group.rosters import check_counts
from springtide.training.settings import Settings, read_settings
from springtide.training.workers import randomness
from springtide.training.workers.sampling import Sampling, check_size


@dataclass(frozen=True, slots=True)
class Position:
    """Completed work: `step` global steps in all, `step_in_epoch` of them in `epoch`."""

    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0

    def after_step(self) -> "Position":
        """The position one global step later."""
        return replace(self, step=self.step + 1, step_in_epoch=self.step_in_epoch + 1)

    def after_epoch(self) -> "Position":
        """The position at the start of the next epoch."""
        return Position(self.epoch + 1, 0, self.step)


@dataclass(frozen=True, slots=True)
class Goal:
    """Where a run ends: after `epochs` epochs or `steps` global steps, and never beyond `cap` steps."""

    epochs: int | None = None
    steps: int | None = None
    cap: int | None = None

    def total_steps(self, steps_per_epoch: int) -> int | None:
        """All global steps of the run, if a goal is set."""
        if self.steps is None and self.epochs is None:
            return self.cap
        wanted = self.steps if self.steps is not None else (self.epochs or 0) * steps_per_epoch
        return wanted if self.cap is None else min(wanted, self.cap)

    def is_reached(self, position: Position) -> bool:
        """Whether no further epoch begins from this position."""
        limits = [limit for limit in (self.steps, self.cap) if limit is not None]
        if limits and position.step >= min(limits):
            return True
        return self.epochs is not None and position.epoch >= self.epochs

    def allows_step(self, position: Position) -> bool:
        """Whether another global step may begin."""
        limits = [limit for limit in (self.steps, self.cap) if limit is not None]
        return not limits or position.step < min(limits)


class Run(abc.ABC):
    """A training run of N logical workers, as one process sees it."""

    def __init__(self, logical_workers: int, seed: int, settings: Settings) -> None:
        self.logical_workers = logical_workers
        self.seed = seed
        self.settings = settings
        self.level = settings.level or "D1"
        self.position = Position()
        self.goal = Goal(cap=settings.max_steps)
        #: The user's own: numbers, strings, tensors, and lists, tuples and dicts of them. The first process's is saved
        #: with every checkpoint and handed to joining processes, so keep in it what is the same on all. `prepare`
        #: replaces it when a run is resumed; give defaults after it, with `run.state.setdefault`.
        self.state: dict[str, Any] = {}
        self.stop_reason: str | None = None
        self.model: torch.nn.Module
        self.optimizers: list[torch.optim.Optimizer]
        self.channel = Channel(settings.control, settings.process)

    @property
    def output_dir(self) -> Path:
        """The folder for results: the executor's, or the current one."""
        return self.settings.output or Path.cwd()

    @property
    @abc.abstractmethod
    def is_main(self) -> bool:
        """Whether this process holds logical worker 0, so that what it prints or saves appears once."""

    def prepare(
        self,
        *parts: Any,
        batch_size: int,
        shuffle: bool = True,
        drop_last: bool = True,
        accumulate: int = 1,
        find_unused_parameters: bool = False,
        broadcast_buffers: bool = True,
        num_workers: int = 0,
        prefetch_factor: int = 2,
        collate_fn: Any = None,
    ) -> tuple[Any, ...]:
        """The given model, optimizers, schedulers, gradient scalers and dataset made elastic, in the order given.

        The dataset comes back as the loader. `batch_size` is per logical worker; `accumulate` mini-batches of each
        worker make one global step. `drop_last` (True here, unlike DataLoader) leaves out a worker's incomplete last
        batch, so that the global batch never changes.
        """
        given = sort_parts(parts)
        options = PrepareOptions(
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            accumulate=accumulate,
            find_unused_parameters=find_unused_parameters,
            broadcast_buffers=broadcast_buffers,
            num_workers=num_workers,
            prefetch_factor=prefetch_factor,
            collate=collate_fn or default_collate,
        )
        self.model, self.optimizers = given.model, given.optimizers
        model, loader = self.adopt_parts(given, options)
        replaced = {id(given.model): model, id(given.dataset): loader}
        return tuple(replaced.get(id(part), part) for part in parts)

    @abc.abstractmethod
    def adopt_parts(self, given: "Parts", options: "PrepareOptions") -> tuple[Any, Any]:
        """The model and the loader that the script goes on with; its optimizers and the rest act once per step."""

    def make_sampling(self, samples: int, options: "PrepareOptions") -> Sampling:
        """The job's data order, if the samples can fill a global batch."""
        size, shuffle, accumulate = options.batch_size, options.shuffle, options.accumulate
        sampling = Sampling(samples, self.logical_workers, size, self.seed, shuffle, options.drop_last, accumulate)
        check_size(sampling)
        return sampling

    @abc.abstractmethod
    def log(self, **metrics: float | torch.Tensor) -> None:
        """Record metrics of this logical worker's step; their mean over all workers is logged once per step.

        Outside the loop there is no worker: what the first process has is logged as it is. Log there what is the same
        on every process, as a result of evaluation is; a loss left over from the loop is that of one worker.
        """

    @abc.abstractmethod
    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Clip the reduced gradients; acts once per global step and returns the norm (0 in the other turns)."""

    @abc.abstractmethod
    def finish(self) -> None:
        """Note that the last step has been taken."""

    @property
    @abc.abstractmethod
    def steps_per_epoch(self) -> int:
        """Global steps per epoch."""

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs left of `count`, from where a resumed run stands."""
        if count < 1:
            raise JobError(f"run.epochs({count}); a run needs at least 1 epoch")
        self.goal = Goal(epochs=count, cap=self.settings.max_steps)
        return self.walk_epochs()

    def steps(self, count: int) -> Iterator[int]:
        """As many epochs as it takes for `count` global steps in all; the last one may be cut short."""
        if count < 1:
            raise JobError(f"run.steps({count}); a run needs at least 1 step")
        self.goal = Goal(steps=count, cap=self.settings.max_steps)
        return self.walk_epochs()

    def walk_epochs(self) -> Iterator[int]:
        """Epoch numbers until the goal is reached or the run is stopped."""
        self.announce()
        while self.stop_reason is None and not self.goal.is_reached(self.position):
            randomness.seed_all(randomness.mix(self.seed, self.position.epoch))
            before, began_s = self.position, time.monotonic()
            yield self.position.epoch
            self.check_progress(before)
            self.report_epoch(before.epoch, time.monotonic() - began_s)
            if self.has_ended_epoch():
                self.position = self.position.after_epoch()
        self.finish()

    def has_ended_epoch(self) -> bool:
        """Whether the loop left the epoch for good: all steps taken, or broken off while more were allowed."""
        if self.position.step_in_epoch >= self.steps_per_epoch:
            return True
        return self.stop_reason is None and self.goal.allows_step(self.position)

    @abc.abstractmethod
    def report_epoch(self, epoch: int, seconds: float) -> None:
        """Report how long an epoch took, and how much of it outside the loop: evaluation, and user code."""

    def check_progress(self, before: Position) -> None:
        """Refuse an epoch in which the loader was not walked: the run would never end."""
        if self.position == before and before.step_in_epoch < self.steps_per_epoch and self.stop_reason is None:
            raise JobError(
                f"epoch {before.epoch} took no step; walk the loader that run.prepare returned in each epoch"
            )

    @contextlib.contextmanager
    def busy(self, doing: str) -> Iterator[None]:
        """Say that this process waits for something that it knows of, as an upload: it does not hang meanwhile."""
        self.channel.send("busy", doing=doing or "busy")
        try:
            yield
        finally:
            self.channel.send("busy", doing="")

    def find_total_steps(self) -> int | None:
        """All global steps of the run, if a goal is set; refused where no plan could be made for so many."""
        total = self.goal.total_steps(self.steps_per_epoch)
        if total is not None and total > MOST_STEPS:
            raise JobError(
                f"the run would take {total} steps; at most {MOST_STEPS:.0e} can be planned. Name the epochs or steps "
                'that you need at most; run.stop("why") ends earlier'
            )
        return total

    def announce(self) -> None:
        """Tell the supervisor how much work there is."""
        self.channel.send(
            "planned",
            total_steps=self.find_total_steps(),
            steps_per_epoch=self.steps_per_epoch,
            logical_workers=self.logical_workers,
            step=self.position.step,
        )

    def stop(self, reason: str = "stopped") -> None:
        """End the run early and successfully, at the end of this global step.

        Inside the loop logical worker 0's call counts; decide on values that all workers share.
        """
        self.stop_reason = reason

    @abc.abstractmethod
    def checkpoint(self) -> None:
        """Ask for a checkpoint at the end of this global step, or of the next one, if the run has a folder for them.

        Inside the loop logical worker 0's call counts. Training does not wait for it.
        """

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluate without disturbing training: model in eval mode, no gradients, all random state put back."""
        state = randomness.capture()
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self.model.train(was_training)
            randomness.restore(state)


def init(logical_workers: int, seed: int = 0, determinism: str = "D1") -> Run:
    """Start a run of N logical workers: the ranks of the DDP run it imitates, fixed for the job's life.

    Seeds Python, NumPy and torch with `seed`, so call it before building the model. The job file and the launcher may
    set the level and more through the environment (see `settings`).
    """
    settings = read_settings()
    check_counts(logical_workers, 1)
    if settings.logical_workers is not None and settings.logical_workers != logical_workers:
        raise JobError(
            f"the job file says logical_workers: {settings.logical_workers}, the script says "
            f"springtide.init(logical_workers={logical_workers}); make them agree"
        )
    level = settings.level or determinism
    levels.apply(levels.choose(level, settings.threads, torch.cuda.is_available()))
    randomness.seed_all(seed)
    settings = replace(settings, level=level)
    if settings.mode == "reference":
        from springtide.training.ddp_run import ReferenceRun

        return ReferenceRun(logical_workers, seed, settings)
    from springtide.training.elastic_run import ElasticRun

    return ElasticRun(logical_workers, seed, settings, os.environ)


@dataclass(frozen=True, slots=True)
class Parts:
    """What `prepare` was given, by what it is."""

    model: torch.nn.Module
    optimizers: list[torch.optim.Optimizer]
    schedulers: list[Any]
    scalers: list[torch.amp.GradScaler]
    dataset: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareOptions:
    """How `prepare` was told to make batches and to reduce."""

    batch_size: int
    shuffle: bool
    drop_last: bool
    accumulate: int
    find_unused_parameters: bool
    broadcast_buffers: bool
    num_workers: int
    prefetch_factor: int
    collate: Callable[[list[Any]], Any]


def sort_parts(parts: Iterable[Any]) -> Parts:
    """The arguments of `prepare` by what they are; exactly one model and one dataset."""
    by_type: dict[str, list[Any]] = {"model": [], "optimizer": [], "scheduler": [], "scaler": [], "dataset": []}
    for part in parts:
        by_type[find_part_type(part)].append(part)
    for part_type in ("model", "dataset"):
        if len(by_type[part_type]) != 1:
            raise JobError(f"run.prepare was given {len(by_type[part_type])} of kind {part_type}; give exactly one")
    if not by_type["optimizer"]:
        raise JobError("run.prepare was given no optimizer; give the one that trains the model")
    (model,), (dataset,) = by_type["model"], by_type["dataset"]
    return Parts(model, by_type["optimizer"], by_type["scheduler"], by_type["scaler"], dataset)


def find_part_type(part: Any) -> str:
    """What an argument of `prepare` is."""
    if isinstance(part, torch.nn.Module):
        return "model"
    if isinstance(part, torch.optim.Optimizer):
        return "optimizer"
    if isinstance(part, torch.optim.lr_scheduler.LRScheduler):
        return "scheduler"
    if isinstance(part, torch.amp.GradScaler):
        return "scaler"
    return "dataset"
