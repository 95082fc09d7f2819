"""What is told of a job that has given its devices back: by its checkpoints, not by its last words."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from springtide.executors.local.jobs.checkpoint_folder import CheckpointFolder
from springtide.executors.local.jobs.job_reports import LEFT_S, JobReports
from springtide.executors.local.jobs.progress import AttemptProgress
from springtide.executors.local.jobs.runner import JobRunner
from springtide.executors.local.journal import AssignedJob
from springtide.executors.local.processes.worker_processes import WorkerProcess
from springtide.executors.protocol import Cancel, CheckpointPolicy, JobSpec, Lagging, Start, Stopped

SPEC = JobSpec(("python", "train.py"), "", CheckpointPolicy(""), "", "")


def stop(spec: JobSpec, seen: int, stepped: bool = True, terminated: bool = True) -> Stopped:
    """What is told of a job that said 20 steps, of which its checkpoints show `seen`."""
    nobody: Any = None
    order = Start(job="job", generation=1, key="k", spec=spec, devices=())
    assigned = AssignedJob(order, 1, (), Cancel(job="job", generation=2, key="c"))
    progress = AttemptProgress(0.0, step=20, stepped_s=1.0 if stepped else None, terminated=terminated)
    reports = JobReports(nobody, lambda: {"job": "job", "generation": 2})
    return reports.make_stopped(assigned, "cancelled", progress, seen)


@pytest.mark.parametrize(
    ("seen", "terminated", "expected"),
    [
        (20, True, (20, True, 0)),
        (20, False, (20, False, 0)),  # killed: it may have made steps that it had not told yet
        (12, True, (12, False, 8)),  # its last checkpoint could not be written
        (-1, False, (0, False, 20)),
    ],
)
def test_what_is_saved_is_what_lies_there(seen: int, terminated: bool, expected: tuple[int, bool, int]) -> None:
    told = stop(SPEC, seen, terminated=terminated)
    assert (told.step, told.clean, told.lost) == expected and told.cancelled


def test_a_start_that_made_no_step_has_lost_none_and_is_where_its_checkpoints_are() -> None:
    told = stop(SPEC, 12, stepped=False, terminated=False)
    assert (told.step, told.clean, told.lost) == (12, True, 0)


def test_a_step_in_object_storage_counts_though_its_receipt_lies_on_another_host() -> None:
    known = replace(SPEC, checkpoint=CheckpointPolicy("", url="s3://bucket/folder", saved_step=15))
    assert (stop(known, -1).step, stop(known, -1).lost) == (15, 5)


@pytest.mark.parametrize("terminated", [True, False])
def test_of_a_gang_which_saves_what_it_likes_its_word_is_taken(terminated: bool) -> None:
    told = stop(replace(SPEC, elastic=False), -1, terminated=terminated)
    assert (told.step, told.clean, told.lost) == (20, terminated, 0)


@pytest.mark.parametrize(("terminated", "expected"), [(True, (20, True, 0)), (False, (12, False, 8))])
def test_a_folder_that_does_not_answer_is_no_lost_work(
    monkeypatch: pytest.MonkeyPatch, terminated: bool, expected: tuple[int, bool, int]
) -> None:
    def fail(_self: CheckpointFolder) -> None:
        raise TimeoutError(0, "it took too long")

    monkeypatch.setattr(CheckpointFolder, "find_newest", fail)
    folder, nobody = CheckpointFolder(Path("gone")), None
    folder.seen = 12
    runner: Any = SimpleNamespace(
        assigned=AssignedJob(Start(job="job", generation=1, key="k", spec=SPEC, devices=()), 1, (), None),
        progress=AttemptProgress(0.0, step=20, stepped_s=1.0, terminated=terminated),
        reports=JobReports(nobody, lambda: {"job": "job", "generation": 2}),  # type: ignore[arg-type]
        checkpoints=folder,
        leaving="",
    )
    told = JobRunner.make_stopped(runner)
    assert (told.step, told.clean, told.lost) == expected


def test_processes_that_were_killed_and_do_not_end_are_told_once() -> None:
    """The job waits for them for ever, and must: nobody said so, it was `recovering`."""
    told: list[Any] = []
    reports = JobReports(SimpleNamespace(emit=told.append), lambda: {"job": "job", "generation": 2})  # type: ignore[arg-type]
    left = [WorkerProcess("p0", "h1/cpu:0")]
    attempt: Any = SimpleNamespace(overdue_s=None, processes=SimpleNamespace(alive=lambda: left))
    for now_s in (100.0, 100.0 + LEFT_S / 2):
        reports.report_left(attempt, now_s)
    assert told == []
    for now_s in (100.0 + LEFT_S, 100.0 + 2 * LEFT_S):
        reports.report_left(attempt, now_s)
    (warned,) = told
    assert "process p0 on h1/cpu:0 was killed 30 s ago and has not ended" in warned.reason


def test_that_nobody_lags_any_more_is_told_whatever_else_was_said() -> None:
    told: list[Any] = []
    reports = JobReports(SimpleNamespace(emit=told.append), lambda: {"job": "job", "generation": 2})  # type: ignore[arg-type]
    over = Lagging(job="job", generation=2, device="", factor=1.0)
    reports.report_lagging(over)
    assert told == [], "nothing was reported that it would take back"
    reports.report_lagging(replace(over, device="cpu:1", factor=3.0))
    for number in range(300):
        reports.warn(str(number))
    reports.report_lagging(over)
    reports.report_lagging(over)
    assert told.count(over) == 1 and told[-1] == over
