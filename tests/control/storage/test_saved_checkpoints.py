"""Where several hosts write to a home, checkpoints say who wrote them: what is ordered, listed, opened and fetched."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import pytest
import torch
from tests.control.hand_clock import HandClockServer
from tests.training.state.test_checkpoints import FACTS, state_at

from springtide.control.executor_factory import open_executor
from springtide.control.scheduling.instructions import make_policy
from springtide.control.storage.job_outputs import list_kept, open_kept
from springtide.control.storage.saved_checkpoints import list_checkpoints, open_file, read_checkpoint
from springtide.control.storage.state_dir import StateDir
from springtide.executors.protocol import ExecutorNode
from springtide.executors.ray import ray_executor
from springtide.training.state.checkpoints import WEIGHTS, Checkpoints

JOB = "job"


def save(home: StateDir, generation: int, step: int, value: float = 1.0) -> Checkpoints:
    """Write a checkpoint as a start of the job."""
    checkpoints = Checkpoints(home.checkpoints(JOB), 5, generation)
    state = state_at(step)
    state["model"]["w"] = torch.full((3, 2), value)
    checkpoints.save(state, step, FACTS)
    checkpoints.wait()
    return checkpoints


@pytest.fixture
def home(tmp_path: Path) -> StateDir:
    """Checkpoints of before names had generations, of a start that was cut off, and of the one after it."""
    home = StateDir(tmp_path / "home").make()
    save(home, 0, 3)
    save(home, 4, 5, 4.0)
    save(home, 4, 9)
    save(home, 12, 5, 12.0)
    save(home, 12, 7)
    return home


def test_the_newest_start_comes_first_and_speaks_for_its_steps(home: StateDir) -> None:
    assert [one.step for one in list_checkpoints(home, JOB)] == [7, 5, 9, 3]
    (found,) = [one for one in list_checkpoints(home, JOB) if one.step == 5]
    assert found.name.startswith("step-000000005-g12-") and read_checkpoint(home, JOB, 5) == found
    assert read_checkpoint(home, JOB, 6) is None
    with open_file(home, JOB, found, WEIGHTS) as file:
        assert file.read() == (home.checkpoints(JOB) / found.name / WEIGHTS).read_bytes()


def test_the_files_of_a_job_are_under_the_names_that_are_on_disk(home: StateDir) -> None:
    listed = {one.path for one in list_kept(home, JOB, with_checkpoints=True).files}
    (newest,) = (home.checkpoints(JOB)).glob("step-000000007-g12-*")
    path = f"checkpoints/{newest.name}/{WEIGHTS}"
    assert {path, f"checkpoints/step-000000003/{WEIGHTS}"} <= listed
    with open_kept(home, JOB, PurePosixPath(path)).file as file:
        assert file.read() == (newest / WEIGHTS).read_bytes()


def test_a_start_has_a_number_for_its_checkpoints_where_several_hosts_write(tmp_path: Path) -> None:
    hand = HandClockServer(tmp_path)
    record = hand.submit(run="python train.py")
    alone, spread = (StateDir(hand.state_dir.root, several_hosts=several) for several in (False, True))
    assert make_policy(record, alone, None).generation == 0
    assert make_policy(record, spread, None).generation == record.generation + 1


class EmptyCluster:
    """A cluster of one host, without Ray."""

    def __init__(self, home: Path, address: str, devices: str | None, storage: str) -> None:
        self.home = home

    def nodes(self) -> Sequence[ExecutorNode]:
        return [ExecutorNode("h1", "cpu", ("h1/cpu:0",))]

    def shutdown(self) -> None:
        pass


def test_the_engine_says_whether_several_hosts_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_executor, "RayExecutor", EmptyCluster)
    home = StateDir(tmp_path)
    assert open_executor("ray", home, None).several_hosts and not open_executor("fake", home, "1").several_hosts
