"""`springtide.init` and the run it returns: what a training script calls.

The run knows its goal, its position and the user's state. What one global step does is in `elastic_run` (our runtime)
or `ddp_run` (the same script under stock DistributedDataParallel), which derive from it.
"""

import abc
import contextlib
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, default_collate

from springtide.core.limits import MOST_STEPS
from springtide.errors import JobError
from springtide.training.determinism import cuda, levels
from springtide.training.group.control_channel import Channel
from springtide.training.group.default_group import allow_groups, tell_world_size
from springtide.training.group.rosters import check_counts
from springtide.training.parts import Parts, sort_parts
from springtide.training.positions import Goal, Position
from springtide.training.settings import Settings, read_settings
from springtide.training.tracking.trackers import choose_trackers
from springtide.training.workers import randomness
from springtide.training.workers.feeds import Feed, make_sampling, read_loader
from springtide.training.workers.sampling import Sampling
from springtide.training.workers.shards import Shard

#: The run of this process, once there is one; and who is told as soon as there is.
_current: list["Run"] = []
_listeners: list[Callable[["Run"], None]] = []


class Run(abc.ABC):
    """A training run of N logical workers, as one process sees it."""

    def __init__(self, logical_workers: int, seed: int, settings: Settings) -> None:
        self.logical_workers = logical_workers
        self.seed = seed
        self.settings = settings
        self.level = settings.level or "D1"
        self.position = Position()
        self.goal = Goal(cap=settings.max_steps)
        #: The user's own: numbers, strings, tensors, and lists, tuples and dicts of them. It is saved with every
        #: checkpoint and handed to joining processes, so keep in it what is the same on all. `prepare` replaces it when
        #: a run is resumed; give defaults after it, with `run.state.setdefault`.
        self.state: dict[str, Any] = {}
        self.stop_reason: str | None = None
        #: What the level has set in this process.
        self.switches: levels.Switches | None = None
        #: What the user keeps, by name.
        self.kept: dict[str, Any] = {}
        self.models: list[torch.nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.schedulers: list[Any] = []
        self.scalers: list[torch.amp.GradScaler] = []
        #: How far the script has come: `prepare` was called, `epochs` was, the loader was entered at least once.
        self.prepared = self.began = self.entered = False
        #: Within `run.epochs`: whether an epoch is under way, and whether the loader was walked in it.
        self.in_epoch = self.walked = False
        self.channel = Channel(settings.control, settings.process)
        #: Where this process trains: the GPU that it holds, or the CPU. Move the model and every batch there.
        self.device = cuda.find_own()

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
        batch_size: int | None = None,
        shuffle: bool = True,
        drop_last: bool = True,
        accumulate: int = 1,
        find_unused_parameters: bool = False,
        broadcast_buffers: bool = True,
        num_workers: int = 0,
        prefetch_factor: int = 2,
        collate_fn: Any = None,
        **others: Any,
    ) -> tuple[Any, ...]:
        """Make models, optimizers, schedulers, scalers and a DataLoader elastic; returns them in the order given.

        The DataLoader comes back as a loader of steps. Its batch size is per logical worker, and its order is split
        between the workers as a DistributedSampler would. A dataset may be given in its place, with `batch_size` and
        other options of a DataLoader; it is then shuffled and incomplete batches are dropped. With `accumulate=k`, k
        mini-batches of each worker make one global step.
        """
        if others:
            raise JobError(
                f"run.prepare does not take {', '.join(sorted(others))}; give such options to a DataLoader "
                "(DataLoader(dataset, batch_size=32, shuffle=True, ...)), and the DataLoader to run.prepare"
            )
        if self.prepared:
            raise JobError(
                "run.prepare was called a second time; a run is prepared once, with all its models and optimizers. "
                "Train each stage or fold as a job of its own"
            )
        self.prepared = True
        self.thread = threading.get_ident()
        given = sort_parts(parts)
        if isinstance(given.data, DataLoader):
            if batch_size is not None or collate_fn is not None or num_workers:
                raise JobError("run.prepare was given a DataLoader and options for one; give them to the DataLoader")
            feed = read_loader(given.data, accumulate)
        else:
            if batch_size is None:
                raise JobError(
                    f"run.prepare was given a {type(given.data).__name__} and no batch_size; pass batch_size= with a "
                    "dataset, or pass a DataLoader over it"
                )
            feed = Feed(
                dataset=given.data,
                batch_size=batch_size,
                shuffle=shuffle,
                drop_last=drop_last,
                accumulate=accumulate,
                num_workers=num_workers,
                collate=collate_fn or default_collate,
                pool=(("prefetch_factor", prefetch_factor),) if num_workers else (),
            )
        self.models, self.optimizers = given.models, given.optimizers
        self.schedulers, self.scalers = given.schedulers, given.scalers
        options = PrepareOptions(find_unused_parameters, broadcast_buffers)
        models, loader = self.adopt_parts(given, self.scale_feed(feed), options)
        replaced = dict(zip(map(id, given.models), models, strict=True)) | {id(given.data): loader}
        return tuple(replaced.get(id(part), part) for part in parts)

    def fully_shard(self, module: torch.nn.Module, **options: Any) -> torch.nn.Module:
        """Shard a module's parameters, gradients and optimizer state over all processes. Call it before `prepare`.

        Like torch's `fully_shard`: first the parts of a model, then the whole, then build the optimizer.
        """
        if self.prepared:
            raise JobError("run.fully_shard was called after run.prepare; shard the model first, then build optimizers")
        return self.shard_module(module, options)

    def shard_module(self, module: torch.nn.Module, options: dict[str, Any]) -> torch.nn.Module:
        """The module as it is: under stock DDP nothing is sharded."""
        return module

    def clip_grad_norm_(
        self, parameters: torch.Tensor | Iterable[torch.Tensor], max_norm: float, norm_type: float = 2.0
    ) -> torch.Tensor:
        """As torch's, with the same bits for sharded models; returns the norm."""
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)

    def scale_feed(self, feed: Feed) -> Feed:
        """The feed unchanged; `springtide profile` overrides this to try other batch sizes."""
        return feed

    @abc.abstractmethod
    def adopt_parts(self, given: Parts, feed: Feed, options: "PrepareOptions") -> tuple[list[Any], Any]:
        """The models and the loader that the script goes on with."""

    def make_sampling(self, feed: Feed, samples: int) -> Sampling:
        """The job's data order, if the samples can fill a global batch."""
        return make_sampling(feed, samples, self.logical_workers, self.seed)

    def keep(self, **objects: Any) -> None:
        """Save objects with a `state_dict` (an EMA, a metric) in checkpoints, and give them to joining processes."""
        if self.entered:
            raise JobError("run.keep was called inside the loop; call it before run.epochs, so that a resume finds all")
        for name, one in objects.items():
            if not hasattr(one, "state_dict") or not hasattr(one, "load_state_dict"):
                raise JobError(
                    f"run.keep({name}=...) was given a {type(one).__name__} without state_dict and load_state_dict; "
                    "keep numbers and tensors in run.state instead"
                )
            self.kept[name] = one

    def sum(self, values: Sequence[float | torch.Tensor]) -> torch.Tensor:
        """The sum over all logical workers, given one value for each turn of this process.

        Write `losses = [train(x, y) for x, y in step]`, then `run.sum(losses)`. The result has the bits of
        `dist.all_reduce` on N ranks, and is the same on every process.
        """
        if not isinstance(values, list | tuple):
            raise JobError(
                f"run.sum and run.mean were given a {type(values).__name__}; give the list of what this process's "
                "logical workers had in their turns: losses = [train(x, y) for x, y in step], then run.mean(losses)"
            )
        tensors = [one.detach() if isinstance(one, torch.Tensor) else torch.tensor(float(one)) for one in values]
        return self.add_workers(tensors)

    def mean(self, values: Sequence[float | torch.Tensor]) -> torch.Tensor:
        """`run.sum` divided by the number of logical workers."""
        return self.sum(values) / self.logical_workers

    @abc.abstractmethod
    def add_workers(self, values: list[torch.Tensor]) -> torch.Tensor:
        """The sum over all logical workers of one value per local worker."""

    @abc.abstractmethod
    def shard(self, loader: DataLoader[Any]) -> Shard:
        """Divide the batches of a DataLoader between the processes, for evaluation.

        Batches are the same on any number of processes, and each is walked by one of them; `shard.gather` then returns
        the results of all, in the loader's order.
        """

    @abc.abstractmethod
    def no_sync(self) -> AbstractContextManager[None]:
        """Inside a turn: backward passes in this block add up locally, and are reduced with the next one outside it.

        As DDP's `no_sync`.
        """

    @abc.abstractmethod
    def log(self, **metrics: float | torch.Tensor) -> None:
        """Record metrics of this logical worker's turn; their mean over all workers is logged once per step.

        Log the same names in every turn: a worker that logs other names than worker 0 is left out, with a warning.
        Outside turns, the value of the first process is logged as it is; it should be the same on every process.
        """

    @abc.abstractmethod
    def finish(self) -> None:
        """End the run: its last step has been taken."""

    @abc.abstractmethod
    def forget(self) -> None:
        """Remove this run's hooks, so that another run may begin in this process."""

    @property
    @abc.abstractmethod
    def steps_per_epoch(self) -> int:
        """Global steps per epoch."""

    def epochs(self, count: int) -> Iterator[int]:
        """The epoch numbers up to `count`; a resumed run goes on at its own."""
        if count < 1:
            raise JobError(f"run.epochs({count}); a run needs at least 1 epoch")
        return self.begin_epochs(Goal(epochs=count, cap=self.settings.max_steps))

    def steps(self, count: int) -> Iterator[int]:
        """As many epochs as `count` global steps take; the last one may be cut short."""
        if count < 1:
            raise JobError(f"run.steps({count}); a run needs at least 1 step")
        return self.begin_epochs(Goal(steps=count, cap=self.settings.max_steps))

    def begin_epochs(self, goal: Goal) -> Iterator[int]:
        """The epochs of a goal, once per run."""
        if not self.prepared:
            raise JobError("run.epochs was called before run.prepare; prepare model, optimizer and loader first")
        if self.began:
            raise JobError(
                "run.epochs or run.steps was called a second time; a run has one goal. Give it all epochs, with what "
                "changes on the way under `if epoch == ...:`, or train the stages as jobs of their own"
            )
        self.began = True
        self.goal = goal
        return self.walk_epochs()

    def walk_epochs(self) -> Iterator[int]:
        """Epoch numbers until the goal is reached or the run is stopped."""
        self.announce()
        while self.stop_reason is None and not self.goal.is_reached(self.position):
            randomness.seed_all(randomness.mix(self.seed, self.position.epoch))
            before, began_s = self.position, time.monotonic()
            self.in_epoch, self.walked = True, False
            yield self.position.epoch
            self.settle()
            self.in_epoch = False
            self.check_progress(before)
            self.report_epoch(before.epoch, time.monotonic() - began_s)
            if self.has_ended_epoch():
                self.position = self.position.after_epoch()
        self.finish()

    @abc.abstractmethod
    def settle(self) -> None:
        """End a step that the loop was left in."""

    def check_entry(self) -> None:
        """Refuse to walk the loader where there is no epoch, or a second time in one."""
        if not self.in_epoch:
            raise JobError(
                "the loader of run.prepare was walked outside run.epochs; write `for epoch in run.epochs(n):` around "
                "`for step in loader:`. To look at the data without training, walk a DataLoader of your own"
            )
        if threading.get_ident() != self.thread:
            raise JobError(
                "the loader of run.prepare was iterated in a different thread from the one that called run.prepare "
                "(one that prefetches?); steps are taken one after the other. Use a DataLoader with num_workers to "
                "prefetch"
            )
        if self.walked:
            raise JobError(
                f"the loader of run.prepare was walked a second time in epoch {self.position.epoch}; an epoch has one "
                "walk. To look at the data without training, walk a DataLoader of your own or run.shard(...)"
            )
        self.walked = self.entered = True

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
        """Declare that this process waits for something known, such as an upload, so that it does not count as hung."""
        self.channel.send("busy", doing=doing or "busy")
        try:
            yield
        finally:
            self.channel.send("busy", doing="")

    def find_total_steps(self) -> int | None:
        """The number of global steps of the run, if a goal is set; more than can be planned are refused."""
        total = self.goal.total_steps(self.steps_per_epoch)
        if total is not None and total > MOST_STEPS:
            raise JobError(
                f"the run would take {total} steps; at most {MOST_STEPS:.0e} can be planned. Name the epochs or steps "
                'that you need at most; run.stop("why") ends earlier'
            )
        return total

    def announce(self) -> None:
        """Tell the supervisor how many steps there are."""
        self.channel.send(
            "planned",
            total_steps=self.find_total_steps(),
            steps_per_epoch=self.steps_per_epoch,
            logical_workers=self.logical_workers,
            step=self.position.step,
        )

    def stop(self, reason: str = "stopped") -> None:
        """End the run early and successfully, at the end of this global step.

        Call it after `for ... in step:`, and decide by values that are the same on every process. Inside a turn only
        worker 0's call counts; before the step's turns only the first process's (a time limit, for example).
        """
        self.stop_reason = reason

    @abc.abstractmethod
    def checkpoint(self) -> None:
        """Request a checkpoint at the end of this global step; of the next one, if called after this step's turns.

        It has no effect without a checkpoint folder. Inside a turn only worker 0's call counts. Training goes on while
        it is written.
        """

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluate without disturbing training: models in eval mode, no gradients, random state restored afterwards."""
        state = randomness.capture()
        modes = [model.training for model in self.models]
        for model in self.models:
            model.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            for model, was_training in zip(self.models, modes, strict=True):
                model.train(was_training)
            randomness.restore(state)


def init(logical_workers: int, seed: int = 0, determinism: str = "D1", track: str | Sequence[str] = ()) -> Run:
    """Start a run of N logical workers: the ranks of the DDP run it imitates, fixed for the job's life.

    Seeds Python, NumPy and torch with `seed`, so call it before building the model. What `run.log` records is also sent
    to the trackers named in `track`: "tensorboard", "mlflow", "wandb", or several. The job file and the launcher may
    set the level and more through the environment (see `settings`).
    """
    refuse_second()
    refuse_child()
    settings = read_settings()
    check_counts(logical_workers, 1)
    if settings.logical_workers is not None and settings.logical_workers != logical_workers:
        raise JobError(
            f"the job file says logical_workers: {settings.logical_workers}, the script says "
            f"springtide.init(logical_workers={logical_workers}); make them agree"
        )
    level = settings.level or determinism
    switches = levels.choose(level, settings.threads, torch.cuda.is_available())
    levels.apply(switches)
    randomness.seed_all(seed)
    settings = replace(settings, level=level, track=choose_trackers(track, settings.track))
    _current.append(make_run(logical_workers, seed, settings))
    _current[-1].switches = switches
    tell_world_size(logical_workers)
    for listener in _listeners:
        listener(_current[-1])
    return _current[-1]


def when_begun(listener: Callable[[Run], None]) -> None:
    """Call a function with the run of this process as soon as there is one."""
    _listeners.append(listener)
    for run in _current:
        listener(run)


def make_run(logical_workers: int, seed: int, settings: Settings) -> Run:
    """The run of the mode that is set."""
    if settings.mode == "reference":
        from springtide.training.ddp_run import ReferenceRun

        return ReferenceRun(logical_workers, seed, settings)
    from springtide.training.elastic_run import ElasticRun

    return ElasticRun(logical_workers, seed, settings, os.environ)


def refuse_second() -> None:
    """Refuse a second run in one process: processes, checkpoints and progress belong to the first."""
    if _current:
        raise JobError(
            "springtide.init was called a second time in this process; a job is one run. Train each fold or stage as "
            "a job of its own, with its number as an argument of the script"
        )


def refuse_child() -> None:
    """Refuse a run in a process that the script started: the launcher knows nothing of it."""
    if multiprocessing.parent_process() is not None:
        raise JobError(
            "springtide.init was called in a process that multiprocessing started (mp.spawn, Process, Pool); processes "
            "are started by the launcher, as many as there are devices. Call what that process runs instead, once"
        )


def forget_run() -> None:
    """Let another run begin in this process, stock DDP's too, for measurements that take one after another."""
    for run in _current:
        run.forget()
    _current.clear()
    allow_groups()


@dataclass(frozen=True, slots=True)
class PrepareOptions:
    """What DDP would be told."""

    find_unused_parameters: bool
    broadcast_buffers: bool
