"""A Trainer whose ranks are logical workers: its own loop, its own arguments, the bits of N ranks under torchrun.

The Trainer's loop runs once per update on every process, as ever. Where it asks for the update's batches
(`get_batch_samples`) the step before ends and the next begins: processes agree, come and go. Where it trains on the
last of them (`train_update`) every logical worker of the process takes its turn with all of its batches, and the
`training_step` of the Trainer's class, or of the user's, is called for each. All that follows (clipping, the optimizer,
schedules, callbacks, evaluation, saving) is the Trainer's. In a reference run every method here is stock.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import Seq2SeqTrainer, Trainer, TrainingArguments
from transformers import trainer as trainer_module
from transformers.trainer_callback import ExportableState, ProgressCallback

from springtide.errors import JobError
from springtide.integrations.accelerate_data import ShardedData, show_rank, walk_workers
from springtide.integrations.accelerate_gathers import watch_functions
from springtide.integrations.callback_memory import CallbackMemory
from springtide.integrations.frameworks import find_ddp_options, find_run
from springtide.integrations.hf import trainer_checks
from springtide.integrations.hf.eval_shards import EvalShards, GatheredResults
from springtide.integrations.hf.trainer_memory import TrainerMemory
from springtide.integrations.stock_steps import StockSteps
from springtide.integrations.worker_feeds import LocalFeeds, begin_contexts, make_turns
from springtide.training.ddp_run import ReferenceRun
from springtide.training.elastic_run import ElasticRun
from springtide.training.positions import Position
from springtide.training.workers.steps import Step

#: In place of a checkpoint's folder, where the run's own checkpoint or another process has brought the state.
BROUGHT_BY_RUN = "springtide"
#: After so many steps what `compute_loss` has logged is written, if nothing else asks for it.
NOTED_STEPS = 100


class UpdateBatch:
    """One of an update's batches as the Trainer's loop sees it: it stands for those of all logical workers here."""

    def __init__(self, update: "TrainerUpdate", is_last: bool) -> None:
        self.update = update
        self.is_last = is_last


class TrainerUpdate:
    """What one update is made of: a step of the run, and the batches of this process's logical workers."""

    def __init__(self, step: Step, batches: dict[int, list[Any]]) -> None:
        self.step = step
        self.batches = batches
        #: Items that the loss of each worker is divided by.
        self.items: dict[int, Any] = dict.fromkeys(batches)


class EpochSteps:
    """In the place of the training DataLoader: an epoch's steps, and what the Trainer asks of a loader."""

    def __init__(self, trainer: "ElasticTrainer", data: ShardedData) -> None:
        self.trainer = trainer
        self.data = data
        self.dataset = data.loader.dataset

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.trainer.steps)


class ResumedEpoch:
    """The epoch that training goes on in, asked for when the run has been prepared and knows it."""

    def __init__(self, run: ElasticRun) -> None:
        self.run = run

    def __index__(self) -> int:
        return self.run.position.epoch

    def __str__(self) -> str:
        return str(self.run.position.epoch)


