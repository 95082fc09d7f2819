"""Whether a decision can be carried out: checked whole, before anything of it is.

A policy is code that may come from outside. What it says is compared with the Snapshot it was shown, and refused with
the job, the value and the rule; the world is as it was then. `World.apply` relies on none of this: it is all or nothing
by itself.
"""

from collections.abc import Iterable

from springtide.core.decisions import Answer, Decision, JobView, Snapshot, Status
from springtide.core.devices import Devices, count_devices
from springtide.core.jobs import JobId
from springtide.core.world import count_mix, release, take
from springtide.errors import PolicyError

ANSWERABLE = frozenset({Status.PENDING, Status.WAITLISTED})
ANSWERS = frozenset({Status.ADMITTED, Status.WAITLISTED, Status.DECLINED})


def check_decision(now_s: float, snapshot: Snapshot, decision: Decision) -> None:
    """Refuse a decision that names unknown jobs, revokes answers, or hands out devices that cannot be had."""
    named: tuple[Iterable[JobId], ...] = (
        decision.answers,
        decision.promises,
        decision.shares,
        decision.mixes,
        decision.allocations,
        decision.reasons,
    )
    for job_id in (job_id for part in named for job_id in part):
        if job_id not in snapshot.jobs:
            raise PolicyError(f"a decision names job {job_id}, which is not among the {len(snapshot.jobs)} unfinished")
    for job_id, answer in decision.answers.items():
        check_answer(snapshot.jobs[job_id], answer, decision)
    unanswered = [job_id for job_id in snapshot.changes.arrived if job_id not in decision.answers]
    if unanswered:
        raise PolicyError(f"job {unanswered[0]} has just arrived and gets no answer; every newcomer must get one")
    check_devices(snapshot, decision)
    if decision.wake_at_s <= now_s:
        raise PolicyError(f"a policy asks to be woken at {decision.wake_at_s} s, which is not after {now_s} s")


def check_answer(view: JobView, answer: Answer, decision: Decision) -> None:
    """Refuse an answer to a job that has one for good, or one that contradicts itself."""
    job = view.job
    if view.status not in ANSWERABLE:
        raise PolicyError(f"job {job.id} is {view.status} and is told {answer.status}; an answer is never revoked")
    if answer.status not in ANSWERS:
        raise PolicyError(f"job {job.id} is told {answer.status}; an answer is one of: {', '.join(sorted(ANSWERS))}")
    if answer.promised and (answer.status is not Status.ADMITTED or job.best_effort):
        raise PolicyError(f"job {job.id} is {answer.status} and promised; only admitted jobs with a deadline can be")
    if answer.status is Status.DECLINED and decision.allocations.get(job.id):
        raise PolicyError(f"job {job.id} is declined and given devices")


def check_devices(snapshot: Snapshot, decision: Decision) -> None:
    """Refuse allocations that overlap, lie outside the cluster, or that a job cannot run on."""
    free, leaving = list(snapshot.free_masks), list(snapshot.leaving)
    for job_id in decision.allocations:
        give_back(free, leaving, snapshot.jobs[job_id].devices)
    for job_id, devices in decision.allocations.items():
        view, share = snapshot.jobs[job_id], count_devices(devices)
        if any(not 0 <= node < len(free) for node, _ in devices):
            raise PolicyError(f"job {job_id} is given devices on node {devices[-1].node}; there are {len(free)} nodes")
        if count_mix(snapshot.cluster, view, devices) is None and share and share not in view.job.curve.shares:
            permitted = ", ".join(map(str, view.job.curve.shares))
            raise PolicyError(f"job {job_id} is given {share} devices; it runs on {permitted}")
        take(free, devices)


def give_back(free: list[int], leaving: list[int], devices: Devices) -> None:
    """Devices that a job lets go, as far as their owner does not claim them."""
    lent = [~mask for mask in leaving] if leaving else None
    release(free, leaving, lent, devices)
