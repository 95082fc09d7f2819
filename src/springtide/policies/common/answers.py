"""What policies without promises tell newcomers: welcome, or that the cluster can never hold them.

It knows nothing of deadlines: policies that promise (or decline for lack of room in time) make answers of their own.
"""

from collections.abc import Callable, Iterator

from springtide.core.decisions import Answer, JobView, Snapshot, Status
from springtide.core.jobs import Job, JobId

WELCOME = Answer(Status.ADMITTED, "no_promise", "runs when its turn comes; no finish is promised")


def answer_arrivals(snapshot: Snapshot, least: Callable[[Job], int]) -> dict[JobId, Answer]:
    """An answer for each newcomer: admitted without a promise if `least(job)` devices exist, else declined."""
    devices = snapshot.cluster.total
    return {
        job_id: WELCOME if least(job) <= devices else _decline(job, least(job), devices)
        for job_id, job in ((job_id, snapshot.jobs[job_id].job) for job_id in snapshot.changes.arrived)
    }


def _decline(job: Job, needed: int, devices: int) -> Answer:
    sentence = f"job {job.id} needs {needed} devices at once; the cluster has {devices}"
    return Answer(Status.DECLINED, "exceeds_cluster", sentence)


def smallest_share(job: Job) -> int:
    """The fewest devices on which an elastic policy can run a job."""
    return job.curve.shares[0]


def remaining_views(snapshot: Snapshot, answers: dict[JobId, Answer]) -> Iterator[JobView]:
    """The jobs in arrival order, without those that are being declined."""
    refused = {job_id for job_id, answer in answers.items() if answer.status is Status.DECLINED}
    return (view for job_id, view in snapshot.jobs.items() if job_id not in refused)


def count_free(snapshot: Snapshot) -> int:
    """How many devices no job holds."""
    return sum(mask.bit_count() for mask in snapshot.free_masks)
