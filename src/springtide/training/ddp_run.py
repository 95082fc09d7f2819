"""The reference: the same script under stock DistributedDataParallel, one gloo rank per logical worker.

Everything that decides bits is torch's own: DDP with defaults, DistributedSampler, DataLoader. Only what a script
would write by hand (seeding, set_epoch, no_sync) is here.
"""

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler

from springtide.errors import JobError
from springtide.training.determinism import cuda
from springtide.training.group.groups import connect_store, delay_exit
from springtide.training.group.rosters import parse_roster
from springtide.training.parts import Parts
from springtide.training.run import PrepareOptions, Run
from springtide.training.settings import Settings
from springtide.training.state.digests import DigestTrace, name_tensors
from springtide.training.workers import feeds, sampling
from springtide.training.workers.buffers import find_device
from springtide.training.workers.contexts import Contexts, LogicalWorker
from springtide.training.workers.feeds import Feed
from springtide.training.workers.loaders import FixedOptions, number_steps
from springtide.training.workers.sampling import Sampling, Seeded, choose_collate
from springtide.training.workers.shards import Seat, Shard
from springtide.training.workers.steps import Step

#: Runs that have ended, kept so that their groups are not destroyed while the group's threads still let go of tensors
#: (see `groups`).
_finished: list[Run] = []


