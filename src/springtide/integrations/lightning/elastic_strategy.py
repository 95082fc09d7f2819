"""Lightning's strategy on logical workers: `Trainer(strategy="springtide")`, automatic and manual optimization.

Lightning's loops run once per batch on every process, over placeholders. Where an update begins
(`on_train_batch_start`) the step before ends and the next begins. Where its last batch is trained on, every logical
worker of the process takes its turn with all of the update's batches: in automatic optimization Lightning's closure is
called for each, in manual optimization `training_step` itself. In a reference run it is Lightning's own DDPStrategy.
"""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn

import torch
from lightning.fabric.utilities.seed import reset_seed
from lightning.pytorch import Callback
from lightning.pytorch.strategies import DDPStrategy, ParallelStrategy
from lightning.pytorch.strategies.strategy import _ForwardRedirection
from lightning.pytorch.trainer.states import RunningStage, TrainerFn
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from springtide.errors import JobError
from springtide.integrations.callback_memory import CallbackMemory
from springtide.integrations.frameworks import find_run
from springtide.integrations.lightning.gradient_clearing import GradientClearing
from springtide.integrations.lightning.lightning_checks import (
    check_callbacks,
    check_module,
    check_monitors,
    check_precision,
    check_resumed,
)
from springtide.integrations.lightning.loop_memory import LoopMemory
from springtide.integrations.lightning.ranks import LogicalEnvironment, RankMixin, TurnEnvironment, TurnMixin
from springtide.integrations.lightning.sampled_data import SampledData
from springtide.integrations.lightning.toggles import WorkerToggles
from springtide.integrations.lightning.turn_counts import LoopProgress, Schedules, TurnCounts
from springtide.integrations.lightning.turn_threads import TurnThread
from springtide.integrations.lightning.whole_data import draw_as_rank, draw_as_ranks, make_whole
from springtide.integrations.stock_steps import StockSteps
from springtide.integrations.worker_feeds import LocalFeeds, begin_contexts, make_turns
from springtide.training.ddp_run import ReferenceRun
from springtide.training.positions import Position


def make_strategy(**options: Any) -> Any:
    """The strategy of this process's run."""
    run = find_run('Trainer(strategy="springtide")')
    return StockStrategy(run, **options) if isinstance(run, ReferenceRun) else ElasticStrategy(run, **options)


class BatchPlaceholder:
    """One batch as Lightning's loop sees it: it stands for those of all logical workers here."""

    def __getitem__(self, place: Any) -> NoReturn:
        refuse_batch(f"batch[{place!r}]")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        refuse_batch(f"batch.{name}")


def refuse_batch(words: str) -> NoReturn:
    """Refuse to look into a batch where there is none."""
    raise JobError(
        f"{words} in a hook of a callback or module, in an elastic run: there is no one batch there, each logical "
        "worker has its own in its turn. Read it in training_step"
    )


class PlaceholderLoader:
    """As many placeholders as a rank has batches left; they can be fetched ahead without harm."""

    def __init__(self, strategy: "ElasticStrategy", data: SampledData) -> None:
        self.strategy = strategy
        self.data = data
        self.sampler = data.sampler
        self.dataset = data.loader.dataset

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[BatchPlaceholder]:
        return (BatchPlaceholder() for _ in range(len(self) - self.strategy.done_batches))


class StockStrategy(RankMixin, DDPStrategy):
    """Lightning's DDP with the digests of a reference run."""

    def __init__(self, run: ReferenceRun, **options: Any) -> None:
        super().__init__(cluster_environment=LogicalEnvironment(run), process_group_backend="gloo", **options)
        self.run = run
        self.stock = StockSteps(run)
        self.is_open = False

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        trainer = self.lightning_module.trainer
        if batch_idx % trainer.accumulate_grad_batches == 0:
            self.end_update()
            self.is_open = True
        super().on_train_batch_start(batch, batch_idx)

    def end_update(self) -> None:
        """Write the digests of the update that has ended."""
        if self.is_open:
            self.stock.taken += 1
            self.stock.note(self.stock.taken, [self.lightning_module], self.optimizers)
        self.is_open = False

    def optimizer_step(self, *given: Any, **named: Any) -> Any:
        if self.stock.is_last(self.stock.taken + 1):
            self.lightning_module.trainer.should_stop = True
        return super().optimizer_step(*given, **named)

    def on_train_end(self) -> None:
        self.end_update()
        self.stock.finish()
        super().on_train_end()


