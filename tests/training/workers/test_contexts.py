"""Logical workers' contexts: random state of their own, the user's state, and the way to another process."""

import torch

from springtide.training.state import state_tree
from springtide.training.workers.contexts import Contexts

CPU = torch.device("cpu")


def make_contexts(workers: list[int]) -> Contexts:
    """Fresh contexts."""
    contexts = Contexts()
    contexts.seed(workers, seed=3)
    return contexts


def draw(contexts: Contexts, worker: int) -> float:
    """A number that a worker draws in its turn."""
    contexts.enter(worker)
    number = torch.rand(1).item()
    contexts.exit()
    return number


def test_each_worker_draws_its_own_whoever_comes_between() -> None:
    alone = [draw(make_contexts([1]), 1)]
    contexts = make_contexts([0, 1])
    mixed = [draw(contexts, worker) for worker in (0, 1, 0, 1)]
    assert mixed[1] == alone[0] and len(set(mixed)) == 4


def test_turns_leave_the_process_s_own_random_state_alone() -> None:
    contexts = make_contexts([0, 1])
    torch.manual_seed(7)
    wanted = torch.rand(1).item()
    torch.manual_seed(7)
    draw(contexts, 0)
    draw(contexts, 1)
    assert torch.rand(1).item() == wanted


def test_a_worker_that_moves_takes_its_state_along() -> None:
    here, there = make_contexts([0, 1]), make_contexts([2])
    here.workers[1].state["hidden"] = torch.ones(2)
    draw(here, 1)
    plain = here.to_plain([0, 1]) | there.to_plain([2])
    there.from_plain(plain, [1, 2], CPU)
    assert sorted(there.workers) == sorted(there.states) == [1, 2]
    assert torch.equal(there.workers[1].state["hidden"], torch.ones(2)) and there.workers[1].rank == 1
    assert draw(there, 1) == draw(here, 1)


def test_what_is_handed_over_is_not_shared() -> None:
    contexts = make_contexts([0])
    plain = contexts.to_plain([0])
    contexts.workers[0].state["count"] = 1
    assert plain[0]["state"] == {}


def test_what_a_worker_has_on_an_accelerator_is_on_one_again_and_the_rest_on_the_cpu() -> None:
    accelerator = torch.device("meta")  # stands for one
    contexts = make_contexts([0])
    contexts.workers[0].state |= {"hidden": [torch.empty(2, device=accelerator), 7], "random": torch.ones(2)}
    text, tensors = state_tree.take_apart(contexts.to_plain([0]))
    # as it is read from disk, or comes from another process
    plain = state_tree.put_together(text, {path: torch.zeros_like(one, device=CPU) for path, one in tensors.items()})
    plain[0]["rng"] = contexts.to_plain([0])[0]["rng"]
    contexts.from_plain(plain, [0], accelerator)
    state = contexts.workers[0].state
    assert state["hidden"][0].device == accelerator and state["hidden"][1] == 7
    assert state["random"].device == CPU
    del plain[0]["placed"]  # as earlier versions saved it
    contexts.from_plain(plain, [0], accelerator)