class StockModel(DistributedDataParallel):
    """DDP that is asked, saved, loaded and copied as the model inside it, as in a script without it."""

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The model's own, without a prefix."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Into the model."""
        return self.module.load_state_dict(*args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """The model's own, without a prefix."""
        yield from self.module.named_parameters(*args, **kwargs)

    def __getitem__(self, key: Any) -> Any:  # what Sequential, ModuleList and ModuleDict have
        return cast(Any, self.module)[key]

    def __len__(self) -> int:
        return len(cast(Any, self.module))

    def __bool__(self) -> bool:
        try:
            return bool(self.module)
        except (
            TypeError
        ):  # of what torch.compile returned, which says that it has a length also where the model has none
            return True

    def __iter__(self) -> Iterator[Any]:
        return iter(cast(Any, self.module))

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # what isinstance and pickle ask, beside type()
        module = self.__dict__.get("_modules", {}).get("module")
        return type(self) if module is None else type(module)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.module.__reduce_ex__(protocol)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


class RankOrder(torch.utils.data.Sampler[Any]):
    """One rank's part of what a sampler of the user's draws: samples, or batches."""

    def __init__(self, feed: Feed, facts: Sampling, rank: int) -> None:
        self.feed, self.facts, self.rank = feed, facts, rank
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Draw for this epoch from now on."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        if self.feed.batch_sampler is not None:
            batches = feeds.draw_batches(self.feed, self.facts, self.epoch)
            return iter(batches[self.rank :: self.facts.logical_workers])
        order = feeds.draw_order(self.feed, self.facts, self.epoch)
        return iter(order[self.rank :: self.facts.logical_workers].tolist())


class ReferenceLoader(FixedOptions):
    """One rank's stock DataLoader as steps, which also counts them and turns synchronisation on and off."""

    def __init__(self, run: "ReferenceRun", loader: DataLoader[Any], feed: Feed, facts: Sampling) -> None:
        self.run = run
        self.loader = loader
        self.feed = feed
        self.facts = facts
        self.accumulate = facts.accumulate
        self.workers = [run.rank]
        self.batches: Iterator[Any] = iter(())
        self.taken: list[Any] = []
        self.freeze(loader)

    @property
    def dataset(self) -> Any:
        """The user's dataset."""
        return self.feed.dataset

    def __len__(self) -> int:
        return self.facts.steps_per_epoch

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "loader" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __iter__(self) -> Iterator[Step]:
        run = self.run
        run.check_entry()
        run.contexts.enter(run.rank)
        self.batches = iter(self.loader)
        run.contexts.exit()
        for index in range(len(self)):
            if run.stop_reason is not None or not run.goal.allows_step(run.position):
                break
            self.taken = []
            run.step = Step(self, index, run.position.step)
            yield run.step
            run.end_step()

    def enumerate(self, start: int = 0) -> Iterator[tuple[int, Step]]:
        """The steps with their places in the epoch."""
        return number_steps(self, start)

    def find_worker(self) -> LogicalWorker:
        """This rank."""
        return self.run.contexts.workers[self.run.rank]

    def begin_walk(self, step: Step) -> None:
        """Nothing to begin."""

    def begin_turn(self, worker: int) -> None:
        """Switch to the rank's random state."""
        self.run.contexts.enter(worker)

    def take_batch(self, step: Step, worker: int, micro: int) -> Any:
        """The rank's batch; all but the last are accumulated."""
        if micro == len(self.taken):
            self.taken.append(next(self.batches))
        self.run.synchronise(micro == self.accumulate - 1)
        return self.taken[micro]

    def end_turn(self, worker: int) -> None:
        """Leave the rank's random state."""
        self.run.contexts.exit()

    def end_walk(self) -> None:
        """DDP has reduced."""

    def abandon_walk(self) -> int:
        """The loop was left."""
        self.run.contexts.exit()
        return self.run.rank

    def skip_batches(self) -> None:
        """Pass over the batches of a step that was not walked."""
        for _ in range(self.accumulate):
            next(self.batches)


class ReferenceRun(Run):
    """One rank of the stock run."""

    def __init__(self, logical_workers: int, seed: int, settings: Settings) -> None:
        super().__init__(logical_workers, seed, settings)
        if settings.store is None or settings.roster is None:
            raise JobError("reference mode needs SPRINGTIDE_STORE and SPRINGTIDE_ROSTER with one worker per process")
        self.rank = parse_roster(settings.roster).rank_of(settings.process)
        store = dist.PrefixStore("reference", connect_store(settings.store, settings.collective_timeout_s))
        delay_exit()
        dist.init_process_group(
            "gloo",
            store=store,
            rank=self.rank,
            world_size=logical_workers,
            timeout=timedelta(seconds=settings.collective_timeout_s),
        )
        self.trace = DigestTrace(settings.trace_dir, settings.process) if settings.trace_dir else None
        self.step: Step | None = None

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def steps_per_epoch(self) -> int:
        return self.facts.steps_per_epoch

    def adopt_parts(self, given: Parts, feed: Feed, options: PrepareOptions) -> tuple[list[Any], Any]:
        if isinstance(feed.dataset, IterableDataset):
            raise JobError(
                "the stock reference has no order for an iterable dataset; compare with `springtide verify --against "
                "self`, or use a map-style dataset"
            )
        self.feed = feed
        self.data = sampling.seeded(feed.dataset, self.seed)
        self.facts = self.make_sampling(feed, len(self.data))
        # Only what was asked for is passed on, so that DDP's own defaults hold.
        buffers: Any = {} if options.broadcast_buffers else {"broadcast_buffers": False}
        self.wrapped = [
            StockModel(model, find_unused_parameters=options.find_unused_parameters, **buffers) for model in self.models
        ]
        self.order = self.make_order(feed)
        self.loader = ReferenceLoader(self, self.make_loader(feed), feed, self.facts)
        cuda.make_current(find_device(self.models[0]))
        self.contexts = Contexts()
        self.contexts.seed([self.rank], self.seed)
        return list(self.wrapped), self.loader

    def make_order(self, feed: Feed) -> Any:
        """The rank's sampler: torch's own where the user's is torch's."""
        if feed.batch_sampler is not None or not isinstance(feed.sampler, DistributedSampler | None):
            return RankOrder(feed, self.facts, self.rank)
        return DistributedSampler(
            self.data,
            self.logical_workers,
            self.rank,
            shuffle=feed.shuffle,
            seed=self.facts.seed,
            drop_last=not feed.pad,
        )

    def make_loader(self, feed: Feed) -> DataLoader[Any]:
        """The rank's stock DataLoader."""
        cut: dict[str, Any] = {"batch_size": feed.batch_size, "sampler": self.order, "drop_last": feed.drop_last}
        return DataLoader(
            self.data,
            **(cut if feed.batch_sampler is None else {"batch_sampler": self.order}),
            num_workers=feed.num_workers,
            collate_fn=choose_collate(feed.collate, feed.num_workers > 0),
            generator=None if feed.draws_seed else torch.Generator(),
            **dict(feed.pool),
        )

    def walk_epochs(self) -> Iterator[int]:
        for epoch in super().walk_epochs():
            if self.trace is not None:
                self.trace.worker = self.rank
            self.epoch = epoch
            yield epoch

    def check_entry(self) -> None:
        super().check_entry()
        feeds.check_data(self.feed, self.facts)
        given = self.feed.sampler
        self.order.set_epoch(given.epoch if isinstance(given, DistributedSampler) else self.epoch)
        if isinstance(self.data, Seeded):
            self.data.set_epoch(self.epoch)

    def synchronise(self, wanted: bool) -> None:
        """Let DDP reduce in the coming backward, or not."""
        for model in self.wrapped:
            model.require_backward_grad_sync = wanted

    def end_step(self) -> None:
        """Count a step and write its digests."""
        step, self.step = self.step, None
        assert step is not None
        step.check_whole()
        if not step.walks:
            self.loader.skip_batches()
        self.position = self.position.after_step()
        if self.trace is not None:
            self.trace.write(self.position.step, name_tensors(self.models, self.optimizers), "reference")

    def settle(self) -> None:
        if self.step is not None and (self.step.walks or self.step.left_at is not None):
            self.end_step()
        self.step = None

    def add_workers(self, values: list[torch.Tensor]) -> torch.Tensor:
        (value,) = values
        total = value.clone()
        dist.all_reduce(total)
        return total

    def shard(self, loader: DataLoader[Any]) -> Shard:
        return Shard(loader, lambda: Seat(0, 1), self.seed, lambda results: [results])

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """DDP's own `no_sync`, of every model."""
        with contextlib.ExitStack() as stack:
            for model in self.wrapped:
                stack.enter_context(model.no_sync())
            yield

    def no_sync(self) -> AbstractContextManager[None]:
        return self.hold()

    def log(self, **metrics: float | torch.Tensor) -> None:
        if self.is_main:  # no mean over ranks: a collective of ours has no place between DDP's
            values = {name: float(torch.as_tensor(value).detach()) for name, value in metrics.items()}
            self.channel.send("logged", step=self.position.step, metrics=values)

    def checkpoint(self) -> None:
        """A reference is run from its start to its end."""

    def report_epoch(self, epoch: int, seconds: float) -> None:
        """A reference is not timed."""

    def finish(self) -> None:
        dist.barrier()
        self.channel.send("finished" if self.is_main else "done", step=self.position.step, reason=self.stop_reason)
        _finished.append(self)

    def forget(self) -> None:
        """It watches nothing."""
