from tests.policies.replays import JobSketch, run

from springtide.core.decisions import Status
from springtide.policies.fifo import fifo


def test_the_head_of_the_queue_blocks_all_behind_it() -> None:
    replay = run(fifo, [JobSketch(20, 0, requested=2), JobSketch(40, 1, requested=4), JobSketch(4, 2, requested=2)])
    assert replay.finishes == {"a": 10.0, "b": 20.0, "c": 22.0}


def test_nothing_is_preempted_or_resized() -> None:
    replay = run(fifo, [JobSketch(20, 0, requested=2), JobSketch(40, 1, requested=4), JobSketch(4, 2, requested=1)])
    assert {job: [share for _, share in changes] for job, changes in replay.changes.items()} == {
        "a": [2],
        "b": [4],
        "c": [1],
    }


def test_a_job_larger_than_the_cluster_is_declined_and_does_not_block() -> None:
    replay = run(fifo, [JobSketch(20, 0, requested=8), JobSketch(40, 1, requested=4)])
    assert replay.answers["a"].status is Status.DECLINED
    assert replay.answers["a"].sentence == "job a needs 8 devices at once; the cluster has 4"
    assert replay.finishes == {"b": 11.0}
