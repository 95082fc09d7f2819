"""What is alive is found by its type, also what was set aside; and only that is left out of later looks."""

import gc
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

import springtide
from springtide.errors import JobError
from springtide.training.living_objects import bring_back, find_alive, is_schedule, set_aside
from springtide.training.run import forget_run


class Apart(nn.Module):
    """A module of which no other test has any."""


@pytest.fixture(autouse=True)
def nothing_aside() -> Iterator[None]:
    """As in a process that nobody has frozen."""
    gc.unfreeze()
    yield
    bring_back()
    gc.unfreeze()


def find_apart() -> list[Apart]:
    """All modules of that class."""
    return sorted(find_alive(lambda kind: kind is Apart), key=id)


def test_objects_are_found_while_they_live_whether_set_aside_or_made_since() -> None:
    before, going = Apart(), Apart()
    set_aside()
    assert gc.get_freeze_count() > 0
    after = Apart()
    assert find_apart() == sorted((before, going, after), key=id)
    del going
    assert find_apart() == sorted((before, after), key=id)
    bring_back()
    assert gc.get_freeze_count() == 0 and find_apart() == sorted((before, after), key=id)


def test_iterators_and_what_schedules_are_found_among_what_was_set_aside() -> None:
    iterator = iter(DataLoader(TensorDataset(torch.arange(4))))
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    set_aside()
    assert any(one is iterator for one in find_alive(lambda kind: issubclass(kind, _BaseDataLoaderIter)))
    found = find_alive(is_schedule)
    assert all(any(one is each for one in found) for each in (optimizer, schedule))


def test_what_a_script_brings_back_by_itself_is_found_once() -> None:
    one = Apart()
    set_aside()
    gc.unfreeze()
    assert find_apart() == [one]


def test_nothing_is_set_aside_where_a_fork_server_has_and_nothing_of_it_brought_back() -> None:
    gc.freeze()
    count, one = gc.get_freeze_count(), Apart()
    set_aside()
    bring_back()
    assert gc.get_freeze_count() > count // 2 and find_apart() == [one]  # some of it may have gone


class Counted(nn.Module):
    """A module that a script gives to nobody, with a buffer."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))


def walk(changed: Counted | None = None) -> Iterator[int]:
    """The steps of a run that is alone, with how many objects are set aside in each."""
    forget_run()
    run = springtide.init(logical_workers=2, seed=0)
    made = nn.Linear(1, 1)
    data = TensorDataset(torch.arange(12.0).reshape(-1, 1))
    model, optimizer, loader = run.prepare(made, torch.optim.SGD(made.parameters(), lr=0.1), data, batch_size=2)
    for _ in run.epochs(2):
        for step in loader:
            for (numbers,) in step:
                model(numbers).sum().backward()
                if changed is not None:
                    changed.count.add_(1)
            optimizer.step()
            optimizer.zero_grad()
            yield gc.get_freeze_count()


def test_a_run_sets_aside_where_its_loop_is_entered_and_brings_back_when_it_has_ended() -> None:
    counts = list(walk())
    assert len(counts) == 6 and all(counts) and gc.get_freeze_count() == 0
    forget_run()


def test_what_was_set_aside_is_looked_at_like_all_else() -> None:
    with pytest.raises(JobError, match=r"buffer 'count' of .* changed inside `for \.\.\. in step:`"):
        list(walk(Counted()))
    forget_run()
    assert gc.get_freeze_count() == 0
