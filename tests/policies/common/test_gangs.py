import pytest
from tests.policies.replays import JobSketch, build_jobs, run

from springtide.core.decisions import Status
from springtide.policies import find_policy
from springtide.policies.common.gangs import gang_share

RIGID = ("fifo", "fifo-backfill", "srtf", "gandiva", "tiresias", "themis", "chronus")


@pytest.mark.parametrize(("requested", "share"), [(1, 2), (2, 2), (3, 2), (4, 4), (7, 4), (64, 8)])
def test_a_gang_is_the_request_or_the_nearest_share_below_it(requested: int, share: int) -> None:
    (job,) = build_jobs([JobSketch(1, requested=requested, speeds={2: 1.0, 4: 2.0, 8: 3.0})])
    assert gang_share(job) == share


@pytest.mark.parametrize("name", RIGID)
def test_rigid_policies_decline_what_the_cluster_cannot_hold(name: str) -> None:
    replay = run(find_policy(name).load(), [JobSketch(10, requested=8), JobSketch(10, requested=4)])
    assert replay.answers["a"].status is Status.DECLINED
    assert replay.answers["a"].reason == "exceeds_cluster"
    assert list(replay.finishes) == ["b"]


@pytest.mark.parametrize("name", RIGID)
def test_rigid_policies_give_the_requested_share(name: str) -> None:
    replay = run(
        find_policy(name).load(), [JobSketch(4, requested=2), JobSketch(4, requested=1), JobSketch(4, 2, requested=4)]
    )
    shares = {job: {share for _, share in changes} - {0} for job, changes in replay.changes.items()}
    assert shares == {"a": {2}, "b": {1}, "c": {4}}