class ElasticStrategy(TurnMixin, ParallelStrategy):
    """Logical workers under Lightning's Trainer."""

    def __init__(self, run: Any, find_unused_parameters: bool = False, broadcast_buffers: bool = True) -> None:
        super().__init__(cluster_environment=TurnEnvironment(run))
        self.run = run
        self.options = {"find_unused_parameters": find_unused_parameters, "broadcast_buffers": broadcast_buffers}
        self.redirect = _ForwardRedirection()
        self.feeds: LocalFeeds | None = None
        #: Training data that were asked for before there were optimizers.
        self.early_data: SampledData | None = None
        #: The run's epochs and the steps of one, what clears gradients and looks at callbacks: once it is prepared.
        self.epochs: Any = None
        self.steps: Any = None
        self.clearing: Any = None
        self.callback_memory: Any = None
        self.done_batches = 0
        self.epoch = -1
        self.walk: Any = None
        #: The update's step, and how many batches it accumulates.
        self.step: Any = None
        self.update_size = 0
        #: Loaders that were walked in a validation between the update's batches, by the place of the one before.
        self.validated: dict[int, list[Any]] = {}
        #: In manual optimization, the batch of each worker whose call is under way.
        self.batches: dict[int, Any] = {}
        self.current: Any = None
        #: The place in the update of the batch whose turn it is, and whether the turn is this process's first.
        self.number = 0
        self.is_first_turn = False
        self.thread: TurnThread | None = None
        self.toggles: Any = None

    # Lightning's questions.

    def setup_environment(self) -> None:
        reset_seed()  # as DDPStrategy does, where a script has called seed_everything
        super().setup_environment()
        rank_zero_only.rank = self.run.rank

    def set_world_ranks(self) -> None:
        """Tell Lightning which rank logs and saves; a rescale may change it, and every turn does."""
        rank_zero_only.rank = self.global_rank

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        if not self.run.prepared or self.run.group is None or self.run.turns.worker is not None:
            return obj
        return self.run.exchange([obj])[src][0]

    def reduce(self, tensor: Any, *_: Any, **__: Any) -> Any:
        """A value of one turn, or of a whole evaluation: it is not mixed with others'."""
        return tensor

    def all_gather(self, tensor: torch.Tensor, group: Any = None, sync_grads: bool = False) -> torch.Tensor:
        raise JobError(
            "all_gather in an elastic run: logical workers take turns, so no place has a value of each; log with "
            "self.log(...), or reduce with run.mean(...) after the step"
        )

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        """What all processes decide: a metric of a process's own turns may differ from another's."""
        check_monitors(self.lightning_module.trainer)
        if not self.run.prepared or self.run.group is None:
            return decision
        everyone = [bool(one) for theirs in self.run.exchange([bool(decision)]) for one in theirs]
        return everyone.count(True) == len(everyone) if all else True in everyone

    @contextlib.contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """A batch that is accumulated is trained on with the update's last one."""
        yield

    def model_to_device(self) -> None:
        self.model.to(self.root_device)

    # From fit() to the first step.

    def process_dataloader(self, dataloader: Any) -> Any:
        trainer = self.lightning_module.trainer
        if trainer.state.fn != TrainerFn.FITTING or self.is_evaluation(trainer):
            is_cut = trainer._accelerator_connector.use_distributed_sampler
            return make_whole(dataloader, self.run.seed, is_cut)
        if self.run.is_over:
            raise JobError("a second trainer.fit in an elastic run, which has ended with the first; train in one fit")
        if self.feeds is not None:
            raise JobError("reload_dataloaders_every_n_epochs, or several training loaders, in an elastic run; use one")
        data = SampledData(dataloader, self.run.seed)
        if self.optimizers:
            self.prepare_run(trainer, data)
        else:  # asked for by what makes them, as by `trainer.estimated_stepping_batches`
            self.early_data = data
        return PlaceholderLoader(self, data)

    def setup(self, trainer: Any) -> None:
        super().setup(trainer)
        if self.early_data is not None:
            self.prepare_run(trainer, self.early_data)
            self.early_data = None
            iter(trainer.fit_loop._data_fetcher)  # as many placeholders as are left, which is known now

    @staticmethod
    def is_evaluation(trainer: Any) -> bool:
        """Whether the loader that is processed is one of validation."""
        return trainer.state.stage in (RunningStage.SANITY_CHECKING, RunningStage.VALIDATING) or (
            trainer.fit_loop._combined_loader is not None
        )

    def prepare_run(self, trainer: Any, data: SampledData) -> None:
        """Hand the parts to the run, and take over where it stands."""
        run, accumulate = self.run, trainer.accumulate_grad_batches
        limit = trainer.limit_train_batches  # 1.0 is all of them, 1 is one
        if not isinstance(limit, float) or limit != 1.0 or trainer.overfit_batches:
            raise JobError("limit_train_batches and overfit_batches in an elastic run: cut the dataset instead")
        check_callbacks(trainer.callbacks)
        check_module(self.lightning_module)
        check_resumed(trainer.ckpt_path)
        check_precision(self.precision_plugin)
        if self._layer_sync is not None:
            raise JobError(
                "Trainer(sync_batchnorm=True) in an elastic run: its statistics are those of all ranks' batches at "
                "once, and logical workers take turns; leave it out, or use GroupNorm or LayerNorm"
            )
        updates = -(-len(data) // accumulate)
        steps = count_steps(trainer, updates)
        schedulers = [config.scheduler for config in self.lr_scheduler_configs]
        turns = make_turns(run.logical_workers * updates)
        *_, self.steps = run.prepare(self.lightning_module, *self.optimizers, *schedulers, turns, **self.options)
        begin_contexts(run)
        self.feeds = LocalFeeds(run, data)
        self.clearing = GradientClearing(self, trainer)
        memory = LoopMemory(trainer, run)
        if run.saved is None:
            memory.share_folders()
        run.keep(lightning=memory)
        unkept = [one for one in trainer.callbacks if type(one).state_dict is Callback.state_dict]
        self.callback_memory = CallbackMemory(run, unkept, [self.lightning_module])
        self.done_batches = run.position.step_in_epoch * accumulate
        self.epochs = run.steps(steps)

    # An update.

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        trainer = self.lightning_module.trainer
        accumulate = trainer.accumulate_grad_batches
        if batch_idx % accumulate:
            return
        # In an epoch that it has restarted in, Lightning's loop would leave out ReduceLROnPlateau at the end.
        trainer.fit_loop._restarting = False
        if trainer.current_epoch != self.epoch:
            self.epoch = trainer.current_epoch
            self.close_walk()
            next(self.epochs)
            self.walk = iter(self.steps)
        step = next(self.walk, None)
        self.set_world_ranks()
        self.callback_memory.look()
        self.done_batches = 0
        if step is None:
            trainer.should_stop = True
            raise StopIteration
        self.step = step
        position = self.run.position
        assert self.feeds is not None
        self.feeds.follow(position.epoch, position.step_in_epoch * accumulate)
        self.update_size = min(accumulate, len(self.feeds.data) - batch_idx)  # type: ignore[arg-type]
        self.validated.clear()

    def close_walk(self) -> None:
        """Leave an epoch's steps before the next epoch begins."""
        if self.walk is not None:
            self.walk.close()

    def training_step(self, *given: Any, **named: Any) -> Any:
        """One worker's turn with the batch that is its own; for a batch that is accumulated, nothing yet."""
        rest = list(given[1:])
        module = self.lightning_module
        if not module.automatic_optimization and self.thread is None:
            return self.train_manually(rest, named)
        if self.current is None:
            return {"loss": torch.full((), torch.nan, device=self.root_device, requires_grad=True)}
        if rest and isinstance(rest[0], int):  # batch_idx, which Lightning knows of the update's last batch
            rest[0] -= self.update_size - 1 - self.number
        with self.precision_plugin.train_step_context():
            return self.redirect(module, module, "training_step", self.current, *rest, **named)

    def backward(self, closure_loss: torch.Tensor, *given: Any, **named: Any) -> Any:
        """The backward of a batch that is accumulated comes with the update's last one."""
        if self.lightning_module.automatic_optimization and self.current is None:
            return closure_loss
        return super().backward(closure_loss, *given, **named)

    def take_batch(self, worker: int) -> Any:
        """A worker's next batch, on its device."""
        assert self.feeds is not None
        batch = self.feeds.feeds[worker].take()
        module = self.lightning_module
        batch = self.precision_plugin.convert_input(batch)
        batch = module._on_before_batch_transfer(batch, dataloader_idx=0)
        return module._apply_batch_transfer_handler(batch, device=self.root_device, dataloader_idx=0)

    def show_batch(self, batch: Any) -> None:
        """Let `self.log(..., on_epoch=True)` weigh what it is given by the batch of the turn."""
        results = self.lightning_module.trainer._results
        results.batch, results.batch_size = batch, None

    def batch_to_device(self, batch: Any, device: Any = None, dataloader_idx: int = 0) -> Any:
        return batch if isinstance(batch, BatchPlaceholder) else super().batch_to_device(batch, device, dataloader_idx)

    def optimizer_step(self, optimizer: Any, closure: Callable[[], Any], model: Any = None, **kwargs: Any) -> Any:
        if self.thread is not None:
            return self.thread.ask((optimizer, kwargs))
        if not self.run.goal.allows_step(Position(step=self.run.position.step + 1)):
            self.lightning_module.trainer.should_stop = True
        if self.lightning_module.automatic_optimization:
            return super().optimizer_step(optimizer, lambda: self.take_turns(optimizer, closure), model, **kwargs)
        return super().optimizer_step(optimizer, closure, model, **kwargs)

    def take_turns(self, optimizer: Any, closure: Callable[[], Any]) -> Any:
        """Call Lightning's closure for each batch of the update, of each logical worker here."""
        self.clearing.begin(optimizer)
        result, first = None, self.run.local[0]
        counts = TurnCounts(LoopProgress(self.clearing.loop.optim_progress))
        with self.show_turns():
            for _ in self.step:
                worker = self.step.worker.rank
                self.set_world_ranks()
                self.is_first_turn = worker == first
                for number in range(self.update_size):
                    self.number, self.current = number, self.take_batch(worker)
                    self.show_batch(self.current)
                    with self.run.no_sync() if number < self.update_size - 1 else contextlib.nullcontext():
                        result = closure()
                    self.current = None
                    for loader in self.validated.get(number, ()):
                        draw_as_rank(loader)
                counts.put_back()
        counts.count()
        check_monitors(self.lightning_module.trainer)
        return result

    @contextlib.contextmanager
    def show_turns(self) -> Iterator[None]:
        """Within, turns set the rank that logs and saves; in the end, failed or not, it is this process's."""
        try:
            yield
        finally:
            rank_zero_only.rank = self.run.rank

    # Manual optimization.

    def train_manually(self, rest: list[Any], named: dict[str, Any]) -> Any:
        """Call `training_step` for each logical worker here; take each optimizer's step once all have come to it."""
        calls: dict[int, TurnThread] = {}
        self.toggles = WorkerToggles(self.lightning_module)
        while not all(one.has_ended for one in calls.values()) or not calls:
            cleared = self.walk_segment(calls, rest, named)
            asked = {None if one.has_ended else id(one.asked[0]) for one in calls.values()}
            if len(asked) > 1:
                raise JobError("logical workers step different optimizers in one training_step; all must do the same")
            if None in asked:
                for parameter in cleared:
                    parameter.grad = None
                break
            self.step_optimizer(calls)
        self.toggles.leave()
        check_monitors(self.lightning_module.trainer)
        return next(iter(calls.values())).result

    def walk_segment(self, calls: dict[int, TurnThread], rest: list[Any], named: dict[str, Any]) -> list[Any]:
        """Let every worker's call run to its next step or its end; the parameters whose gradients it has cleared."""
        module, cleared = self.lightning_module, []
        counts = TurnCounts(LoopProgress(module.trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress))
        schedules = TurnCounts(Schedules([config.scheduler for config in self.lr_scheduler_configs]))
        had = [parameter for parameter in module.parameters() if parameter.grad is not None]
        with self.show_turns():
            for _ in self.step:
                worker = self.step.worker.rank
                self.set_world_ranks()
                if worker not in calls:
                    self.batches[worker] = self.take_batch(worker)
                    calls[worker] = TurnThread(partial(self.call_manually, self.batches[worker], rest, named))
                self.show_batch(self.batches[worker])
                self.thread = calls[worker]
                with self.toggles.of(worker):
                    self.thread.go_on()
                self.thread = None
                counts.put_back()
                schedules.put_back()
                cleared = [parameter for parameter in had if parameter.grad is None]
        counts.count()
        schedules.count()
        return cleared

    def call_manually(self, batch: Any, rest: list[Any], named: dict[str, Any]) -> Any:
        """In a worker's thread: its `training_step`."""
        module = self.lightning_module
        with self.precision_plugin.train_step_context():
            return self.redirect(module, module, "training_step", batch, *rest, **named)

    def step_optimizer(self, calls: dict[int, TurnThread]) -> None:
        """Take the step that all calls wait for."""
        first = next(iter(calls.values()))
        optimizer, kwargs = first.asked
        answer = self.optimizer_step(optimizer, lambda: None, self.lightning_module, **kwargs)
        for one in calls.values():
            one.answer = answer

    # Validation and the end.

    def on_validation_start(self) -> None:
        """Every rank draws a seed for each loader that it walks in a fit.

        At once, or in the workers' turns if batches of the update are still to come.
        """
        super().on_validation_start()
        trainer = self.lightning_module.trainer
        if trainer.state.fn != TrainerFn.FITTING or trainer.sanity_checking or not self.run.prepared:
            return
        loaders = trainer.fit_loop.epoch_loop.val_loop._combined_loader.flattened
        place = trainer.fit_loop.batch_idx % trainer.accumulate_grad_batches
        if place < self.update_size - 1:
            self.validated[place] = loaders
            return
        for loader in loaders:
            draw_as_ranks(self.run, loader)

    def on_train_end(self) -> None:
        if self.run.prepared and self.epoch >= 0:
            self.run.stop("the Trainer has stopped")
            self.close_walk()
            next(self.epochs, None)
        super().on_train_end()


def count_steps(trainer: Any, updates: int) -> int:
    """All updates that a Trainer would take."""
    limits = [trainer.max_steps] if trainer.max_steps >= 0 else []
    if trainer.max_epochs is not None and trainer.max_epochs >= 0:
        limits.append(trainer.max_epochs * updates)
    if not limits:
        raise JobError("Trainer(max_epochs=-1) in an elastic run: its work must be known; give max_epochs or max_steps")
    return int(min(limits))
