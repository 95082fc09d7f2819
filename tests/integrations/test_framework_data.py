"""Data as scripts under frameworks give them: samplers of their own, orders that are drawn, what is predicted."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.integrations.installed import need
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, SubsetRandomSampler, WeightedRandomSampler

from springtide.errors import JobError
from springtide.training.settings import Settings
from springtide.training.workers.contexts import Contexts

pytestmark = pytest.mark.filterwarnings("ignore")
RANKS = 3


def make_run(workers: int = RANKS) -> Any:
    """A run of one process with so many logical workers, as far as data are concerned."""
    contexts = Contexts()
    contexts.seed(range(workers), 0)
    turns = SimpleNamespace(contexts=contexts, worker=None)
    return SimpleNamespace(
        logical_workers=workers,
        local=list(range(workers)),
        turns=turns,
        prepared=True,
        entered=True,
        settings=Settings(),
        exchange=lambda own: [own],
    )


def cut(loader: Any, rank: int, shuffle: bool = True) -> Any:
    """A loader as Lightning cuts it for a rank."""
    from lightning.fabric.utilities.distributed import DistributedSamplerWrapper

    sampler = DistributedSamplerWrapper(loader.sampler, num_replicas=RANKS, rank=rank, shuffle=shuffle)
    return DataLoader(loader.dataset, batch_size=loader.batch_size, sampler=sampler)


@pytest.mark.parametrize("kind", ["weighted", "subset"])
def test_a_logical_worker_has_the_samples_of_its_rank_from_a_sampler_of_the_scripts(kind: str) -> None:
    """Lightning cuts what the sampler gives; we cut the places 0, 1, 2, ... of the dataset."""
    need("lightning")
    from springtide.integrations.lightning.sampled_data import SampledData

    weights = [0.0] * 50 + [1.0] * 50
    samplers: Any = {"weighted": WeightedRandomSampler(weights, 24), "subset": SubsetRandomSampler(range(60, 84))}
    whole: Any = DataLoader(range(100), batch_size=4, sampler=samplers[kind])  # type: ignore[arg-type]
    data = SampledData(cut(whole, 0), 0)
    for rank in range(RANKS):
        torch.manual_seed(7)
        ours = list(data.part(rank))
        assert all(index >= 50 for batch in ours for index in batch)
        torch.manual_seed(7)
        assert ours == list(cut(whole, rank).batch_sampler)


def test_samplers_that_cannot_be_found_again_are_refused() -> None:
    need("lightning")
    from springtide.integrations.lightning.sampled_data import SampledData

    own: Any = WeightedRandomSampler([1.0] * 10, 10, generator=torch.Generator())
    with pytest.raises(JobError, match="WeightedRandomSampler draws from a generator of its own"):
        SampledData(cut(DataLoader(range(10), sampler=own), 0), 0)  # type: ignore[arg-type]

    class Mine(DistributedSampler[Any]):
        """One that cuts by itself."""

    mine: Any = Mine(range(10), RANKS, 0)  # type: ignore[arg-type]
    with pytest.raises(JobError, match="sampler Mine cuts the data for ranks by itself"):
        SampledData(DataLoader(range(10), sampler=mine), 0)  # type: ignore[arg-type]


def test_an_evaluation_walks_what_its_sampler_has_and_nothing_else() -> None:
    """It walked the whole dataset: a split into training and validation by two samplers was undone."""
    need("lightning")
    from springtide.integrations.lightning.whole_data import draw_as_ranks, make_whole

    held: Any = DataLoader(range(100), batch_size=4, sampler=SubsetRandomSampler([3, 5, 50, 71]))  # type: ignore[arg-type]
    whole = make_whole(cut(held, 0, shuffle=False), 0)
    walks = []
    for seed in (1, 2):  # the same on every process, whatever it has drawn
        torch.manual_seed(seed)
        walks.append([int(index) for batch in whole for index in batch])
    assert walks[0] == walks[1] and sorted(walks[0]) == [3, 5, 50, 71]
    run = make_run(1)
    draw_as_ranks(run, whole)
    torch.manual_seed(0)
    torch.empty((), dtype=torch.int64).random_()
    list(held.sampler)
    assert torch.equal(run.turns.contexts.states[0].cpu, torch.default_generator.get_state())


def test_a_loader_that_is_walked_in_a_turn_draws_what_its_rank_would() -> None:
    """It drew nothing, and the worker's dropout after it was another than the rank's."""
    need("lightning")
    from springtide.integrations.lightning.elastic_fabric import WholeLoader
    from springtide.integrations.lightning.whole_data import make_whole

    held: Any = DataLoader(range(8), batch_size=4, sampler=DistributedSampler(range(8), RANKS, 0, shuffle=False))  # type: ignore[arg-type]
    loader = WholeLoader(run := make_run(), make_whole(held, 0))
    run.turns.worker = 1
    torch.manual_seed(3)
    assert [int(place) for batch in loader for place in batch] == list(range(8))
    after = torch.default_generator.get_state()
    torch.manual_seed(3)
    list(held)
    assert torch.equal(torch.default_generator.get_state(), after)


def test_batch_samplers_of_evaluations_are_made_whole_or_refused() -> None:
    need("lightning")
    from springtide.integrations.lightning.whole_data import make_whole

    class Pairs(BatchSampler):
        """One of the user's."""

    class Hidden:
        """One that does not show what it was given."""

        def __init__(self, sampler: Any) -> None:
            self.batches = [[index] for index in sampler]

        def __iter__(self) -> Any:
            return iter(self.batches)

    part: Any = DistributedSampler(range(9), RANKS, 1, shuffle=False)  # type: ignore[arg-type]
    pairs: Any = DataLoader(range(9), batch_sampler=Pairs(part, 2, False))  # type: ignore[arg-type]
    assert [int(index) for batch in make_whole(pairs, 0) for index in batch] == list(range(9))
    with pytest.raises(JobError, match=r"batch sampler Hidden of evaluation data .* would be lost"):
        make_whole(DataLoader(range(9), batch_sampler=Hidden(part)), 0)  # type: ignore[arg-type]


