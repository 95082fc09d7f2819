"""What turns may change, and what not."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from springtide.errors import JobError
from springtide.training.positions import Position
from springtide.training.state.turn_guard import EPOCHS, FIRST, PARTS, TurnGuard
from springtide.training.state.turn_memory import TurnMemory
from springtide.training.workers.loader_iterators import IteratorWatch


def make_run(*models: torch.nn.Module) -> Any:
    parts: dict[str, Any] = {
        "models": models,
        "optimizers": [],
        "schedulers": [],
        "scalers": [],
        "kept": {},
        "state": {},
    }
    loader = SimpleNamespace(stream=SimpleNamespace(opening=(0, 7)), plans=SimpleNamespace(number=0))
    watches = {"memory": TurnMemory(), "iterators": IteratorWatch(), "position": Position()}
    return SimpleNamespace(**parts, **watches, loader=loader, device=torch.device("cpu"), group=None, compared=False)


def test_the_first_turn_of_an_epoch_reads_another_beginning_of_a_stream() -> None:
    guard, run = TurnGuard(), make_run()
    guard.begin(run)
    run.loader.stream.opening = (1, 8)
    guard.end(run)


def test_a_state_that_turns_change_is_refused() -> None:
    guard, run = TurnGuard(), make_run()
    guard.begin(run)
    run.state["seen"] = 1
    with pytest.raises(JobError, match=r"run\.state was changed inside"):
        guard.end(run)


def list_looks(run: Any, compared: list[bool]) -> list[bool]:
    """In which of these walks a guard whose time has come looks."""
    guard, looks = TurnGuard(), []
    for run.compared in compared:
        guard.due_s = 0.0
        guard.begin(run)
        looks.append(guard.before is not None)
    return looks


def test_several_processes_look_in_the_same_walks() -> None:
    """By its own clock each would look in another walk, and the others wait for it every time."""
    run = make_run()
    run.group = None
    assert list_looks(run, [False] * 4) == [True] * 4
    run.group = object()
    assert list_looks(run, [False] * 3 + [True, False]) == [True, True, False, True, False]


def test_the_first_walks_of_the_first_epochs_are_looked_at() -> None:
    guard, run = TurnGuard(), make_run()
    looks: list[int] = []
    for epoch in range(EPOCHS + 1):
        run.position = Position(epoch=epoch)
        guard.begin_epoch(run)
        for _ in range(FIRST + 1):
            guard.due_s = float("inf")
            guard.begin(run)
            looks += [epoch] if guard.before is not None else []
            guard.end(run)
    assert looks == [epoch for epoch in range(EPOCHS) for _ in range(FIRST)]


class Centre(torch.nn.Module):
    """A criterion with a centre of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(3))


def test_a_later_look_sees_what_belongs_to_no_model() -> None:
    guard, run, criterion = TurnGuard(), make_run(), Centre()
    guard.walks, guard.due_s = 9, 0.0
    run.memory.skip(["fit:1f:20"])
    guard.begin(run)
    assert run.memory.over == set(), "what is handed on is looked for as well"
    criterion.get_buffer("centre").add_(1)
    with pytest.raises(JobError, match="buffer 'centre' of criterion"):
        guard.end(run)


def test_a_look_after_the_first_epochs_warns_of_what_turns_may_set_anew() -> None:
    said: list[str] = []
    guard, run, teacher = TurnGuard(said.append), make_run(), torch.nn.Linear(2, 2)
    guard.walks, guard.due_s, run.position = 9, 0.0, Position(epoch=EPOCHS)
    guard.begin(run)
    teacher.weight.data.mul_(0.9)
    guard.end(run)
    assert len(said) == 1 and "parameter 'weight' of teacher (Linear)" in said[0]


def test_a_look_is_as_far_from_the_next_as_all_of_it_has_taken() -> None:
    guard, run = TurnGuard(), make_run()
    guard.begin(run)
    guard.end(run)
    before_s = guard.due_s
    guard.note(0.5)
    assert guard.due_s - before_s > 0.4 * PARTS
