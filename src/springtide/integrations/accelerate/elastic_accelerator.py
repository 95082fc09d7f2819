"""An Accelerator whose ranks are logical workers.

It has the surface of `accelerate.Accelerator`. The loop has the explicit turns of the runtime: `for step in loader`
runs once per update, `for batch in step` gives each logical worker's batches of it, all that are accumulated; what
follows that loop (clipping, the optimizer, schedules) happens once. In a reference run all of it is stock.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

from springtide.errors import JobError
from springtide.integrations.accelerate_data import ShardedData, show_rank
from springtide.integrations.accelerate_gathers import watch_functions
from springtide.integrations.eval_rounds import EvalRounds, Padding
from springtide.integrations.frameworks import find_run
from springtide.integrations.stock_steps import StockSteps
from springtide.integrations.worker_feeds import LocalFeeds, make_turns
from springtide.training.ddp_run import ReferenceRun
from springtide.training.workers import randomness
from springtide.training.workers.loaders import number_steps
from springtide.training.workers.steps import Step

#: Plugins that shard or reduce by themselves.
REFUSED = ("deepspeed_plugin", "deepspeed_plugins", "fsdp_plugin", "megatron_lm_plugin", "parallelism_config")
STATES = "random_states_*.pkl"


class AccumulatedStep:
    """One update: `for batch in step` gives the accumulated batches of each logical worker here in its turn."""

    def __init__(self, walk: Callable[[], Iterator[Any]], index: int, number: int) -> None:
        self.walk = walk
        #: Its places in the epoch and in the run, from 0.
        self.index, self.number = index, number

    def __iter__(self) -> Iterator[Any]:
        return self.walk()


class UpdateLoader:
    """A training loader as updates; what else a DataLoader has can be asked of it."""

    def __init__(self, accelerator: "ElasticAccelerator", shard: Any) -> None:
        self.accelerator = accelerator
        self.shard = shard

    def __len__(self) -> int:
        return -(-len(self.shard) // int(self.accelerator.gradient_accumulation_steps))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "shard" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.shard, name)

    def count(self, index: int) -> int:
        """How many batches the update of this place in the epoch accumulates."""
        most = int(self.accelerator.gradient_accumulation_steps)
        return min(most, len(self.shard) - index * most)

    def __iter__(self) -> Iterator[AccumulatedStep]:
        return self.accelerator.walk_updates(self)

    def enumerate(self, start: int = 0) -> Iterator[tuple[int, AccumulatedStep]]:
        """The updates with their places in the epoch, which are right in a process that joins or resumes within it."""
        return number_steps(self, start)


class ElasticAccelerator(Accelerator):
    """An `accelerate.Accelerator` on any number of processes."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self.run: Any = find_run(type(self).__name__)
        check_options(named)
        super().__init__(*given, **named)
        self.stock = StockSteps(self.run) if isinstance(self.run, ReferenceRun) else None
        self.updates: UpdateLoader | None = None
        self.evaluating: EvalRounds | None = None
        self.has_more = False
        if any(getattr(self.state, name, None) is not None for name in ("deepspeed_plugin", "fsdp_plugin")):
            raise JobError(
                "accelerate's configuration switches DeepSpeed or FSDP on; an ElasticAccelerator has neither"
            )
        if self.project_configuration.automatic_checkpoint_naming:
            raise JobError("automatic_checkpoint_naming in an ElasticAccelerator: give save_state a folder instead")
        self.show_place()
        if self.is_elastic:
            watch_functions(self.run)

    @property
    def is_elastic(self) -> bool:
        """Whether logical workers take turns here, or this is one of N stock ranks."""
        return self.stock is None

    def show_place(self) -> None:
        """Tell `accelerate` that this is rank p of N; a rescale may change p."""
        if self.is_elastic:
            show_rank(self.run)

    # Preparation.

    def prepare(self, *parts: Any, **options: Any) -> Any:
        prepared = super().prepare(*parts, **options)
        everything = list(prepared) if isinstance(prepared, tuple) else [prepared]
        loaders = [place for place, part in enumerate(parts) if isinstance(part, DataLoader)]
        if self.updates is None and any(isinstance(part, torch.optim.Optimizer) for part in parts):
            if not loaders:
                raise JobError("accelerator.prepare was given an optimizer without a DataLoader; give them together")
            first = loaders.pop(0)
            self.updates = everything[first] = UpdateLoader(self, everything[first])
            self.prepare_run(parts)
        for place in loaders:
            everything[place] = EvalRounds(self.run, everything[place], self) if self.is_elastic else everything[place]
        return tuple(everything) if isinstance(prepared, tuple) else everything[0]

    def prepare_run(self, parts: tuple[Any, ...]) -> None:
        """Hand the parts to the run; in a stock run DDP has them."""
        self.trained = [part for part in parts if isinstance(part, torch.nn.Module)]
        self.steppers = [part for part in parts if isinstance(part, torch.optim.Optimizer)]
        if not self.is_elastic:
            return
        assert self.updates is not None
        run = self.run
        data = ShardedData(self.updates.shard, run.logical_workers, run.seed)
        turns = make_turns(run.logical_workers * len(self.updates))
        schedulers = [part for part in parts if isinstance(part, torch.optim.lr_scheduler.LRScheduler)]
        handler = self.ddp_handler
        options = {} if handler is None else handler.to_kwargs()
        *_, self.steps = run.prepare(*self.trained, *self.steppers, *schedulers, turns, **options)
        if run.saved is None:
            for worker in run.local:
                run.turns.contexts.states[worker] = randomness.capture()
        self.feeds = LocalFeeds(run, data)

    # The loop.

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs left of `count`, from where a resumed run stands."""
        if self.stock is None:
            yield from self.run.epochs(count)
            return
        for epoch in range(count):
            yield epoch
            self.end_stock_step()
            if self.stock.is_last(self.stock.taken):
                break
        self.stock.finish()

    def walk_updates(self, loader: UpdateLoader) -> Iterator[AccumulatedStep]:
        """The updates of the epoch that are left."""
        return self.walk_elastic(loader) if self.is_elastic else self.walk_stock(loader)

    def walk_elastic(self, loader: UpdateLoader) -> Iterator[AccumulatedStep]:
        """Updates in which every logical worker of this process takes its turn."""
        for step in self.steps:
            self.show_place()
            position = self.run.position
            self.feeds.follow(position.epoch, position.step_in_epoch * self.gradient_accumulation_steps)
            turns = partial(self.walk_turns, step, loader.count(step.index))
            yield AccumulatedStep(turns, step.index, step.number)

    def walk_turns(self, step: Step, count: int) -> Iterator[Any]:
        """The batches of each logical worker here, in its turn."""
        for _ in step:
            feed = self.feeds.feeds[step.worker.rank]
            for number in range(count):
                self.has_more = number < count - 1
                self.gradient_state._set_sync_gradients(not self.has_more)
                yield feed.take()

    def walk_stock(self, loader: UpdateLoader) -> Iterator[AccumulatedStep]:
        """A rank's updates."""
        assert self.stock is not None
        batches = iter(loader.shard)
        for index in range(len(loader)):
            if self.stock.is_last(self.stock.taken):
                return
            yield AccumulatedStep(partial(islice, batches, loader.count(index)), index, self.stock.taken)
            self.stock.taken += 1
            self.end_stock_step()

    @contextlib.contextmanager
    def accumulate(self, *models: torch.nn.Module) -> Iterator[None]:
        if not self.is_elastic:
            with super().accumulate(*models):
                yield
            return
        with self.run.no_sync() if self.has_more else contextlib.nullcontext():
            yield

    # Values of all ranks.

    def gather_for_metrics(self, input_data: Any, use_gather_object: bool = False) -> Any:
        if not self.is_elastic:
            return super().gather_for_metrics(input_data, use_gather_object)
        if self.evaluating is None:
            refuse_gather("gather_for_metrics")
        return self.evaluating.gather(input_data)

    def gather(self, tensor: Any) -> Any:
        return super().gather(tensor) if not self.is_elastic else refuse_gather("gather")

    def reduce(self, tensor: Any, reduction: str = "sum", scale: float = 1.0) -> Any:
        return super().reduce(tensor, reduction, scale) if not self.is_elastic else refuse_gather("reduce")

    def pad_across_processes(self, tensor: Any, dim: int = 0, pad_index: int = 0, pad_first: bool = False) -> Any:
        if not self.is_elastic:
            return super().pad_across_processes(tensor, dim, pad_index, pad_first)
        if self.evaluating is None:
            refuse_gather("pad_across_processes")
        return self.evaluating.pad_later(tensor, Padding(dim, pad_index, pad_first))

    @contextlib.contextmanager
    def split_between_processes(self, inputs: Any, apply_padding: bool = False) -> Iterator[Any]:
        if self.is_elastic:
            raise JobError(
                "accelerator.split_between_processes in an elastic run: there may be fewer processes than logical "
                "workers, and the parts of those that are not there would be lost. Walk all of it on every process, or "
                "prepare a DataLoader of it and walk that, with gather_for_metrics"
            )
        with super().split_between_processes(inputs, apply_padding) as part:
            yield part

    # Checkpoints in accelerate's form.

    def save_state(self, output_dir: str | None = None, **options: Any) -> Any:
        if not self.is_elastic:
            return super().save_state(output_dir, **options)
        contexts, saved = self.run.turns.contexts, None
        for worker in self.run.local:  # what rank 0 writes is written by worker 0's process, random states by each
            contexts.enter(worker)
            show_rank(self.run, worker)
            saved = super().save_state(output_dir, **options)
        contexts.exit()
        self.show_place()
        return saved

    def load_state(self, input_dir: str | None = None, **options: Any) -> None:
        if not self.is_elastic:
            super().load_state(input_dir, **options)
            return
        found = len(list(Path(input_dir or "").glob(STATES)))
        if found != self.run.logical_workers:
            raise JobError(
                f"{input_dir} was saved by {found} ranks, the run has {self.run.logical_workers} logical workers; "
                f"load it with springtide.init(logical_workers={found or 'N'})"
            )
        if self.run.saved is not None:  # the run's own checkpoint is newer
            return
        contexts = self.run.turns.contexts
        for worker in self.run.local:
            contexts.enter(worker)
            show_rank(self.run, worker)
            super().load_state(input_dir, **options)
        contexts.exit()
        self.show_place()

    def skip_first_batches(self, dataloader: Any, num_batches: int = 0) -> Any:
        if not self.is_elastic:
            return super().skip_first_batches(dataloader, num_batches)
        raise JobError(
            "accelerator.skip_first_batches in an elastic run: where an epoch goes on is the run's to know. Submit the "
            "script with a checkpoint folder, and loops go on where they were"
        )

    def end_stock_step(self) -> None:
        """In a reference run: write the digests of the step that has ended."""
        assert self.stock is not None
        self.stock.note(self.stock.taken, self.trained, self.steppers)


def check_options(named: Mapping[str, Any]) -> None:
    """Refuse options of an Accelerator that change what a logical worker does."""
    for name in REFUSED:
        if named.get(name) is not None:
            raise JobError(f"ElasticAccelerator({name}=...): it shards or reduces by itself; leave it out")
    if named.get("mixed_precision") == "fp16":
        raise JobError("ElasticAccelerator(mixed_precision='fp16'): its loss scaling was not compared; use bf16")


def refuse_gather(name: str) -> NoReturn:
    """Refuse what needs a value of every rank at once."""
    raise JobError(
        f"accelerator.{name} in an elastic run: logical workers take turns, so no place has a value of each. Keep what "
        "each turn has in a list and call run.mean(values) or run.sum(values) after `for batch in step:`; over a "
        "prepared evaluation loader, gather_for_metrics works"
    )
