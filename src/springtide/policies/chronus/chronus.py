"""Chronus (SoCC 2021): deadlines of rigid jobs kept by leases, the rest of the cluster as spot.

Time is cut into leases of 240 s. A newcomer with a deadline is accepted if the leases of all accepted jobs and its own
can still be packed (as late as possible, largest gangs first). At each lease boundary a mixed integer program (HiGHS)
chooses the accepted jobs that hold the coming lease: as many as fit, or, while refused jobs wait, as few as the
deadlines allow. Devices left over are spot: they go to waiting jobs at any event, refused and best-effort ones by
least device time first, then accepted ones, then those that can no longer be in time. Inside a lease nothing is
preempted; a job chosen again stays where it is. Where the program fails, the packing is the plan.

Refused jobs are told they are admitted without a promise: Chronus never drops them. Done better than in the
ElasticFlow artifact: best-effort jobs stay so (there the flag is lost); run times are exact (there 1.1 times too long)
and count one pause; a job's last lease need only hold the rest of its work before the deadline, not be whole; the
horizon is cut at deadlines instead of into thousands of single leases, which makes the program small and its answer
for the coming lease no worse. `leases` holds the planning.
"""

from collections.abc import Iterable
from math import ceil, floor

from springtide.core.decisions import Answer, Decision, JobView, Snapshot, Status
from springtide.core.jobs import JobId
from springtide.policies.chronus.leases import LeaseClaim, choose_first, fill_backwards
from springtide.policies.common.answers import count_free, remaining_views
from springtide.policies.common.gangs import (
    answer_gangs,
    change_shares,
    fit_in_order,
    gang_share,
    needed_s,
    stretch_round_s,
    wake_if_waiting,
)

LEASE_S = 240.0
ROUNDING = 1e-9  # leases
ACCEPTED = Answer(Status.ADMITTED, "accepted", "leases for it are reserved before its deadline", promised=True)
REFUSED = Answer(Status.ADMITTED, "no_promise", "its deadline cannot be reserved; runs on devices left over")


def chronus(now_s: float, snapshot: Snapshot) -> Decision:
    """Runs the jobs that hold the present lease, and others on the devices left over."""
    answers = answer_gangs(snapshot)
    views = {view.job.id: view for view in remaining_views(snapshot, answers)}
    lease_s = stretch_round_s(views.values(), LEASE_S)
    boundary_s = ceil(now_s / lease_s) * lease_s
    accepted = [job_id for job_id in snapshot.memory.get("accepted", ()) if is_slo(views, job_id)]
    started = accept_arrivals(now_s, snapshot, views, accepted, (boundary_s, lease_s))
    if now_s == boundary_s:
        chosen = choose_lease(now_s, views, accepted, lease_s, snapshot.cluster.total)
    else:
        chosen = {view.job.id: view.share for view in views.values() if view.share} | started
    free = snapshot.cluster.total - sum(chosen.values())
    chosen |= fit_in_order(queue_spot(now_s, views, accepted, chosen), free)
    newcomers = {job_id: ACCEPTED if job_id in accepted else REFUSED for job_id in answers if is_slo(views, job_id)}
    return Decision(
        answers=answers | newcomers,
        shares=change_shares(views.values(), chosen),
        wake_at_s=wake_if_waiting(views.values(), chosen, (floor(now_s / lease_s) + 1) * lease_s),
        memory={"accepted": accepted} if accepted != snapshot.memory.get("accepted", []) else None,
    )


def is_slo(views: dict[JobId, JobView], job_id: JobId) -> bool:
    """Whether a job is here to stay and has a deadline."""
    return job_id in views and not views[job_id].job.best_effort


