"""What a process that joins gathers before its loop: the others wait for its loop, and nobody answers it."""

import re

import pytest
from tests.training.equality import SCRIPTS, EqualityRuns

from springtide.errors import TrainingError
from springtide.training.group.rosters import parse_size
from springtide.training.settings import Settings
from springtide.verification.digest_compare import Records, find_difference, read_records
from springtide.verification.scripted_jobs import ScriptedJob, ScriptedRun, follow

STEPS = 16


def run_baseline(
    equality: EqualityRuns, sizes: list[tuple[int, str]], *words: str, timeout_s: float = 10.0
) -> tuple[Records, ScriptedRun]:
    """The records and the closed run of the script under a schedule of sizes."""
    folder = equality.new_folder()
    settings = Settings(trace_dir=folder / "trace", collective_timeout_s=timeout_s)
    job = ScriptedJob(SCRIPTS / "baseline.py", words, folder, settings)
    run = follow(job, [(step, parse_size(size, 4)) for step, size in sizes], (), 120, equality.host)
    return read_records(folder / "trace"), run


def test_an_evaluation_before_the_loop_is_a_joiners_own(equality: EqualityRuns) -> None:
    """It met the others' gradients, and they began anew from the last checkpoint each time that the job grew."""
    wanted, _ = run_baseline(equality, [(0, "1")])
    found, run = run_baseline(equality, [(0, "1"), (3, "3"), (7, "2"), (10, "4")])
    assert len(found) == STEPS and find_difference(wanted, found) is None
    assert run.restarts.count == 0


def test_a_joiner_that_takes_long_before_its_loop_is_waited_for(equality: EqualityRuns) -> None:
    """The others, and a quicker joiner, lost it in their first reduction: the job began anew at each growth."""
    wanted, _ = run_baseline(equality, [(0, "1")])
    found, run = run_baseline(equality, [(0, "1"), (3, "3")], "slow", timeout_s=4.0)
    assert run.restarts.count == 0
    assert len(found) == STEPS and find_difference(wanted, found) is None


@pytest.mark.parametrize(("word", "what"), [("sum", "run.sum or run.mean"), ("sharded", "a sharded model")])
def test_what_takes_all_processes_is_refused_before_a_joiners_loop(
    equality: EqualityRuns, word: str, what: str
) -> None:
    _, run = run_baseline(equality, [(0, "2")], word)
    assert run.restarts.count == 0
    with pytest.raises(TrainingError, match=re.escape(f"{what} was called between run.prepare and the loop")):
        run_baseline(equality, [(0, "1"), (3, "2")], word)
