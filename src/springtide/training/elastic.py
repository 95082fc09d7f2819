"""The elastic run: logical workers of this process walked in turn, one reduction and one agreement per global step.

Ties the parts together: contexts (`workers`), gradients and reduction (`turns`), data (`loaders`).
"""

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import default_collate

from springtide.errors import JobError
from springtide.training import devices, gates, sampling
from springtide.training.groups import Group, connect_store, open_group
from springtide.training.loaders import Loader, LoaderOptions
from springtide.training.protocol import Settings, find_roster
from springtide.training.rosters import check_counts
from springtide.training.runtime import Run, sort_parts
from springtide.training.sampling import Sampling
from springtide.training.traces import Trace, name_tensors
from springtide.training.turns import Turns
from springtide.training.workers import Buffers, Contexts, find_device


class ElasticRun(Run):
    """A run whose logical workers may live on any number of processes."""

    def __init__(self, logical_workers: int, seed: int, settings: Settings, environ: Mapping[str, str]) -> None:
        super().__init__(logical_workers, seed, settings)
        self.roster, self.name = find_roster(settings, logical_workers, environ)
        check_counts(logical_workers, len(self.roster.members))
        if self.roster.logical_workers != logical_workers:
            raise JobError(f"roster {self.roster} places {self.roster.logical_workers} of {logical_workers} workers")
        self.rank = self.roster.rank_of(self.name)
        self.generation = settings.generation
        self.store_address = settings.store or find_torchrun_store(environ)
        self.group: Group | None = None
        self.metrics: dict[int, dict[str, Any]] = {}
        self.trace = Trace(settings.trace_dir, self.name) if settings.trace_dir else None

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def local(self) -> list[int]:
        """The logical workers of this process."""
        return list(self.roster.workers_of(self.rank))

    @property
    def steps_per_epoch(self) -> int:
        return self.loader.sampling.steps_per_epoch

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
        kinds = sort_parts(parts)
        self.model = kinds["model"][0]
        self.optimizers: list[torch.optim.Optimizer] = kinds["optimizer"]
        self.schedulers: list[Any] = kinds["scheduler"]
        dataset = sampling.adopt(kinds["dataset"][0], self.seed)
        facts = Sampling(len(dataset), self.logical_workers, batch_size, self.seed, shuffle, drop_last, accumulate)
        sampling.check_size(facts)
        options = LoaderOptions(num_workers, prefetch_factor, collate_fn or default_collate)
        self.loader = Loader(self, dataset, facts, options)
        self.attach(find_unused_parameters, broadcast_buffers)
        return tuple(self.loader if part is kinds["dataset"][0] else part for part in parts)

    def attach(self, find_unused: bool, broadcast_buffers: bool) -> None:
        """Give the workers their contexts and buffers, and let optimizers and schedulers wait for their moment."""
        self.device = find_device(self.model)
        self.backend = devices.choose_backend(self.device.type)
        self.contexts = Contexts(Buffers(self.model), broadcast_buffers)
        self.contexts.seed(self.local, self.seed)
        self.turns = Turns(self.model, self.contexts, find_unused)
        self.open_group()
        self.turns.configure(self.roster, self.rank, self.group, self.backend)
        for optimizer in self.optimizers:
            gates.gate_optimizer(optimizer, self.turns)
        for scheduler in self.schedulers:
            gates.gate_scheduler(scheduler, self.turns)

    def open_group(self) -> None:
        """Open this generation's process group; a process alone needs none."""
        if len(self.roster.members) == 1:
            self.group = None
            return
        if self.store_address is None:
            raise JobError(f"roster {self.roster} has several processes but no store; set SPRINGTIDE_STORE")
        timeout_s = self.settings.collective_timeout_s
        store = connect_store(self.store_address, timeout_s)
        size = len(self.roster.members)
        self.group = open_group(self.backend, store, self.rank, size, str(self.generation), timeout_s)

    def begin_epoch(self) -> None:
        """Start walking the loader: at an epoch's very start each worker draws what iter(DataLoader) would draw."""
        if self.position.step_in_epoch == 0:
            for worker in self.local:
                self.contexts.enter(worker)
                torch.empty((), dtype=torch.int64).random_()
        self.epoch_started_s = time.monotonic()

    def wants_step(self, steps_per_epoch: int) -> bool:
        """Whether another global step of this epoch is to be taken."""
        open_ = self.position.step_in_epoch < steps_per_epoch and self.stop_reason is None
        return open_ and self.goal.allows_step(self.position)

    def begin_turn(self, worker: int) -> None:
        """Switch to a worker's context for its part of the step."""
        self.contexts.enter(worker)
        self.contexts.load_buffers(worker)
        self.turns.begin(worker)
        if self.trace is not None:
            self.trace.worker = worker

    def end_turn(self, worker: int) -> None:
        """Make sure the worker's gradients are staged, and keep its buffers."""
        self.turns.end()
        self.contexts.keep_buffers(worker)

    def end_step(self) -> None:
        """The boundary between two global steps."""
        self.position = self.position.after_step()
        self.turns.rebuild()
        if self.group is not None:
            self.group.broadcast(self.contexts.buffers.agreed, 0).wait()
        if self.metrics:
            self.write_metrics()
        if self.trace is not None:
            self.contexts.buffers.load()
            self.trace.write(self.position.step, name_tensors(self.model, self.optimizers), str(self.roster))
        if self.is_main:
            self.channel.send("progressed", step=self.position.step, epoch=self.position.epoch)

    def leave_loop(self) -> None:
        """Stop walking the loader: the process's own context is active again."""
        self.turns.abandon()
        self.contexts.exit()

    def log(self, **metrics: float | torch.Tensor) -> None:
        worker = self.turns.worker
        if worker is None:
            self.emit({name: float(value) for name, value in metrics.items()})
            return
        detached = {
            name: value.detach() if isinstance(value, torch.Tensor) else value for name, value in metrics.items()
        }
        self.metrics.setdefault(worker, {}).update(detached)

    def write_metrics(self) -> None:
        """Average this step's metrics over all logical workers, in their order, and log them once."""
        names = list(next(iter(self.metrics.values())))
        rows = {worker: [float(values[name]) for name in names] for worker, values in self.metrics.items()}
        self.metrics = {}
        if self.group is not None:
            table = torch.zeros(self.logical_workers, len(names), dtype=torch.float64, device=self.device)
            for worker, row in rows.items():
                table[worker] = torch.tensor(row, dtype=torch.float64)
            self.group.all_reduce(table).wait()
            rows = dict(enumerate(table.tolist()))
        means = [sum(rows[worker][k] for worker in sorted(rows)) / len(rows) for k in range(len(names))]
        self.emit(dict(zip(names, means, strict=True)))

    def emit(self, metrics: dict[str, float]) -> None:
        """Log metrics once: to the supervisor if there is one, else to standard output."""
        if not self.is_main:
            return
        self.channel.send("logged", step=self.position.step, metrics=metrics)
        if not self.channel.is_open:
            print(f"step {self.position.step}  " + "  ".join(f"{k} {v:.6g}" for k, v in metrics.items()), flush=True)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        if not self.turns.acting:
            return torch.zeros((), device=self.device)
        self.turns.ensure_reduced()
        return torch.nn.utils.clip_grad_norm_(self.turns.parameters, max_norm, norm_type)

    def finish(self) -> None:
        if self.is_main:
            self.channel.send("finished", step=self.position.step, reason=self.stop_reason)


def find_torchrun_store(environ: Mapping[str, str]) -> str | None:
    """The address of torchrun's store, if it runs us."""
    if "MASTER_ADDR" in environ and "MASTER_PORT" in environ:
        return f"{environ['MASTER_ADDR']}:{environ['MASTER_PORT']}"
    return None
