"""What joiners are told: the state, whether a ring may add, and where turns are still to be looked at."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from springtide.training.group import rescale
from springtide.training.state.turn_memory import TurnMemory


def make_run(store: dist.Store, name: str) -> Any:
    """As much of a run as a change of hands needs."""
    return SimpleNamespace(
        name=name,
        store=store,
        backend="gloo",
        device=torch.device("cpu"),
        generation=3,
        memory=TurnMemory(),
        rings=name == "p0",
        settings=SimpleNamespace(collective_timeout_s=20.0),
        channel=SimpleNamespace(send=lambda *words, **facts: None),
        checkpoints=SimpleNamespace(generation=13 if name == "p0" else 1),
    )


@pytest.mark.parametrize("places", [[], ["fit:1f:20", "fit:1f:90"]])
def test_a_joiner_looks_at_turns_but_where_the_donor_has(places: list[str]) -> None:
    store = dist.HashStore()
    donor, joiner = make_run(store, "p0"), make_run(store, "p1")
    donor.memory.skip(places)
    state: dict[str, Any] = {"weights": torch.arange(4.0), "step": 7}
    with ThreadPoolExecutor() as threads:
        received = threads.submit(rescale.receive_state, joiner)
        rescale.send_state(donor, state, 3, ["p1"])
        found = received.result(timeout=30)
    assert found["step"] == 7
    assert torch.equal(found["weights"], state["weights"])
    assert joiner.memory.list_over() == places
    assert joiner.rings, "as the donor has heard from rank 0 of its start"
    assert joiner.checkpoints.generation == 13, "what it writes later counts as much as what the donor has written"
