"""Tensors and queues that turns change where they are: refused or told, and left alone where a turn sets them anew."""

from collections import deque
from collections.abc import Callable

import pytest
import torch
from tests.training.state.test_turn_memory import WEIGHT, Walk

from springtide.errors import JobError
from springtide.training.state.turn_memory import TurnMemory


def fill_a_bank(walk: Walk) -> None:
    bank = torch.zeros(4)
    for x in walk:
        ((x + bank) * WEIGHT).sum().backward()
        bank[:2] = bank[:2] + 1


def decay_a_bank(walk: Walk) -> None:
    bank = torch.ones(4)
    for x in walk:
        bank.mul_(0.9)
        ((x + bank) * WEIGHT).sum().backward()


def push_into_a_queue(walk: Walk) -> None:
    queue = deque([torch.zeros(4)] * 2, maxlen=2)
    for x in walk:
        queue.append(x + queue[0] + 1)
        (torch.stack(list(queue)) * WEIGHT).sum().backward()


@pytest.mark.parametrize("script", [fill_a_bank, decay_a_bank, push_into_a_queue])
def test_what_turns_change_in_place_and_read_is_refused(script: Callable[[Walk], None]) -> None:
    with pytest.raises(JobError, match=r"`(bank|queue)` is changed in place in every turn.*step\.worker\.state"):
        script(Walk())


class Bank:
    """An object of the script with rows that its turns fill."""

    def __init__(self) -> None:
        self.rows = torch.zeros(4)

    def find_loss(self, x: torch.Tensor) -> torch.Tensor:
        return ((x + self.rows) * WEIGHT).sum()

    def fill(self, x: torch.Tensor) -> None:
        self.rows += x


def fill_in_an_object(walk: Walk) -> None:
    bank = Bank()
    for x in walk:
        bank.find_loss(x).backward()
        bank.rows[0] += 1


def keep_the_last_in_a_list(walk: Walk) -> None:
    last = [torch.zeros(4)]
    for x in walk:
        last.append(x + last[0] + 1)
        last.pop(0)
        (last[0] * WEIGHT).sum().backward()


@pytest.mark.parametrize("script", [fill_in_an_object, keep_the_last_in_a_list])
def test_what_may_be_handed_on_is_told(script: Callable[[Walk], None]) -> None:
    walk, said = Walk(), list[str]()
    walk.memory = TurnMemory(said.append)
    script(walk)
    assert [one for one in said if "is changed in place in every turn" in one]


def mask_anew(walk: Walk) -> None:
    mask = torch.zeros(4)
    for x in walk:
        mask.bernoulli_(0.5)
        (x * mask * WEIGHT).sum().backward()


def collect_outputs(walk: Walk) -> None:
    outputs, places = [torch.zeros(4)], torch.zeros(4)
    for x in walk:
        out = x * WEIGHT
        outputs.append(out)
        outputs[-1].sum().backward()
        places[0] += out.detach()[0]


def mark_as_done(walk: Walk) -> None:
    done, table = torch.zeros(4, dtype=torch.bool), torch.ones(4)
    for x in walk:
        if not done.all():
            done[int(done.sum())] = True
        (x * table * WEIGHT).sum().backward()


@pytest.mark.parametrize("script", [mask_anew, collect_outputs, mark_as_done])
def test_what_is_set_anew_collected_or_only_shown_is_left_alone(script: Callable[[Walk], None]) -> None:
    walk, said = Walk(), list[str]()
    walk.memory = TurnMemory(said.append)
    script(walk)
    assert said == []