class ElasticTrainer(Trainer):
    """A `transformers.Trainer` on any number of processes; a mixin for classes derived from it."""

    #: The Trainer's: how results of an evaluation meet.
    gather_function: Any

    def __init__(self, *given: Any, **named: Any) -> None:
        run = find_run(type(self).__name__)
        args = named.get("args", given[1] if len(given) > 1 else None) or TrainingArguments()
        if len(given) > 1:
            given = (given[0], args, *given[2:])
        else:
            named["args"] = args
        self.run: Any = run
        self.stock = StockSteps(run) if isinstance(run, ReferenceRun) else None
        #: The update under way; and in an evaluation, the items that the losses of its round are divided by.
        self.update: TrainerUpdate | None = None
        self.round_items: list[int | None] | None = None
        self.stepped = 0
        #: Whether training goes on from where a Trainer's checkpoint stands, if there is one, and not from the run's.
        self.is_resumed = True
        trainer_checks.check_kind(type(self))
        trainer_checks.check_arguments(args)
        trainer_checks.check_environment()
        if self.stock is None:
            self.show_place(args)
            trainer_checks.place_arguments(args, run.device)
        super().__init__(*given, **named)
        trainer_checks.check_plugins(self.accelerator)
        trainer_checks.check_model(self.model)
        trainer_checks.check_callbacks(self.callback_handler.callbacks)
        if self.is_elastic:
            trainer_checks.watch_gathers(self.accelerator, run)
            watch_functions(run)
            # In the place of the class's own methods, which a user's class may have overridden and which are called
            # from here with a rank's loader and a worker's batch.
            self.__dict__.update(get_train_dataloader=self.open_steps, training_step=self.train_update)

    @property
    def is_elastic(self) -> bool:
        """Whether logical workers take turns here, or this is one of N stock ranks."""
        return self.stock is None

    def show_place(self, args: Any) -> None:
        """Tell `accelerate` and the Trainer that this is rank p of N; a rescale may change p."""
        place = args.distributed_state
        if place.num_processes not in (1, self.run.logical_workers) or place.backend is not None:
            raise JobError(
                f"the TrainingArguments were made for {place.num_processes} ranks, before the run; call "
                "springtide.init(logical_workers=...) at the script's top"
            )
        show_rank(self.run)

    # From train() to the first step.

    def open_steps(self) -> EpochSteps:
        """What the Trainer's loop calls as `get_train_dataloader`, the user's own or not."""
        loader = type(self).get_train_dataloader(self)
        return EpochSteps(self, ShardedData(loader, self.run.logical_workers, self.args.seed))

    def _init_training_state(self, *given: Any, **named: Any) -> Any:
        epochs, steps = super()._init_training_state(*given, **named)
        self.resumed = (epochs, steps // self.args.gradient_accumulation_steps)
        return (ResumedEpoch(self.run), steps) if self.is_elastic else (epochs, steps)

    def train(self, resume_from_checkpoint: Any = None, *given: Any, **named: Any) -> Any:
        if self.is_elastic and resume_from_checkpoint and has_state(self.run):
            resume_from_checkpoint = None  # the Trainer's may be of another step, or not whole: killed, being written
        if self.is_elastic and resume_from_checkpoint:
            folder = resume_from_checkpoint
            if folder is True:
                folder = trainer_module.get_last_checkpoint(self.args.output_dir)
            if folder is not None:
                trainer_checks.check_checkpoint(Path(folder), self.run.logical_workers)
        return super().train(resume_from_checkpoint, *given, **named)

    def _prepare_for_training(self, max_steps: int, train_dataloader: Any, resume_from_checkpoint: Any) -> Any:
        prepared = super()._prepare_for_training(max_steps, train_dataloader, resume_from_checkpoint)
        trainer_checks.check_callbacks(self.callback_handler.callbacks)
        if self.is_elastic:
            self.prepare_run(max_steps, train_dataloader)
        return prepared

    def prepare_run(self, max_steps: int, epoch_steps: EpochSteps) -> None:
        """Hand the parts to the run, and take over where it or a Trainer's checkpoint stands."""
        run, epochs_steps = self.run, len(epoch_steps)
        updates = -(-epochs_steps // self.args.gradient_accumulation_steps)
        turns = make_turns(run.logical_workers * updates)
        parts = (self.model, self.optimizer.optimizer, self.lr_scheduler, turns)
        *_, self.steps = run.prepare(*parts, **find_ddp_options(self.accelerator.ddp_handler, trainer_checks.WHERE))
        self.is_resumed = run.saved is None
        if self.is_resumed:
            run.position = Position(*self.resumed, self.state.global_step)
        begin_contexts(run)  # every rank of a Trainer begins from the same seed
        self.feeds = LocalFeeds(run, epoch_steps.data)
        self.optimizer.optimizer.register_step_pre_hook(self.count_step)
        run.keep(trainer=TrainerMemory(self))
        callbacks = self.callback_handler.callbacks
        unkept = [one for one in callbacks if not isinstance(one, ExportableState)]
        self.callback_memory = CallbackMemory(run, unkept, [self])
        self.epochs = run.steps(max_steps)

    def count_step(self, *_: Any) -> None:
        """Count an optimizer's steps within an update, of which there is one: a callback may take none."""
        self.stepped += 1
        if self.stepped > 1:
            raise JobError(
                f"the optimizer was stepped {self.stepped} times in update {self.state.global_step}, by a callback or "
                "a method of yours; in an elastic Trainer it is once, on the gradients of all logical workers"
            )

    def hyperparameter_search(self, *given: Any, **named: Any) -> Any:
        return super().hyperparameter_search(*given, **named) if not self.is_elastic else trainer_checks.refuse_search()

    # An epoch and its steps.

    def _run_epoch(self, **given: Any) -> None:
        if not self.is_elastic:
            super()._run_epoch(**given)
            self.end_stock_step()
            return
        epoch = next(self.epochs, None)
        if epoch is None:  # a checkpoint of the last step, in the middle of an epoch
            self.control.should_training_stop = True
            return
        done = self.run.position.step_in_epoch
        if not self.is_resumed or self.resumed != (epoch, done):
            given["resume_from_checkpoint"] = BROUGHT_BY_RUN
        given["epoch"] = epoch
        given["epochs_trained"] = epoch if done or epoch == self.resumed[0] else None
        given["steps_trained_in_current_epoch"] = done * self.args.gradient_accumulation_steps
        with skip_nothing():
            super()._run_epoch(**given)
        if self.control.should_training_stop:
            self.run.stop("the Trainer has stopped")

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> Any:
        if not self.is_elastic:
            self.end_stock_step()
            return super().get_batch_samples(epoch_iterator, num_batches, device)
        step = next(epoch_iterator, None)  # the boundary: the step before ends, and processes may have come and gone
        self.follow_place()
        self.stepped = 0
        self.callback_memory.look()
        if step is None:
            self.control.should_training_stop = True
            return [], None
        position = self.run.position
        self.feeds.follow(position.epoch, position.step_in_epoch * self.args.gradient_accumulation_steps)
        self.update = TrainerUpdate(step, self.feeds.take(num_batches))
        items = self.count_items(self.update, device)
        self.count_tokens(self.update)
        return [UpdateBatch(self.update, number == num_batches - 1) for number in range(num_batches)], items

    def follow_place(self) -> None:
        """After a rescale this process may be another rank."""
        was_main = self.state.is_world_process_zero
        self.show_place(self.args)
        self.state.is_world_process_zero = self.is_world_process_zero()
        self.state.is_local_process_zero = self.is_local_process_zero()
        if self.state.is_world_process_zero and not was_main:
            for callback in self.callback_handler.callbacks:
                if isinstance(callback, ProgressCallback) and callback.training_bar is None:
                    callback.on_train_begin(self.args, self.state, self.control)

    def count_items(self, update: TrainerUpdate, device: torch.device) -> Any:
        """What each worker's loss is divided by: the items of all workers or its own, as the Trainer is told."""
        own = {worker: self.count_own_items(batches, device) for worker, batches in update.batches.items()}
        if any(one is None for one in own.values()):
            return None
        update.items = own
        if self.args.average_tokens_across_devices and self.run.logical_workers > 1:
            total = self.run.sum([torch.as_tensor(one, device=device) for one in own.values()])
            update.items = dict.fromkeys(own, total)
        return next(iter(update.items.values()))

    def count_own_items(self, batches: list[Any], device: torch.device) -> Any:
        """One worker's items, counted by the Trainer."""
        return self._get_num_items_in_batch(batches, device)

    def count_tokens(self, update: TrainerUpdate) -> None:
        """Add the input tokens of all workers, where the Trainer is told to count them."""
        if self.args.include_num_input_tokens_seen == "no":
            return
        before = self.state.num_input_tokens_seen
        for batches in update.batches.values():
            for batch in batches:
                super()._track_num_input_tokens(batch)
        own = self.state.num_input_tokens_seen - before
        self.state.num_input_tokens_seen = before + sum(sum(theirs) for theirs in self.run.exchange([own]))

    def _track_num_input_tokens(self, inputs: Any) -> None:
        if not isinstance(inputs, UpdateBatch):
            super()._track_num_input_tokens(inputs)

    def train_update(self, model: torch.nn.Module, inputs: UpdateBatch, *_: Any) -> torch.Tensor:
        """What the Trainer's loop calls as `training_step`, the user's own or not: all turns, at the last batch."""
        if inputs.is_last:
            self.take_turns(model, inputs.update)
        return torch.tensor(0.0, device=self.args.device)  # each worker's loss is its own until it is logged

    def take_turns(self, model: torch.nn.Module, update: TrainerUpdate) -> None:
        """Let every logical worker of this process train on its batches of the update."""
        state = self.accelerator.gradient_state
        self.optimizer.train()  # as `training_step` does; for one with a mode it changes what is all workers'
        try:
            for _ in update.step:
                worker = update.step.worker
                show_rank(self.run, worker.rank)
                batches = update.batches[worker.rank]
                for number, batch in enumerate(batches):
                    is_last = number == len(batches) - 1
                    state._set_sync_gradients(is_last)
                    with contextlib.nullcontext() if is_last else self.run.no_sync():
                        loss = type(self).training_step(self, model, batch, update.items[worker.rank])
                    self.add_loss(worker.state, loss)
                    flops = float(super().floating_point_ops(batch))
                    worker.state["flops"] = worker.state.get("flops", 0.0) + flops
        finally:
            show_rank(self.run)

    def add_loss(self, state: dict[str, Any], loss: torch.Tensor) -> None:
        """Add to a worker's loss that is not logged yet, as the Trainer adds to a rank's: in float32."""
        total = state.setdefault("loss", torch.zeros((), device=loss.device))
        if self.args.logging_nan_inf_filter and not bool(torch.isfinite(loss)):
            loss = total / (1 + self.state.global_step - self._globalstep_last_logged)
        state["loss"] = (total + loss).to(total.dtype)

    def floating_point_ops(self, inputs: Any) -> Any:
        return 0 if isinstance(inputs, UpdateBatch) else super().floating_point_ops(inputs)

    # Between two steps.

    def _maybe_log_save_evaluate(self, tr_loss: torch.Tensor, *given: Any, **named: Any) -> None:
        step = self.state.global_step
        if self.is_elastic and self.control.should_log and step > self._globalstep_last_logged:
            tr_loss.copy_(torch.stack(self.pop_everyone("loss", torch.tensor(0.0))).mean())
        elif self.is_elastic and (self.control.should_save or step % NOTED_STEPS == 0):
            self.write_noted()
        super()._maybe_log_save_evaluate(tr_loss, *given, **named)
        if self.stock.is_last(step) if self.stock else not self.run.goal.allows_step(Position(step=step)):
            self.control.should_training_stop = True

    def pop_everyone(self, name: str, default: Any) -> list[Any]:
        """A value that each logical worker has, of all of them in their order; they are then without it."""
        workers = self.run.turns.contexts.workers
        own = [workers[worker].state.pop(name, default) for worker in self.run.local]
        return [value for theirs in self.run.exchange(own) for value in theirs]

    def store_flos(self) -> None:
        if self.is_elastic and self.run.prepared:
            everyone = self.pop_everyone("flops", 0.0)
            self.current_flos = torch.tensor(everyone).sum().item() if len(everyone) > 1 else everyone[0]
        super().store_flos()

    def log(self, logs: dict[str, float], *given: Any, **named: Any) -> None:
        if not self.is_elastic or not self.run.prepared:
            super().log(logs, *given, **named)
        elif self.run.turns.contexts.active is not None:
            self.note_log(logs)
        else:
            self.write_noted()
            self.write_log(logs, *given, **named)

    def note_log(self, logs: dict[str, float]) -> None:
        """Keep what `compute_loss` logs in a turn: processes have different numbers of turns, and none waits in one.

        Of the ranks the first one's log is kept, so here the first worker's; it moves with the worker.
        """
        contexts = self.run.turns.contexts
        if contexts.active == 0:
            state = contexts.workers[0].state
            state["logs"] = [*state.get("logs", ()), (self.state.global_step, self.state.epoch, dict(logs))]

    def write_noted(self) -> None:
        """Log what was noted in turns, as of the steps that it was noted in."""
        if not self.run.prepared:
            return
        now = self.state.global_step, self.state.epoch
        for step, epoch, logs in self.pop_everyone("logs", ())[0]:
            self.state.global_step, self.state.epoch = step, epoch
            self.write_log(logs)
        self.state.global_step, self.state.epoch = now

    def write_log(self, logs: dict[str, float], *given: Any, **named: Any) -> None:
        """Log on every process what the first one has."""
        known = set(logs)
        super().log(logs, *given, **named)
        trainer_checks.check_best_metric(self.args.metric_for_best_model, logs.keys() - known)
        history = self.state.log_history  # times differ between processes, what is kept of them must not
        history[-1] = self.run.exchange([history[-1]])[0][0]
        numbers = {name: float(value) for name, value in history[-1].items() if isinstance(value, int | float)}
        self.run.emit(numbers, self.state.global_step, echo=False)

    def _evaluate(self, *given: Any, skip_scheduler: bool = False, **named: Any) -> Any:
        if skip_scheduler and self.is_elastic and self.run.saved is not None:
            return {}  # `eval_on_start`: the run has begun before, and callbacks would count what they have counted
        return super()._evaluate(*given, skip_scheduler=skip_scheduler, **named)

    def evaluation_loop(self, dataloader: Any, *given: Any, **named: Any) -> Any:
        if not self.is_elastic:
            return super().evaluation_loop(dataloader, *given, **named)
        shards = EvalShards(self.run, dataloader, self.count_round)
        if self.gather_function is self.accelerator.gather:  # Seq2SeqTrainer's: what fills the last round counts too
            shards.rest = 0
        self.gather_function = lambda results: results
        self.write_noted()  # of training: what TRL adds to a log is the evaluation's after it
        try:
            with gather_results(shards):
                found = super().evaluation_loop(shards, *given, **named)
            self.write_noted()
            return found
        finally:
            self.round_items = None

    def count_round(self, batches: list[Any]) -> None:
        """Count the items of a round of evaluation: of all logical workers, where the Trainer averages over them."""
        own = [super(ElasticTrainer, self)._get_num_items_in_batch([batch], self.args.device) for batch in batches]
        self.round_items = [None if one is None else int(one) for one in own]
        if self.args.average_tokens_across_devices and None not in self.round_items and self.run.logical_workers > 1:
            everyone = self.run.exchange(self.round_items)
            self.round_items = [sum(sum(theirs) for theirs in everyone)] * len(own)
        self.round_items.reverse()

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> Any:
        if self.round_items is None:
            return super()._get_num_items_in_batch(batch_samples, device)
        items = self.round_items.pop()
        return None if items is None else torch.tensor(items, device=device)

    def save_model(self, *given: Any, **named: Any) -> None:
        super().save_model(*given, **named)
        if self.is_elastic and named.get("_internal_call"):
            self.run.exchange([])  # everyone may look for what the first process has written

    def _save_rng_state(self, output_dir: str) -> None:
        if not self.is_elastic:
            super()._save_rng_state(output_dir)
            return
        for _ in walk_workers(self.run):
            super()._save_rng_state(output_dir)

    def _load_rng_state(self, checkpoint: Any) -> None:
        if not self.is_elastic:
            super()._load_rng_state(checkpoint)
        elif checkpoint not in (None, BROUGHT_BY_RUN):
            for _ in walk_workers(self.run):
                super()._load_rng_state(checkpoint)

    # The end.

    def _finalize_training(self, *given: Any, **named: Any) -> Any:
        if self.stock is not None:
            self.stock.finish()
        else:
            next(self.epochs, None)
            first = self.run.turns.contexts.workers[self.run.local[0]]
            self._tr_loss.copy_(first.state.get("loss", torch.tensor(0.0)))
        return super()._finalize_training(*given, **named)

    def end_stock_step(self) -> None:
        """In a reference run: write the digests of the step that has ended."""
        assert self.stock is not None
        self.stock.note(self.state.global_step, [self.model], [self.optimizer.optimizer])


class ElasticSeq2SeqTrainer(ElasticTrainer, Seq2SeqTrainer):
    """A Seq2SeqTrainer whose ranks are logical workers."""


def has_state(run: ElasticRun) -> bool:
    """Whether this process goes on from others, or from a checkpoint of the run's own."""
    return run.settings.joining or (run.checkpoints is not None and bool(run.checkpoints.names()))


@contextlib.contextmanager
def skip_nothing() -> Iterator[None]:
    """Within, the Trainer's loop does not skip batches in a resumed epoch: the feeds begin where it goes on."""
    original = trainer_module.skip_first_batches
    trainer_module.skip_first_batches = lambda dataloader, num_batches=0: dataloader
    try:
        yield
    finally:
        trainer_module.skip_first_batches = original


@contextlib.contextmanager
def gather_results(shards: EvalShards) -> Iterator[None]:
    """Within, the Trainer's evaluation keeps results in containers that gather them from all logical workers."""
    original = trainer_module.EvalLoopContainer
    trainer_module.EvalLoopContainer = type("GatheredHere", (GatheredResults,), {"shards": shards})
    try:
        yield
    finally:
        trainer_module.EvalLoopContainer = original
