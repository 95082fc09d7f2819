"""Fabric's strategy on logical workers: `Fabric(strategy="springtide")`, with the explicit turns of the runtime.

`setup` and `setup_dataloaders` hand the parts to the run; the loader gives steps, each of which gives the batch of
every logical worker here in its turn. In a reference run the strategy is Fabric's own DDPStrategy.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from lightning.fabric.strategies import DDPStrategy
from lightning.fabric.strategies.parallel import ParallelStrategy
from lightning.fabric.utilities.rank_zero import rank_zero_only

from springtide.errors import JobError
from springtide.integrations.frameworks import find_run
from springtide.integrations.lightning.elastic_strategy import RankMixin
from springtide.integrations.lightning.lightning_checks import check_precision
from springtide.integrations.lightning.sampled_data import LogicalEnvironment, SampledData, TurnEnvironment
from springtide.integrations.lightning.whole_data import draw_as_rank, draw_as_ranks, make_whole
from springtide.integrations.stock_steps import StockSteps
from springtide.integrations.worker_feeds import LocalFeeds, begin_contexts, make_turns
from springtide.training.ddp_run import ReferenceRun


def make_fabric_strategy(**options: Any) -> Any:
    """The strategy of this process's run."""
    run = find_run('Fabric(strategy="springtide")')
    return StockFabric(run, **options) if isinstance(run, ReferenceRun) else ElasticFabric(run, **options)


class FabricSteps:
    """A training loader as steps."""

    def __init__(self, strategy: Any, loader: Any) -> None:
        self.strategy = strategy
        self.loader = loader
        self.sampler = loader.sampler
        self.dataset = loader.dataset
        self.batch_sampler = None

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        yield from self.strategy.walk_steps(self.loader)


class OneBatch:
    """A stock rank's step: its one batch."""

    def __init__(self, batch: Any, index: int, number: int) -> None:
        self.batch = batch
        #: Its places in the epoch and in the run, from 0.
        self.index, self.number = index, number

    def __iter__(self) -> Iterator[Any]:
        yield self.batch


class WorkerBatches:
    """An elastic step: the batch of each logical worker here, in its turn."""

    def __init__(self, run: Any, step: Any, feeds: LocalFeeds, device: torch.device) -> None:
        self.run = run
        self.step = step
        self.feeds = feeds
        self.device = device
        self.index, self.number = step.index, step.number

    def __iter__(self) -> Iterator[Any]:
        from lightning.fabric.utilities import move_data_to_device

        try:
            for _ in self.step:
                worker = rank_zero_only.rank = self.step.worker.rank
                yield move_data_to_device(self.feeds.feeds[worker].take(), self.device)
        finally:
            show_process(self.run)


def show_process(run: Any) -> None:
    """Tell Fabric which rank logs outside of turns; a rescale may change it."""
    rank_zero_only.rank = run.rank


class WholeLoader:
    """A loader for evaluation: every process walks all of it."""

    def __init__(self, run: Any, loader: Any) -> None:
        self.run = run
        self.loader = loader
        self.sampler, self.batch_sampler, self.dataset = loader.sampler, loader.batch_sampler, loader.dataset

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        if self.run.turns.worker is None:
            draw_as_ranks(self.run, self.loader)
        else:
            draw_as_rank(self.loader)
        yield from self.loader


class AllSynced:
    """What Fabric asks to hold gradients back."""

    def no_backward_sync(self, module: Any, enabled: bool) -> AbstractContextManager[None]:
        """Nothing where nothing is to be held back, else a refusal."""
        if enabled:
            raise JobError(
                "fabric.no_backward_sync in an elastic run: a logical worker's gradients would have to wait for the "
                "next step. Leave it out: gradients add up over steps until optimizer.zero_grad(), which has the bits "
                "of ranks that are synced in every backward"
            )
        return nullcontext()


