"""What holds for every baseline, whatever the jobs: `stages.check` asserts the contract at each decision."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.policies.replays import JobSketch, run

from springtide.core.decisions import Status
from springtide.core.jobs import FREE, Overhead
from springtide.policies import find_policy

BASELINES = (
    "fifo",
    "fifo-backfill",
    "srtf",
    "edf",
    "edf-admission",
    "edf-elastic",
    "gandiva",
    "tiresias",
    "themis",
    "chronus",
    "pollux",
    "sia",
    "gavel",
    "shockwave",
    "rubick",
)
CURVES = (
    {1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0},
    {1: 1.0, 2: 1.8, 4: 3.0, 8: 4.5},
    {1: 3.0, 2: 2.0, 4: 4.0, 8: 1.0},
    {2: 1.0, 4: 1.5},
)
OVERHEADS = (FREE, Overhead(2.0, 2.0), Overhead(base_s=400.0))


@st.composite
def traces(draw: st.DrawFn) -> list[JobSketch]:
    """Up to seven jobs, some at the same instant, some without a deadline, some that nothing can save."""
    overhead = draw(st.sampled_from(OVERHEADS))
    submit_s = 0.0
    sketches = []
    for _ in range(draw(st.integers(1, 7))):
        submit_s += draw(st.sampled_from([0.0, 1.5, 100.0, 240.0, 5000.0]))
        work = draw(st.sampled_from([3.0, 700.0, 5000.0, 40_000.0]))
        requested = draw(st.sampled_from([1, 2, 4, 8]))
        stretch = draw(st.sampled_from([0.5, 1.0, 1.5, 4.0, float("inf")]))
        speeds = draw(st.sampled_from(CURVES))
        sketches.append(JobSketch(work, submit_s, requested, submit_s + stretch * work / requested, speeds, overhead))
    return sketches


@pytest.mark.parametrize("name", BASELINES)
@settings(max_examples=40, deadline=None)
@given(sketches=traces(), cluster=st.sampled_from(["1x4:cpu", "2x4:cpu", "2x1:cpu", "1x3:cpu"]))
def test_every_admitted_job_ends_and_every_decision_keeps_the_contract(
    name: str, sketches: list[JobSketch], cluster: str
) -> None:
    replay = run(find_policy(name).load(), sketches, cluster)
    assert len(replay.answers) == len(sketches)
    admitted = {job_id for job_id, answer in replay.answers.items() if answer.status is Status.ADMITTED}
    assert set(replay.finishes) == admitted


@pytest.mark.parametrize("name", BASELINES)
@settings(max_examples=5, deadline=None)
@given(sketches=traces())
def test_the_same_events_give_the_same_decisions(name: str, sketches: list[JobSketch]) -> None:
    policy = find_policy(name).load()
    assert run(policy, sketches, "2x4:cpu") == run(policy, sketches, "2x4:cpu")


@pytest.mark.parametrize("name", BASELINES)
def test_nobody_is_called_for_ever_once_all_is_done(name: str) -> None:
    assert run(find_policy(name).load(), [JobSketch(8.0), JobSketch(8.0, 1.0)], calls=8).calls <= 8
