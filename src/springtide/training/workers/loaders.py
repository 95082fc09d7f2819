"""The loader the user's loop walks: every batch of every logical worker that lives in this process, turn by turn.

Each batch arrives inside its worker's context. Between global steps the runtime gets its say (agreement, rescale,
checkpoint). Which samples form a batch is in `sampling`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, default_collate

from springtide.training.workers import sampling as samplings
from springtide.training.workers.sampling import SampleKey, Sampling, Seeded, Stream, Tensors

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun
    from springtide.training.run import PrepareOptions


class Loader:
    """Batches of this process's logical workers, in the order of their turns.

    `len(loader)` is the number of batches of one logical worker per epoch, which is what a schedule counts.
    """

    def __init__(self, run: "ElasticRun", dataset: Any, sampling: Sampling, options: "PrepareOptions") -> None:
        self.run = run
        self.dataset = dataset
        self.sampling = sampling
        self.options = options

    def __len__(self) -> int:
        return self.sampling.steps_per_epoch * self.sampling.accumulate

    def __iter__(self) -> Iterator[Any]:
        epoch = self.run.position.epoch
        order = samplings.epoch_order(self.sampling, epoch)
        if isinstance(self.dataset, Seeded):
            self.dataset.set_epoch(epoch)
        self.run.begin_epoch()
        try:
            while self.run.wants_step(self.sampling.steps_per_epoch):
                yield from self.walk(epoch, order)
        finally:
            self.run.leave_loop()

    def walk(self, epoch: int, order: torch.Tensor) -> Iterator[Any]:
        """Steps until the epoch ends or the roster changes, which makes the batches ahead other ones."""
        generation = self.run.generation
        batches = self.fetch(epoch, order, list(self.run.local))
        while self.run.generation == generation and self.run.wants_step(self.sampling.steps_per_epoch):
            for worker in list(self.run.local):
                self.run.begin_turn(worker)
                for micro in range(self.sampling.accumulate):
                    batch = next(batches)
                    self.run.turns.begin_batch(micro, self.sampling.accumulate)
                    yield batch
                self.run.end_turn(worker)
            self.run.end_step()

    def fetch(self, epoch: int, order: torch.Tensor, local: list[int]) -> Iterator[Any]:
        """The batches of these workers from the present position to the end of the epoch."""
        if isinstance(self.dataset, Stream):
            batches = self.dataset.batches(self.sampling, epoch, self.run.position.step_in_epoch, local)
            return (self.options.collate(batch) for batch in batches)
        plan = self.plan(order, local)
        if isinstance(self.dataset, Tensors) and self.options.collate is default_collate:
            return (self.dataset.batch(indices) for indices in plan)
        keys = ([SampleKey(epoch, index) for index in indices.tolist()] for indices in plan)
        if self.options.num_workers == 0:
            return (self.options.collate(self.dataset.__getitems__(batch)) for batch in keys)
        return iter(self.open_pool(list(keys)))

    def plan(self, order: torch.Tensor, local: list[int]) -> Iterator[torch.Tensor]:
        """Sample indices, batch by batch in the order of the turns."""
        accumulate = self.sampling.accumulate
        for step in range(self.run.position.step_in_epoch, self.sampling.steps_per_epoch):
            for worker in local:
                for micro in range(accumulate):
                    yield samplings.batch_indices(self.sampling, order, worker, step * accumulate + micro)

    def open_pool(self, batches: list[list[SampleKey]]) -> DataLoader[Any]:
        """DataLoader workers over these batches; their base seed comes from a generator of their own."""
        return DataLoader(
            self.dataset,
            batch_sampler=batches,
            num_workers=self.options.num_workers,
            prefetch_factor=self.options.prefetch_factor,
            collate_fn=self.options.collate,
            generator=torch.Generator(),
        )
