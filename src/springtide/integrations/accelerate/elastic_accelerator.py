"""An Accelerator whose ranks are logical workers.

It has the surface of `accelerate.Accelerator`. The loop has the explicit turns of the runtime: `for step in loader`
runs once per update, `for batch in step` gives each logical worker's batches of it, all that are accumulated; what
follows that loop (clipping, the optimizer, schedules) happens once. In a reference run all of it is stock.
"""

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch
from accelerate import Accelerator
from accelerate.utils.operations import recursively_apply, send_to_device
from torch.utils.data import DataLoader

from springtide.errors import JobError
from springtide.integrations.accelerate.state_folders import check_ranks, complete, find_part, put_in_place
from springtide.integrations.accelerate_data import ShardedData, show_rank, walk_workers
from springtide.integrations.accelerate_gathers import refuse_local_sgd, watch_functions, watch_seeds
from springtide.integrations.eval_rounds import EvalRounds, Padding
from springtide.integrations.frameworks import PLUGINS, check_state, find_ddp_options, find_run
from springtide.integrations.stock_steps import StockSteps
from springtide.integrations.updates import ElasticUpdates, StockUpdates, Update, UpdateLoader, hold_back
from springtide.integrations.worker_feeds import LocalFeeds, begin_contexts, make_turns
from springtide.training.ddp_run import ReferenceRun
from springtide.training.group.membership import is_joining

WHERE = "an ElasticAccelerator"
#: How batches are accumulated, as accelerate does it unless it is told otherwise.
ACCUMULATION = {"sync_with_dataloader": True, "sync_each_batch": False}


