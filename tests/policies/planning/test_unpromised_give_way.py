"""Jobs without a promise are never why one is broken: cases found by a search over random workloads, then cut down.

In all of them a job whose plan pays for no move was moved, because an unpromised job wanted its place.
"""

from math import inf

import pytest
from tests.policies.planning.test_admission import Row, sketch_all
from tests.policies.replays import build_jobs, run

from springtide.core.decisions import JobView, Progress, Status
from springtide.core.jobs import FREE, Job, JobId, Overhead
from springtide.policies.planning.best_effort import keep_held
from springtide.policies.springtide import springtide

TEN, SEVEN, SLOW_START = Overhead(base_s=10.0), Overhead(7.0, 2.0), Overhead(2.0, 2.0, start_s=20.0)
POWERS = {1: 1.0, 2: 1.9, 4: 3.5, 8: 6.0}
FLAT = {1: 1.0, 2: 1.3, 4: 1.4}
ODD = {1: 1.0, 2: 1.8, 3: 2.5, 5: 3.5, 6: 3.9}
PAIRS = {2: 1.0, 4: 1.9}
RIGID = {1: 1.0}

A_BEST_EFFORT_JOB_COMES: list[Row] = [
    (40.0, 296, inf, ODD, SEVEN),
    (40.0, 129, 1.1, RIGID, SEVEN),
    (40.0, 391, 0.7, POWERS, SLOW_START),
    (7.0, 5, inf, ODD, SEVEN),
]
SEVERAL_COME: list[Row] = [
    (300.0, 147, inf, POWERS, TEN),
    (7.0, 509, 1.1, ODD, SLOW_START),
    (0.0, 5, 1.0, ODD, FREE),
    (0.0, 5, 3.0, ODD, TEN),
    (0.0, 5, inf, PAIRS, SLOW_START),
    (0.0, 326, 1.5, RIGID, FREE),
    (0.0, 5, inf, RIGID, SEVEN),
]
ONE_SHRINKS: list[Row] = [
    (40.0, 293, inf, FLAT, TEN),
    (40.0, 5, 3.0, FLAT, TEN),
    (0.0, 527, 0.4, POWERS, TEN),
    (7.0, 5, 3.0, RIGID, SEVEN),
    (0.0, 333, 1.1, ODD, SEVEN),
]
A_JOB_WAITS_FOR_ITS_ANSWER: list[Row] = [
    (0.0, 549, 3.0, FLAT, SLOW_START),
    (40.0, 296, inf, ODD, SEVEN),
    (40.0, 129, 1.1, RIGID, SEVEN),
    (40.0, 391, 0.7, POWERS, SLOW_START),
]
ONE_THAT_WAITS_RUNS: list[Row] = [
    (0.0, 528, 1.1, PAIRS, SEVEN),
    (7.0, 285, 0.7, ODD, SLOW_START),
    (0.0, 201, 0.4, POWERS, SLOW_START),
    (0.0, 492, 1.1, ODD, TEN),
    (40.0, 468, 1.0, FLAT, SEVEN),
    (0.0, 5, 0.7, FLAT, TEN),
    (0.0, 82, 1.0, POWERS, SLOW_START),
    (0.0, 197, 1.1, RIGID, SEVEN),
]


@pytest.mark.parametrize(
    ("rows", "cluster"),
    [
        pytest.param(A_BEST_EFFORT_JOB_COMES, "3x4:cpu", id="a best-effort job comes"),
        pytest.param(SEVERAL_COME, "2x8:cpu", id="several come"),
        pytest.param(ONE_SHRINKS, "2x8:cpu", id="one shrinks"),
        pytest.param(A_JOB_WAITS_FOR_ITS_ANSWER, "3x4:cpu", id="a job waits for its answer"),
        pytest.param(ONE_THAT_WAITS_RUNS, "3x4:cpu", id="one that waits runs"),
    ],
)
def test_no_promise_is_broken_for_an_unpromised_job(rows: list[Row], cluster: str) -> None:
    sketches = sketch_all(rows)
    replay = run(springtide, sketches, cluster)
    assert len(replay.finishes) == sum(answer.status is Status.ADMITTED for answer in replay.answers.values())
    for job in build_jobs(sketches):
        if replay.answers[job.id].status is Status.ADMITTED:
            assert replay.finishes[job.id] <= job.deadline_s + 1e-6


def test_a_row_that_is_used_again_knows_nothing_of_the_job_before() -> None:
    rows: list[Row] = [
        (0.0, 101, 3.0, RIGID, TEN),
        (300.0, 5, 0.7, FLAT, SEVEN),
        (0.0, 5, 1.5, ODD, FREE),
        (7.0, 152, 3.0, FLAT, TEN),
        (7.0, 347, 1.5, ODD, TEN),
        (40.0, 431, 1.5, RIGID, TEN),
    ]
    run(springtide, sketch_all(rows), "1x1:cpu")  # which decides everything with and without the cache


def hold(name: str, share: int, speeds: dict[int, float], priority: int = 0) -> JobView:
    """A best-effort job on so many devices."""
    (job,) = build_jobs(sketch_all([(0.0, 100, inf, speeds, FREE)]))
    made = Job(JobId(name), 0, 0.0, 100, job.curve, inf, 1, FREE, priority=priority)
    return JobView(made, Progress(100.0, 1.0, 0.0), Status.ADMITTED, share=share)


@pytest.mark.parametrize(
    ("devices", "kept"),
    [(12, {"a": 4, "b": 2, "c": 3}), (8, {"a": 4, "b": 1, "c": 3}), (3, {"c": 3}), (2, {"c": 2}), (0, {})],
)
def test_what_is_held_is_kept_as_far_as_it_goes_the_important_first(devices: int, kept: dict[str, int]) -> None:
    views = [hold("a", 4, POWERS), hold("b", 2, POWERS), hold("c", 3, ODD, priority=1), hold("d", 0, RIGID)]
    assert keep_held(0.0, views, devices) == kept