def test_an_order_that_is_drawn_is_one_for_all_ranks_of_a_process() -> None:
    """Each logical worker drew an order of its own: samples came twice, and others never."""
    need("accelerate")
    from accelerate.data_loader import prepare_data_loader

    from springtide.integrations.eval_walk import walk_parts

    loader: Any = DataLoader(range(12), batch_size=2, shuffle=True)  # type: ignore[arg-type]
    shard = prepare_data_loader(loader, num_processes=RANKS, process_index=0)
    walks = [[int(place) for batch in walk_parts(make_run(), shard) for place in batch] for _ in range(2)]
    assert [sorted(walk) for walk in walks] == [list(range(12))] * 2
    assert walks[0] != walks[1]  # as an order is drawn anew in every walk


def test_objects_are_gathered_as_accelerate_gathers_them() -> None:
    """Words came out as a list of lists, and empty ones before the round's last batch."""
    need("accelerate")
    from accelerate.data_loader import prepare_data_loader

    from springtide.integrations.accelerate.elastic_accelerator import is_of_tensors
    from springtide.integrations.eval_rounds import EvalRounds

    loader: Any = DataLoader(range(10), batch_size=2)  # type: ignore[arg-type]
    run = make_run()
    run.roster = SimpleNamespace(counts=[RANKS])
    rounds = EvalRounds(run, prepare_data_loader(loader, num_processes=RANKS, process_index=0), SimpleNamespace())
    words = []
    for places in rounds:
        own = [str(int(place)) for place in places]
        assert is_of_tensors(places) and not is_of_tensors(own)
        words += rounds.gather(own, as_objects=True)
    assert words == [str(place) for place in range(10)]


def test_a_sampler_that_remembers_is_refused_where_its_worker_moves() -> None:
    from springtide.integrations.worker_feeds import WorkerData, WorkerFeed
    from springtide.training.workers.contexts import LogicalWorker

    class Counting(WorkerData):
        """Data whose order depends on how often it was asked for."""

        asked = 0

        def set_epoch(self, epoch: int) -> None: ...

        def part(self, worker: int) -> Any:
            self.asked += 1
            return [[self.asked]]

    worker = LogicalWorker(0)
    data = Counting(DataLoader(range(4)), 0)  # type: ignore[arg-type]
    feed = WorkerFeed(data, worker, 0, None)  # type: ignore[arg-type]
    feed.begin(0)
    with pytest.raises(JobError, match="worker 0 moved in epoch 0, and the sampler gave it other batches"):
        feed.go_on(0)