class ElasticAccelerator(Accelerator):
    """An `accelerate.Accelerator` on any number of processes."""

    epochs_call = "accelerator.epochs"

    def __init__(self, *given: Any, **named: Any) -> None:
        self.run: Any = find_run(type(self).__name__)
        check_options(named)
        check_state(None, WHERE)
        super().__init__(*given, **named)
        self.stock = StockSteps(self.run) if isinstance(self.run, ReferenceRun) else None
        self.updates: UpdateLoader | None = None
        self.walker: ElasticUpdates | StockUpdates | None = None
        self.evaluating: EvalRounds | None = None
        #: Whether `load_state` has loaded one.
        self.is_loaded = False
        #: Models that were prepared before the optimizer.
        self.earlier: list[torch.nn.Module] = []
        #: Loaders for evaluation that draw an order.
        self.evaluations = 0
        check_state(self.state, WHERE)
        check_settings(self)
        if self.project_configuration.automatic_checkpoint_naming:
            raise JobError("automatic_checkpoint_naming in an ElasticAccelerator: give save_state a folder instead")
        self.show_place()
        if self.is_elastic:
            watch_functions(self.run)
            watch_seeds(self.run)
            refuse_local_sgd()

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
        if self.updates is not None:
            refuse_late(parts)
        elif any(isinstance(part, torch.optim.Optimizer) for part in parts):
            if not loaders:
                raise JobError("accelerator.prepare was given an optimizer without a DataLoader; give them together")
            first = loaders.pop(0)
            accumulate = int(self.gradient_accumulation_steps)
            self.updates = everything[first] = UpdateLoader(everything[first], accumulate, self.walk_updates)
            self.prepare_run(self.updates, parts)
        else:  # as the model, where it is prepared before its optimizer is made
            self.earlier += filter(is_trained, parts)
        for place in loaders if self.is_elastic else ():
            everything[place] = self.open_rounds(everything[place])
        return tuple(everything) if isinstance(prepared, tuple) else everything[0]

    def open_rounds(self, shard: Any) -> EvalRounds:
        """A loader for evaluation; where it draws an order, the run keeps from where."""
        rounds = EvalRounds(self.run, shard, self)
        if rounds.generator is not None and not self.run.entered:
            self.evaluations += 1
            self.run.keep(**{f"evaluation {self.evaluations}": rounds})
        return rounds

    def prepare_run(self, updates: UpdateLoader, parts: tuple[Any, ...]) -> None:
        """Hand the parts to the run; in a stock run DDP has them."""
        given = [part for part in parts if isinstance(part, torch.nn.Module)]
        trained = [one for one in self.earlier if all(one is not other for other in given)] + given
        steppers = [part for part in parts if isinstance(part, torch.optim.Optimizer)]
        if self.stock is not None:
            self.walker = StockUpdates(self.stock, trained, steppers)
            return
        run = self.run
        data = ShardedData(updates.loader, run.logical_workers, run.seed)
        turns = make_turns(run.logical_workers * len(updates))
        schedulers = [part for part in parts if isinstance(part, torch.optim.lr_scheduler.LRScheduler)]
        options = find_ddp_options(self.ddp_handler, WHERE)
        *_, steps = run.prepare(*trained, *steppers, *schedulers, turns, **options)
        begin_contexts(run)
        self.walker = ElasticUpdates(self, steps, LocalFeeds(run, data))
        self.keep_registered()

    def show_worker(self, rank: int) -> None:
        """Tell `accelerate` that this is a rank of N."""
        show_rank(self.run, rank)

    def tell_more(self, has_more: bool) -> None:
        """Tell `accelerate` whether a batch is followed by others of its update."""
        self.gradient_state._set_sync_gradients(not has_more)

    def place_batch(self, batch: Any) -> Any:
        """A batch where the prepared loader would put it: on the device, unless the script places batches by itself."""
        shard = self.updates.loader  # type: ignore[union-attr]
        return batch if shard.device is None else send_to_device(batch, shard.device, non_blocking=shard._non_blocking)

    # The loop.

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs left of `count`, from where a resumed run stands."""
        if self.stock is None:
            if self.is_loaded and not self.run.position.epoch:
                self.run.channel.warn(
                    f"accelerator.load_state has brought a state, and accelerator.epochs({count}) trains {count} "
                    "epochs from there: it does not know how many were trained before. Give it those that are left"
                )
            yield from self.run.epochs(count)
            return
        assert isinstance(self.walker, StockUpdates)
        yield from self.walker.walk_epochs(count)

    def walk_updates(self, loader: UpdateLoader) -> Iterator[Update]:
        """The updates of the epoch that are left."""
        if loader.accumulate != self.gradient_accumulation_steps:
            raise JobError(
                f"gradient_accumulation_steps was set to {self.gradient_accumulation_steps} after accelerator.prepare, "
                f"with {loader.accumulate}: how many updates an epoch has must be known. Give it to the Accelerator"
            )
        assert self.walker is not None
        return self.walker.walk(loader)

    @contextlib.contextmanager
    def accumulate(self, *models: torch.nn.Module) -> Iterator[None]:
        if not self.is_elastic:
            with super().accumulate(*models):
                yield
            return
        with contextlib.nullcontext() if self.sync_gradients else hold_back(self.run, models):
            yield

    @contextlib.contextmanager
    def no_sync(self, model: torch.nn.Module) -> Iterator[None]:
        with hold_back(self.run, (model,)) if self.is_elastic else super().no_sync(model):
            yield

    def wait_for_everyone(self) -> None:
        if not self.is_elastic:
            super().wait_for_everyone()
        elif self.run.prepared and self.run.turns.contexts.active is None:  # turns of one process wait for nobody
            self.run.exchange([])

    # Values of all ranks.

    def gather_for_metrics(self, input_data: Any, use_gather_object: bool = False) -> Any:
        if not self.is_elastic:
            return super().gather_for_metrics(input_data, use_gather_object)
        if self.evaluating is None:
            refuse_gather("gather_for_metrics")
        return self.evaluating.gather(input_data, use_gather_object or not is_of_tensors(input_data))

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

    def register_for_checkpointing(self, *objects: Any) -> None:
        super().register_for_checkpointing(*objects)
        if self.is_elastic and self.run.prepared:
            self.keep_registered()

    def keep_registered(self) -> None:
        """Let the run's own checkpoints, and processes that join, have what `save_state` would."""
        named = {f"registered {number}": one for number, one in enumerate(self._custom_objects)}
        self.run.keep(**{name: one for name, one in named.items() if name not in self.run.kept})

    def save_state(self, output_dir: str | None = None, **options: Any) -> Any:
        if not self.is_elastic:
            return super().save_state(output_dir, **options)
        folder = self.find_folder("save_state", output_dir)
        if is_joining(self.run):
            return folder  # the others have come past this line
        part = find_part(folder)
        if self.run.is_main:
            shutil.rmtree(part, ignore_errors=True)
        self.run.exchange([])
        for _ in walk_workers(self.run):  # what rank 0 writes is written by worker 0's process, random states by each
            super().save_state(str(part), **options)
        self.run.exchange([])  # all files are there
        if self.run.is_main:
            put_in_place(part, folder)
        self.run.exchange([])  # and everyone may look for them
        return folder

    def load_state(self, input_dir: str | None = None, **options: Any) -> None:
        if not self.is_elastic:
            super().load_state(input_dir, **options)
            return
        folder = self.find_folder("load_state", input_dir)
        if self.run.saved is not None:  # the run's own checkpoint is newer
            return
        if self.run.is_main:
            complete(folder)
        self.run.exchange([])
        check_ranks(folder, self.run.logical_workers)
        for _ in walk_workers(self.run):
            super().load_state(str(folder), **options)
        self.is_loaded = True

    def find_folder(self, name: str, given: str | None) -> Path:
        """The folder of a state of all logical workers, which is saved and loaded where no turn is under way."""
        if given is None or not self.run.prepared or self.run.turns.worker is not None:
            raise JobError(
                f"accelerator.{name}({given!r}) in an elastic run: give it a folder, after accelerator.prepare and "
                "outside `for batch in step:`. What it holds is of all logical workers, and turns are one's own"
            )
        return Path(given).expanduser()

    def skip_first_batches(self, dataloader: Any, num_batches: int = 0) -> Any:
        if not self.is_elastic:
            return super().skip_first_batches(dataloader, num_batches)
        raise JobError(
            "accelerator.skip_first_batches in an elastic run: where an epoch goes on is the run's to know. Submit the "
            "script with a checkpoint folder, and loops go on where they were"
        )