def claim_leases(view: JobView, finish_s: float, boundary_s: float, lease_s: float) -> LeaseClaim:
    """The leases a job needs after a boundary, given its finish if it runs on, and the last it can use."""
    leases, rest_s = count_leases(finish_s - boundary_s, lease_s)
    stopped_s = finish_s - boundary_s
    if view.share:
        stopped_s += view.job.overhead.pause_s(view.share, starting=True)
    return LeaseClaim(
        gang=view.share or gang_share(view.job),
        leases=leases,
        last=floor((view.job.deadline_s - rest_s - boundary_s) / lease_s + ROUNDING) + 1,
        leases_if_stopped=count_leases(stopped_s, lease_s)[0],
        running=view.share > 0,
    )


def count_leases(seconds: float, lease_s: float) -> tuple[int, float]:
    """How many leases hold so many seconds, and how many of them fall into the last."""
    leases = max(ceil(seconds / lease_s - ROUNDING), 0)
    return leases, max(seconds - max(leases - 1, 0) * lease_s, 0.0)


def accept_arrivals(
    now_s: float, snapshot: Snapshot, views: dict[JobId, JobView], accepted: list[JobId], grid: tuple[float, float]
) -> dict[JobId, int]:
    """Add to the accepted jobs those newcomers whose leases can be packed beside theirs, in order of arrival.

    Returns the gangs of those that fit on free devices: their leases are counted as if they start at once.
    """
    boundary_s, _ = grid
    free = count_free(snapshot)
    started: dict[JobId, int] = {}
    claims = list(feasible_claims(now_s, (views[job_id] for job_id in accepted), grid).values())
    for job_id in snapshot.changes.arrived:
        if not is_slo(views, job_id):
            continue
        view = views[job_id]
        starts_s = now_s if gang_share(view.job) <= free else boundary_s
        claim = claim_leases(view, starts_s + needed_s(view, now_s), *grid)
        if claim.feasible and fill_backwards([*claims, claim], snapshot.cluster.total) is not None:
            accepted.append(job_id)
            claims.append(claim)
            if claim.gang <= free:
                started[job_id] = claim.gang
                free -= claim.gang
    return started


def feasible_claims(now_s: float, views: Iterable[JobView], grid: tuple[float, float]) -> dict[JobId, LeaseClaim]:
    """The claims of jobs that can still be in time by themselves."""
    boundary_s, _ = grid
    claims = {
        view.job.id: claim_leases(view, (now_s if view.share else boundary_s) + needed_s(view, now_s), *grid)
        for view in views
    }
    return {job_id: claim for job_id, claim in claims.items() if claim.feasible}


def choose_lease(
    now_s: float, views: dict[JobId, JobView], accepted: list[JobId], lease_s: float, devices: int
) -> dict[JobId, int]:
    """The accepted jobs that hold the lease beginning now, with their gangs."""
    found = feasible_claims(now_s, (views[job_id] for job_id in accepted), (now_s, lease_s))
    claims = list(found.values())
    refused = (view for job_id, view in views.items() if job_id not in found and not view.job.best_effort)
    postpone = any(not view.share and in_time(now_s, view) for view in refused)
    packed = fill_backwards(claims, devices)
    if not postpone and sum(claim.gang for claim in claims) <= devices:
        holds = [True] * len(claims)
    elif postpone and packed is not None and not any(packed):
        holds = packed
    else:
        holds = choose_first(claims, devices, postpone) or packed or [False] * len(claims)
    return {job_id: claim.gang for (job_id, claim), hold in zip(found.items(), holds, strict=True) if hold}


def in_time(now_s: float, view: JobView) -> bool:
    """Whether a job meets its deadline if it runs from now on; so does every job without one."""
    return now_s + needed_s(view, now_s) <= view.job.deadline_s


def queue_spot(
    now_s: float, views: dict[JobId, JobView], accepted: list[JobId], chosen: dict[JobId, int]
) -> list[JobView]:
    """The jobs without a lease in the order in which they take what is left: class, then least device time."""
    reserved = set(accepted)

    def place(view: JobView) -> tuple[int, float, int]:
        late = not in_time(now_s, view)
        group = 2 if late else int(view.job.id in reserved)
        return group, needed_s(view, now_s) * (view.share or gang_share(view.job)), view.job.index

    return sorted((view for job_id, view in views.items() if job_id not in chosen), key=place)