class StockFabric(RankMixin, DDPStrategy):
    """Fabric's DDP with the digests of a reference run."""

    def __init__(self, run: ReferenceRun, **options: Any) -> None:
        super().__init__(cluster_environment=LogicalEnvironment(run), process_group_backend="gloo", **options)
        self.run = run
        self.stock = StockSteps(run)
        self.parts: tuple[list[Any], list[Any]] = ([], [])
        self.training: Any = None

    def setup_module(self, module: Any) -> Any:
        self.parts[0].append(module)
        return super().setup_module(module)

    def setup_optimizer(self, optimizer: Any) -> Any:
        self.parts[1].append(optimizer)
        return super().setup_optimizer(optimizer)

    def process_dataloader(self, dataloader: Any) -> Any:
        if self.training is not None:
            return dataloader
        self.training = FabricSteps(self, dataloader)
        return self.training

    def walk_steps(self, loader: Any) -> Iterator[OneBatch]:
        """A rank's batches, one a step."""
        for index, batch in enumerate(loader):
            if self.stock.is_last(self.stock.taken):
                return
            yield OneBatch(batch, index, self.stock.taken)
            self.stock.taken += 1
            self.stock.note(self.stock.taken, *self.parts)

    def walk_epochs(self, count: int) -> Iterator[int]:
        """The epochs of a stock run."""
        for epoch in range(count):
            yield epoch
            if self.stock.is_last(self.stock.taken):
                break
        self.stock.finish()


class ElasticFabric(RankMixin, ParallelStrategy):
    """Logical workers under Fabric."""

    def __init__(self, run: Any, find_unused_parameters: bool = False, broadcast_buffers: bool = True) -> None:
        super().__init__(cluster_environment=TurnEnvironment(run))
        self._backward_sync_control: Any = AllSynced()
        self.run = run
        self.options = {"find_unused_parameters": find_unused_parameters, "broadcast_buffers": broadcast_buffers}
        self.parts: list[Any] = []
        self.feeds: LocalFeeds | None = None
        self.steps: Any = None

    def setup_module(self, module: Any) -> Any:
        self.add_part(module)
        return module

    def setup_optimizer(self, optimizer: Any) -> Any:
        self.add_part(optimizer)
        return optimizer

    def add_part(self, part: Any) -> None:
        """Note what the run is to know; all of it, before there are data."""
        if self.feeds is not None:
            raise JobError(
                f"fabric.setup was given a {type(part).__name__} after fabric.setup_dataloaders, when the run knew its "
                "models and optimizers; set up all of them first"
            )
        self.parts.append(part)

    def module_to_device(self, module: Any) -> None:
        module.to(self.root_device)

    def process_dataloader(self, dataloader: Any) -> Any:
        if self.feeds is not None:
            return WholeLoader(self.run, make_whole(dataloader, self.run.seed, is_cut=False))
        if not any(isinstance(part, torch.optim.Optimizer) for part in self.parts):
            raise JobError("fabric.setup_dataloaders came before fabric.setup; set up model and optimizer first")
        check_precision(self.precision)
        data = SampledData(dataloader, self.run.seed)
        turns = make_turns(self.run.logical_workers * len(data))
        *_, self.steps = self.run.prepare(*self.parts, turns, **self.options)
        begin_contexts(self.run)
        self.feeds = LocalFeeds(self.run, data)
        return FabricSteps(self, dataloader)

    def walk_steps(self, loader: Any) -> Iterator[WorkerBatches]:
        """The steps of the epoch that are left."""
        assert self.feeds is not None
        for step in self.steps:
            show_process(self.run)
            self.feeds.follow(self.run.position.epoch, self.run.position.step_in_epoch)
            yield WorkerBatches(self.run, step, self.feeds, self.root_device)
        show_process(self.run)

    def walk_epochs(self, count: int) -> Iterator[int]:
        """The epochs left of `count`."""
        return self.run.epochs(count)  # type: ignore[no-any-return]

    def barrier(self, name: str | None = None) -> None:
        if self.run.prepared and self.run.turns.worker is None:  # processes differ in how many turns they have
            self.run.exchange([])

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        if not self.run.prepared:
            return obj
        if self.run.turns.worker is not None:
            raise JobError(
                "fabric.broadcast in a logical worker's turn: processes differ in how many turns they have, so no "
                "place has a value of each; broadcast before the loop over the step, or after it"
            )
        return self.run.exchange([obj])[src][0]

    def all_reduce(self, tensor: Any, *_: Any, **__: Any) -> Any:
        raise JobError(
            "fabric.all_reduce in an elastic run: keep what each turn has, and call run.mean(values) after it"
        )

    def all_gather(self, tensor: Any, *_: Any, **__: Any) -> Any:
        raise JobError(
            "fabric.all_gather in an elastic run: keep what each turn has, and call run.mean(values) after it"
        )
