"""What turns may change, and what not."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from springtide.errors import JobError
from springtide.training.state.turn_guard import TurnGuard


def make_run() -> Any:
    parts: dict[str, Any] = {"models": [], "optimizers": [], "schedulers": [], "scalers": [], "kept": {}, "state": {}}
    loader = SimpleNamespace(stream=SimpleNamespace(opening=(0, 7)), plans=SimpleNamespace(number=0))
    return SimpleNamespace(**parts, loader=loader, device=torch.device("cpu"), group=None, compared=False)


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
