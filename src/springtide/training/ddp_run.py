"""The reference: the same script under stock DistributedDataParallel, one gloo rank per logical worker.

Everything that decides bits is torch's own: DDP with defaults, DistributedSampler, DataLoader. Only what a script
would write by hand (seeding, set_epoch, no_sync) is here.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler

from springtide.errors import JobError
from springtide.training.group.groups import connect_store, delay_exit
from springtide.training.group.rosters import parse_roster
from springtide.training.run import Parts, PrepareOptions, Run
from springtide.training.settings import Settings
from springtide.training.state.digests import DigestTrace, name_tensors
from springtide.training.workers import once_per_step, randomness, sampling
from springtide.training.workers.sampling import Sampling, Seeded

#: Runs that have ended, kept so that their groups are not destroyed while the group's threads still let go of tensors
#: (see `groups`).
_finished: list[Run] = []


class ReferenceLoader:
    """One rank's stock DataLoader, which also counts steps and turns gradient synchronisation on and off."""

    def __init__(self, run: "ReferenceRun", loader: DataLoader[Any], facts: Sampling) -> None:
        self.run = run
        self.loader = loader
        self.facts = facts

    def __len__(self) -> int:
        return self.facts.steps_per_epoch * self.facts.accumulate

    def __iter__(self) -> Iterator[Any]:
        run = self.run
        outside = randomness.capture()
        randomness.restore(run.rank_state)
        try:
            batches = iter(self.loader)
            for _ in range(self.facts.steps_per_epoch):
                if run.stop_reason is not None or not run.goal.allows_step(run.position):
                    break
                for micro in range(self.facts.accumulate):
                    run.moment.begin(micro)
                    run.wrapped.require_backward_grad_sync = run.moment.acting
                    yield next(batches)
                run.end_step()
            run.moment.begin(self.facts.accumulate - 1)
        finally:
            run.rank_state = randomness.capture()
            randomness.restore(outside)


class RankMoment:
    """Where a rank is in its accumulation: what an `if (i + 1) % accumulate == 0` would be in a script by hand."""

    def __init__(self, accumulate: int, wrapped: DistributedDataParallel) -> None:
        self.accumulate = accumulate
        self.micro = accumulate - 1
        self.began_backward = False
        wrapped.register_forward_hook(self.after_forward)

    def begin(self, micro: int) -> None:
        """Start a mini-batch."""
        self.micro = micro
        self.began_backward = False

    def after_forward(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        """Listen for the backward."""
        once_per_step.call_on_backward(output, self.on_backward)

    def on_backward(self, gradient: torch.Tensor) -> None:
        """The mini-batch's backward has begun."""
        self.began_backward = True

    @property
    def acting(self) -> bool:
        """Whether this is the mini-batch that DDP synchronises after."""
        return self.micro == self.accumulate - 1

    @property
    def accumulating(self) -> bool:
        """Whether gradients of earlier mini-batches of the step are waiting for more."""
        return once_per_step.is_accumulating(self.micro, self.began_backward, self.accumulate)

    def ensure_reduced(self) -> None:
        """DDP has reduced."""


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

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def steps_per_epoch(self) -> int:
        return self.facts.steps_per_epoch

    def adopt_parts(self, given: Parts, options: PrepareOptions) -> tuple[Any, Any]:
        if isinstance(given.dataset, IterableDataset):
            raise JobError(
                "the stock reference has no order for an iterable dataset; compare with `springtide verify --against "
                "self`, or use a map-style dataset"
            )
        self.dataset = sampling.seeded(given.dataset, self.seed)
        self.facts = self.make_sampling(len(self.dataset), options)
        # Only what was asked for is passed on, so that DDP's own defaults hold.
        buffers: Any = {} if options.broadcast_buffers else {"broadcast_buffers": False}
        self.wrapped = DistributedDataParallel(
            self.model, find_unused_parameters=options.find_unused_parameters, **buffers
        )
        self.sampler: DistributedSampler[Any] = DistributedSampler(
            self.dataset, self.logical_workers, self.rank, shuffle=options.shuffle, seed=self.seed, drop_last=True
        )
        stock = DataLoader(
            self.dataset,
            options.batch_size,
            sampler=self.sampler,
            drop_last=options.drop_last,
            num_workers=options.num_workers,
            collate_fn=options.collate,
        )
        self.moment = RankMoment(options.accumulate, self.wrapped)
        once_per_step.gate(self.optimizers, given.schedulers, given.scalers, self.moment)
        self.seed_rank()
        return self.wrapped, ReferenceLoader(self, stock, self.facts)

    def seed_rank(self) -> None:
        """Keep the random state that this rank trains with."""
        before = randomness.capture()
        randomness.seed_all(self.seed + self.rank)
        self.rank_state = randomness.capture()
        randomness.restore(before)

    def walk_epochs(self) -> Iterator[int]:
        for epoch in super().walk_epochs():
            self.sampler.set_epoch(epoch)
            if isinstance(self.dataset, Seeded):
                self.dataset.set_epoch(epoch)
            if self.trace is not None:
                self.trace.worker = self.rank
            yield epoch

    def end_step(self) -> None:
        """Count a step and write its digests."""
        self.position = self.position.after_step()
        if self.trace is not None:
            self.trace.write(self.position.step, name_tensors(self.model, self.optimizers), "reference")

    def log(self, **metrics: float | torch.Tensor) -> None:
        if self.is_main:  # no mean over ranks: a collective of ours has no place between DDP's
            values = {name: float(value) for name, value in metrics.items()}
            self.channel.send("logged", step=self.position.step, metrics=values)

    def checkpoint(self) -> None:
        """A reference is run from its start to its end."""

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        if not self.wrapped.require_backward_grad_sync:
            return torch.zeros(())
        return torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_norm, norm_type)

    def report_epoch(self, epoch: int, seconds: float) -> None:
        """A reference is not timed."""

    def finish(self) -> None:
        dist.barrier()
        self.channel.send("finished" if self.is_main else "done", step=self.position.step, reason=self.stop_reason)
        _finished.append(self)
