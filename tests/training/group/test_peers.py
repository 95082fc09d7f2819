"""An error on one process ends its peers, and is told once: with a store in one process, and under torchrun."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch.distributed as dist

from springtide.training.group.peers import Peers

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


ASKING = """
    import sys
    import torch, springtide
    run = springtide.init(logical_workers=2, seed=0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.randn(48, 4), torch.randn(48, 1))
    model, optimizer, loader = run.prepare(model, optimizer, data, batch_size=4)
    where = sys.argv[1]
    for epoch in run.epochs(2):
        for step in loader:
            losses = []
            for x, y in step:
                losses.append((model(x) - y).square().mean())
                losses[-1].backward()
                if where == "logged":
                    run.log(loss=losses[-1])
            if run.is_main and step.number == 2 and where in ("mean", "logged"):
                print(run.mean(losses))
            if where == "all":
                assert float(run.mean(losses)) >= 0
            optimizer.step()
            optimizer.zero_grad()
        if run.is_main and where == "end" and epoch == 1:
            print(run.shard(torch.utils.data.DataLoader(data)).gather([]))
        if run.is_main and where == "epoch" and epoch == 0:
            print(run.mean(losses))
"""


@pytest.mark.parametrize("where", ["mean", "logged", "end"])
def test_a_call_on_one_process_only_is_told_within_seconds(where: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(ASKING))
    began_s = time.monotonic()
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(script), where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert "JobError: p0 waits in run.mean, run.sum or shard.gather after step" in done.stderr
    assert "p1 has gone on without that call" in done.stderr or where == "end"
    assert time.monotonic() - began_s < 55, "which is less than the time-out of a collective"


@pytest.mark.parametrize("where", ["epoch", "end"])
def test_a_call_on_one_process_only_is_told_where_a_checkpoint_is_due(where: str, tmp_path: Path) -> None:
    """It is taken at the start of the next epoch, after the call; whoever waited there was said not to have gone on."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(ASKING))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(script), where]
    saving = {"SPRINGTIDE_CHECKPOINT_DIR": str(tmp_path / "saved"), "SPRINGTIDE_CHECKPOINT_EVERY_STEPS": "6"}
    began_s = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env={**os.environ, **saving})
    assert done.returncode != 0
    step = 6 if where == "epoch" else 12
    assert f"JobError: p0 waits in run.mean, run.sum or shard.gather after step {step}, and p1 has" in done.stderr
    assert time.monotonic() - began_s < 55, "which is less than the time-out of a collective"


def test_a_call_on_all_processes_is_nothing_to_tell(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(ASKING))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(script), "all"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_calls_are_counted_by_generation() -> None:
    """Whoever has joined has made none of those before, and an old word is of an old generation."""
    store, generation = dist.HashStore(), [1]
    first = Peers(store, "p0", lambda: True, find_generation=lambda: generation[0])
    other = Peers(store, "p1", lambda: True, find_generation=lambda: generation[0])
    with first.ask(5):
        first.asking = 0.0, 5
        first.tell_asking()
        assert "p0 waits in run.mean" in other.find_asking(7)
        assert other.find_asking(5) == "" and other.find_asking(-1) == "" and first.find_asking(7) == ""
        with other.ask(5):
            assert other.find_asking(7) == ""
    generation[0] = 2
    assert Peers(store, "p2", lambda: True, find_generation=lambda: generation[0]).find_asking(9) == ""