def test_persistent_workers_draw_one_seed() -> None:
    """A DataLoader with persistent workers draws a seed where they are started, and no other."""
    need("lightning")
    from springtide.integrations.lightning.sampled_data import SampledData

    for persistent, draws in ((True, 1), (False, 2)):
        sampler: Any = DistributedSampler(range(8), 2, 0)  # type: ignore[arg-type]
        loader: Any = DataLoader(range(8), sampler=sampler, num_workers=1, persistent_workers=persistent)  # type: ignore[arg-type]
        data = SampledData(loader, 0)
        torch.manual_seed(3)
        expected = [torch.empty((), dtype=torch.int64).random_() for _ in range(draws)]
        after = torch.default_generator.get_state()
        torch.manual_seed(3)
        for epoch in range(2):
            data.draw_seed(epoch)
        assert torch.equal(torch.default_generator.get_state(), after), expected


@pytest.mark.parametrize(("device", "found"), [(torch.device("meta"), "meta"), (None, "cpu")])
def test_training_batches_are_on_the_device_of_the_prepared_loader(device: Any, found: str) -> None:
    """As `accelerate` has them: the script's model is there. Without device placement they stay where they are."""
    need("accelerate")
    from accelerate.data_loader import prepare_data_loader

    from springtide.integrations.accelerate.elastic_accelerator import ElasticAccelerator
    from springtide.integrations.updates import UpdateLoader

    data: Any = DataLoader([torch.ones(2)] * 12, batch_size=2)  # type: ignore[arg-type]
    shard = prepare_data_loader(data, device, num_processes=RANKS, process_index=0, put_on_device=device is not None)
    batch = {"x": torch.ones(2), "more": [torch.zeros(2), "a text"]}
    accelerator: Any = SimpleNamespace(updates=UpdateLoader(shard, 1, lambda loader: iter(())))
    placed = ElasticAccelerator.place_batch(accelerator, batch)
    assert str(placed["x"].device) == str(placed["more"][0].device) == found


class Turns:
    """A framework, and a step in which two logical workers take turns."""

    index, number = 1, 5
    epochs_call = "trainer.walk"

    def __init__(self, in_epoch: bool = True) -> None:
        position = SimpleNamespace(epoch=0, step_in_epoch=1)
        self.run = SimpleNamespace(rank=0, position=position, in_epoch=in_epoch)
        self.worker = SimpleNamespace(rank=0)
        self.told: list[Any] = []

    def __iter__(self) -> Any:
        for self.worker.rank in (0, 1):
            yield None

    def show_worker(self, rank: int) -> None:
        self.told.append(rank)

    def tell_more(self, has_more: bool) -> None:
        self.told.append(has_more)

    def place_batch(self, batch: Any) -> Any:
        return f"placed {batch}"


def walk_updates(batches: int, accumulate: int, in_epoch: bool = True) -> tuple[Turns, list[Any]]:
    """The last update of an epoch with so many batches, which two logical workers have here."""
    from springtide.integrations.updates import ElasticUpdates, UpdateLoader

    turns = Turns(in_epoch)
    numbers = iter(range(100))
    feed = SimpleNamespace(take=lambda: next(numbers))
    feeds: Any = SimpleNamespace(follow=lambda epoch, taken: None, feeds=[feed, feed])
    updates = ElasticUpdates(turns, [turns], feeds)
    return turns, list(UpdateLoader(range(batches), accumulate, updates.walk))


def test_an_update_has_the_batches_that_each_worker_accumulates() -> None:
    """It says of each whether more come; where it is walked again they are the same, as those of a rank would be."""
    turns, (update,) = walk_updates(4, 2)
    found = [(batch, update.has_more) for batch in update]
    assert found == [("placed 0", True), ("placed 1", False), ("placed 2", True), ("placed 3", False)]
    assert turns.told == [0, 0, 0, True, False, 1, True, False, 0]
    assert [batch for batch in update] == [batch for batch, _ in found]
    assert list(update.enumerate(10))[1] == (13, "placed 1")
    _, (last,) = walk_updates(3, 2)
    assert [(batch, last.has_more) for batch in last] == [("placed 0", False), ("placed 1", False)]


def test_an_update_that_is_taken_for_a_batch_is_refused() -> None:
    """`for x, y in loader`, as before springtide: with two logical workers it gave their two batches as x and y."""
    _, (update,) = walk_updates(4, 2)
    with pytest.raises(JobError, match=r"outside trainer\.walk\(n\); write `for epoch in trainer\.walk\(n\):`"):
        walk_updates(4, 2, in_epoch=False)
    with pytest.raises(JobError, match=r"was unpacked, as if it were a batch"):
        _x, _y = update
    with pytest.raises(JobError, match=r"was indexed, as if it were a batch"):
        update["input_ids"]
