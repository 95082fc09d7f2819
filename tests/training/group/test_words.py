"""What rank 0 says about a boundary reaches all: with the reduction, by itself where none is, and with every walk."""

import pytest
import torch
from tests.training.equality import SCRIPTS, EqualityRuns

from springtide.training.group.agreement import Action
from springtide.training.group.rosters import parse_size
from springtide.training.group.words import VERDICT_SIZE, Verdict, read_verdict, write_verdict
from springtide.training.settings import Settings
from springtide.training.workers.buffers import Buffers
from springtide.verification.digest_compare import Records, find_difference, read_records
from springtide.verification.scripted_jobs import ScriptedJob, follow

UNEVEN = SCRIPTS / "uneven.py"
STEPS = 10


def test_a_verdict_is_what_was_written() -> None:
    verdict = Verdict(Action.RESCALE | Action.COMPARE, 7, (2, 2**32 - 1), (3, 4, 2**40))
    place = torch.zeros(VERDICT_SIZE, dtype=torch.int64)
    write_verdict(verdict, place)
    assert read_verdict(place) == verdict


@pytest.mark.parametrize("model", [torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(3)], ids=["no buffers", "buffers"])
def test_a_word_lies_behind_the_buffers_and_leaves_them_alone(model: torch.nn.Module) -> None:
    buffers = Buffers(model, broadcasting=True, word_size=VERDICT_SIZE)
    before = [view.clone() for view in buffers.coming.views]
    buffers.coming.word.fill_(-1)
    assert buffers.coming.word.numel() == VERDICT_SIZE
    assert all(torch.equal(view, was) for view, was in zip(buffers.coming.views, before, strict=True))
    assert buffers.coming.whole.numel() == buffers.coming.flat.numel() + 8 * VERDICT_SIZE


def run_uneven(equality: EqualityRuns, sizes: list[tuple[int, str]]) -> tuple[list[dict[str, float]], Records]:
    """What was logged under a schedule of sizes, and the records."""
    folder = equality.new_folder()
    job = ScriptedJob(UNEVEN, (), folder, Settings(trace_dir=folder / "trace"))
    run = follow(job, [(step, parse_size(size, 4)) for step, size in sizes], (), 120, equality.host)
    logged = [event["metrics"] for event in run.events if event["event"] == "logged"]
    return logged, read_records(folder / "trace")


def test_steps_that_are_passed_over_and_walked_twice_have_their_boundaries(equality: EqualityRuns) -> None:
    still, wanted = run_uneven(equality, [(0, "1")])
    # Rescales at the boundary of a step without a walk, of one with two, and of the one between the epochs.
    moved, found = run_uneven(equality, [(0, "3"), (3, "1"), (4, "4"), (5, "2"), (8, "3")])
    assert [sorted(one) for one in still[:4]] == [["first"], ["first"], ["first", "second"], ["first"]]
    assert moved == still and len(still) == STEPS - 2
    assert find_difference(wanted, found) is None


@pytest.mark.parametrize("size", ["1", "3"])
@pytest.mark.parametrize(
    ("how", "steps"),
    [
        ("all, and leave", 3),
        ("left, then all", 3),
        ("first process", 4),
        ("second walk", 4),
        ("left in the last epoch", 8),
    ],
)
def test_a_stop_ends_all_processes_after_the_same_step(equality: EqualityRuns, how: str, steps: int, size: str) -> None:
    """Checkpoints are due at every step, so that all have something to do together at each boundary."""
    folder = equality.new_folder()
    settings = Settings(checkpoint_dir=folder / "checkpoints", checkpoint_every_steps=1)
    job = ScriptedJob(SCRIPTS / "stopping.py", (how,), folder, settings)
    run = follow(job, [(0, parse_size(size, 4))], (), 60, equality.host)
    assert [event["step"] for event in run.events if event["event"] == "finished"] == [steps]
    assert run.restarts.count == 0