def check_options(named: Mapping[str, Any]) -> None:
    """Refuse options of an Accelerator that change what a logical worker does."""
    for name in PLUGINS:
        if named.get(name) is not None:
            raise JobError(f"ElasticAccelerator({name}=...): it shards or reduces by itself; leave it out")
    refuse_half(named.get("mixed_precision"))


def refuse_half(precision: str | None) -> None:
    """Refuse half precision with a scaled loss."""
    if precision == "fp16":
        raise JobError("ElasticAccelerator(mixed_precision='fp16'): its loss scaling was not compared; use bf16")


def check_settings(accelerator: Accelerator) -> None:
    """Refuse what an Accelerator was told by position, by a plugin, by its configuration or the environment."""
    refuse_half(accelerator.mixed_precision)
    plugin = accelerator.gradient_state.plugin_kwargs
    for name, value in ACCUMULATION.items():
        if plugin.get(name, value) != value:
            raise JobError(
                f"GradientAccumulationPlugin({name}={plugin[name]}) in an ElasticAccelerator: an update's batches are "
                f"reduced once, and an epoch's last update may have fewer; it must be {value}"
            )


def is_trained(part: Any) -> bool:
    """Whether DDP would be put around it: a model of which something is trained."""
    return isinstance(part, torch.nn.Module) and any(one.requires_grad for one in part.parameters())


def refuse_late(parts: tuple[Any, ...]) -> None:
    """Refuse what is trained or steps and comes after the run has been prepared: nothing would reduce or save it."""
    for part in parts:
        if is_trained(part) or isinstance(part, torch.optim.Optimizer | torch.optim.lr_scheduler.LRScheduler):
            raise JobError(
                f"accelerator.prepare was given a {type(part).__name__} after the optimizer and its DataLoader; a run "
                "is prepared once. Give models, optimizers, schedulers and the DataLoader to one accelerator.prepare"
            )


def is_of_tensors(values: Any) -> bool:
    """Whether accelerate would gather these as tensors, and not as a list of objects."""
    try:
        recursively_apply(lambda one: one, values, error_on_other_type=True)
    except TypeError:
        return False
    return True


def refuse_gather(name: str) -> NoReturn:
    """Refuse what needs a value of every rank at once."""
    raise JobError(
        f"accelerator.{name} in an elastic run: logical workers take turns, so no place has a value of each. Keep what "
        "each turn has in a list and call run.mean(values) or run.sum(values) after `for batch in step:`; over a "
        "prepared evaluation loader, gather_for_metrics works"
    )
