"""An error on one process ends its peers, and is told once: with a store in one process, and under torchrun."""

import subprocess
import sys
import textwrap

import pytest

ALONE = """
    import os, sys, time
    import torch.distributed as dist
    from springtide.errors import PeerLostError
    from springtide.training.group.peers import FAILED_KEY, Peers

    store = dist.HashStore()
    over = []
    peers = Peers(store, "p1", lambda: bool(over))
"""
TRAINING = """
    import os
    import torch, springtide
    run = springtide.init(logical_workers=3, seed=0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.randn(96, 4), torch.randn(96, 1))
    model, optimizer, loader = run.prepare(model, optimizer, data, batch_size=4)
    for epoch in run.epochs(2):
        for step in loader:
            for x, y in step:
                (model(x) - y).square().mean().backward()
            if step.number == 2 and run.rank == 1:
                raise ValueError("no such file: labels.csv")
            optimizer.step()
            optimizer.zero_grad()
"""


def run_alone(lines: str) -> tuple[int, str]:
    """The code and the words of a process that has peers."""
    text = textwrap.dedent(ALONE) + textwrap.dedent(lines)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    return done.returncode, done.stderr


def test_an_error_is_left_for_the_others() -> None:
    code, said = run_alone(
        """
        import atexit
        atexit.register(lambda: print(store.get(FAILED_KEY).decode(), file=sys.stderr))
        raise ValueError("first\\nsecond")
        """
    )
    assert code == 1 and said.count("ValueError: first") == 2
    assert "p1\nValueError: first\nsecond" in said


def test_a_process_that_waits_ends_when_another_has_failed() -> None:
    code, said = run_alone('store.set(FAILED_KEY, "p0\\nValueError: no data\\nmore")\ntime.sleep(60)')
    assert code == 75
    assert said.strip() == "springtide: p1 ends because p0 has failed: ValueError: no data"


def test_a_lost_peer_is_explained_by_its_own_error() -> None:
    code, said = run_alone('store.set(FAILED_KEY, "p0\\nValueError: no data")\nraise PeerLostError("closed")')
    assert code == 1
    assert said.strip() == "springtide: p1 ends because p0 has failed: ValueError: no data"


def test_whoever_has_finished_does_not_care() -> None:
    code, said = run_alone('over.append(1)\nstore.set(FAILED_KEY, "p0\\nValueError: no data")\ntime.sleep(1)')
    assert (code, said) == (0, "")


def test_a_run_ends_when_all_have_ended_theirs() -> None:
    code, said = run_alone('store.add("ended/0", 2)\npeers.end_together(10, "0", 3, 60.0)\nover.append(1)')
    assert (code, said) == (0, "")


@pytest.mark.parametrize(("reached", "awaited"), [(10, 11), (9, 10)], ids=["takes a step", "acts after the step"])
def test_a_run_that_ends_where_another_goes_on_is_refused(reached: int, awaited: int) -> None:
    code, said = run_alone(
        f"""
        other = Peers(store, "p0", lambda: bool(over), lambda: {awaited})
        peers.end_together({reached}, "0", 2, 60.0)
        """
    )
    assert code == 1
    assert "JobError: p1 ended its run after step 5, and p0 takes the next one" in said


@pytest.mark.parametrize("awaited", [9, 10], ids=["takes its fifth step", "acts after it"])
def test_a_process_behind_is_waited_for(awaited: int) -> None:
    code, said = run_alone(
        f"""
        other = Peers(store, "p0", lambda: bool(over), lambda: {awaited})
        peers.end_together(10, "0", 2, 1.5)
        """
    )
    assert code == 1
    assert "PeerLostError: p1 ended its run, and another process did not within 1.5 s" in said
