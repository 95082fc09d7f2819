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
from lightning.fabric.utilities import move_data_to_device
from lightning.fabric.utilities.rank_zero import rank_zero_only

from springtide.errors import JobError
from springtide.integrations.frameworks import find_run
from springtide.integrations.lightning.lightning_checks import check_precision
from springtide.integrations.lightning.ranks import LogicalEnvironment, RankMixin, TurnEnvironment, TurnMixin
from springtide.integrations.lightning.sampled_data import SampledData
from springtide.integrations.lightning.whole_data import draw_as_rank, draw_as_ranks, make_whole
from springtide.integrations.stock_steps import StockSteps
from springtide.integrations.updates import ElasticUpdates, StockUpdates, Update, UpdateLoader, hold_back
from springtide.integrations.worker_feeds import LocalFeeds, begin_contexts, make_turns
from springtide.training.ddp_run import ReferenceRun


def make_fabric_strategy(**options: Any) -> Any:
    """The strategy of this process's run; with `accumulate=4` an update has four batches of each logical worker."""
    run = find_run('Fabric(strategy="springtide")')
    return StockFabric(run, **options) if isinstance(run, ReferenceRun) else ElasticFabric(run, **options)


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


class HeldBack:
    """What Fabric asks to hold gradients back."""

    def __init__(self, strategy: "ElasticFabric") -> None:
        self.strategy = strategy

    def no_backward_sync(self, module: Any, enabled: bool) -> AbstractContextManager[None]:
        """Hold a model's gradients back, but not beyond the update's last batch."""
        if not enabled:
            return nullcontext()
        if not self.strategy.has_more:
            raise JobError(
                f"fabric.no_backward_sync at the last batch of an update, in an elastic run, where updates have "
                f"{self.strategy.accumulate} of a logical worker: its gradients would have to wait for the next "
                'update. Give Fabric(strategy=make_fabric_strategy(accumulate=N)) in place of "springtide", and '
                "enabled=step.has_more in `for batch in step:`; or leave it out: gradients add up until zero_grad()"
            )
        return hold_back(self.strategy.run, (module,))  # type: ignore[no-any-return]


class StockFabric(RankMixin, DDPStrategy):
    """Fabric's DDP with the digests of a reference run."""

    def __init__(self, run: ReferenceRun, accumulate: int = 1, **options: Any) -> None:
        super().__init__(cluster_environment=LogicalEnvironment(run), process_group_backend="gloo", **options)
        self.run = run
        self.accumulate = accumulate
        self.models: list[Any] = []
        self.optimizers: list[Any] = []
        self.updates = StockUpdates(StockSteps(run), self.models, self.optimizers)
        self.training: UpdateLoader | None = None

    def setup_module(self, module: Any) -> Any:
        self.models.append(module)
        return super().setup_module(module)

    def setup_optimizer(self, optimizer: Any) -> Any:
        self.optimizers.append(optimizer)
        return super().setup_optimizer(optimizer)

    def process_dataloader(self, dataloader: Any) -> Any:
        if self.training is not None:
            return dataloader
        self.training = UpdateLoader(dataloader, self.accumulate, self.updates.walk)
        return self.training

    def walk_epochs(self, count: int) -> Iterator[int]:
        """The epochs of a stock run."""
        return self.updates.walk_epochs(count)


class ElasticFabric(TurnMixin, ParallelStrategy):
    """Logical workers under Fabric."""

    epochs_call = "fabric.strategy.walk_epochs"

    def __init__(
        self, run: Any, accumulate: int = 1, find_unused_parameters: bool = False, broadcast_buffers: bool = True
    ) -> None:
        super().__init__(cluster_environment=TurnEnvironment(run))
        self._backward_sync_control: Any = HeldBack(self)
        self.run = run
        #: Batches of a logical worker in an update, and whether more of the present one come.
        self.accumulate, self.has_more = accumulate, False
        self.options = {"find_unused_parameters": find_unused_parameters, "broadcast_buffers": broadcast_buffers}
        self.parts: list[Any] = []
        self.updates: ElasticUpdates | None = None

    def setup_module(self, module: Any) -> Any:
        self.add_part(module)
        return module

    def setup_optimizer(self, optimizer: Any) -> Any:
        self.add_part(optimizer)
        return optimizer

    def add_part(self, part: Any) -> None:
        """Note what the run is to know; all of it, before there are data."""
        if self.updates is not None:
            raise JobError(
                f"fabric.setup was given a {type(part).__name__} after fabric.setup_dataloaders, when the run knew its "
                "models and optimizers; set up all of them first"
            )
        self.parts.append(part)

    def module_to_device(self, module: Any) -> None:
        module.to(self.root_device)

    def process_dataloader(self, dataloader: Any) -> Any:
        if self.updates is not None:
            return WholeLoader(self.run, make_whole(dataloader, self.run.seed, is_cut=False))
        if not any(isinstance(part, torch.optim.Optimizer) for part in self.parts):
            raise JobError("fabric.setup_dataloaders came before fabric.setup; set up model and optimizer first")
        check_precision(self.precision)
        data = SampledData(dataloader, self.run.seed)
        loader = UpdateLoader(dataloader, self.accumulate, self.walk_updates)
        turns = make_turns(self.run.logical_workers * len(loader))
        *_, steps = self.run.prepare(*self.parts, turns, **self.options)
        begin_contexts(self.run)
        self.updates = ElasticUpdates(self, steps, LocalFeeds(self.run, data))
        return loader

    def walk_updates(self, loader: UpdateLoader) -> Iterator[Update]:
        """The updates of the epoch that are left."""
        assert self.updates is not None
        return self.updates.walk(loader)

    def show_worker(self, rank: int) -> None:
        """Tell Fabric which rank logs."""
        rank_zero_only.rank = rank

    def place_batch(self, batch: Any) -> Any:
        """A batch on this process's device."""
        return move_data_to_device(batch, self.root_device)

    def tell_more(self, has_more: bool) -> None:
        """Note whether a batch is followed by others of its update."""
        self.has_more = has_more

    def walk_epochs(self, count: int) -> Iterator[int]:
        """The epochs left of `count`."""
        return self.run.epochs(count)  # type: ignore[no-any-return]

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
