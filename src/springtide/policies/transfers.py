"""Promised jobs that change pools, so that a job which no pool could take finds room.

A promise is carried over only if the other pool admits the job with its pause, and is certified there like any
newcomer. Jobs of level D2 may change at any time, those of D1 only before they have started. One job moves at a time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf

from springtide.core.decisions import Changes, JobView, Snapshot, Status
from springtide.core.jobs import JobId
from springtide.placement.pools import Pool, pools_of
from springtide.policies.demand import alone_cost
from springtide.policies.ledgers import open_ledger
from springtide.policies.pools import OPEN, Table, deal, look_inside, narrow_arrival
from springtide.policies.promises import Propose, admit

DONORS = 4  # promised jobs that are asked to make way for one asker


def list_pressing(table: Table) -> list[JobId]:
    """The jobs that no pool admits and that have just come or must be answered now, in arrival order."""
    found = []
    for job_id, view in table.snapshot.jobs.items():
        if view.status not in OPEN or view.job.best_effort or job_id in table.admitted:
            continue
        if view.status is Status.PENDING or view.answer_by_s <= table.now_s:
            found.append(job_id)
    return found


def make_way(table: Table, asker: JobId, propose: Propose) -> Table | None:
    """The decisions with one promised job planned in another pool, so that the asker is admitted; None if none helps.

    A rough look at the ledgers finds who could make way; what counts is that all pools then decide as hoped, and that
    nobody admitted before is lost.
    """
    for moves in find_moves(table, asker):
        tried = deal(table.now_s, table.snapshot, propose, {**table.moves, **moves}, table.spans)
        if tried.is_settled and tried.admitted.keys() >= {*table.admitted, asker}:
            return tried
    return None


def find_moves(table: Table, asker: JobId) -> Iterator[dict[JobId, str]]:
    """Promised jobs whose move to another pool seems to make room for the asker, the cheapest moves first."""
    pools = pools_of(table.snapshot.cluster)
    inside = {pool.kind: look_inside(table, pool) for pool in pools}
    for pool in pools:
        view = inside[pool.kind].jobs.get(asker)
        if view is None:
            continue
        cost = alone_cost(view.job, table.now_s, pool.cluster.total)
        if cost == inf:
            continue
        for _, job_id, kind in rank_donors(table, pool, pools, cost)[:DONORS]:
            there = open_ledger(table.now_s, inside[kind])
            donor = narrow_arrival(table.snapshot.jobs[job_id], kind)
            if can_leave(table.now_s, inside[pool.kind], view, job_id) and admit(there, donor):
                yield {job_id: kind}


def rank_donors(table: Table, pool: Pool, pools: Iterable[Pool], cost: float) -> list[tuple[float, JobId, str]]:
    """(price, job, new pool) of the jobs promised in a pool that may run in another: its part there over its part here.

    Only jobs that need more than `cost` device-seconds: nobody makes way for a dearer job. A job that must keep the
    type it runs on may still change it before it has started.
    """
    donors = []
    for job_id, view in table.snapshot.jobs.items():
        typed = view.job.typed
        if view.promise is None or view.promise.kind != pool.kind or typed is None or job_id in table.moves:
            continue
        if view.home and not typed.movable:
            continue
        work = view.progress.work_left_at(table.now_s)
        here = alone_cost(replace(narrow_arrival(view, pool.kind).job, work=work), table.now_s, pool.cluster.total)
        if here < cost:
            continue
        for other in pools:
            if other.kind != pool.kind and other.kind in typed.curves:
                job = replace(narrow_arrival(view, other.kind).job, work=work)
                there = alone_cost(job, table.now_s, other.cluster.total)
                if there < inf:
                    price = there / other.cluster.total / (here / pool.cluster.total)
                    donors.append((price, view.job.index, job_id, other.kind))
    return [(price, job_id, kind) for price, _, job_id, kind in sorted(donors)]


def can_leave(now_s: float, inside: Snapshot, asker: JobView, donor: JobId) -> bool:
    """Whether a pool could promise the asker's finish if the donor were not there."""
    jobs = {job_id: view for job_id, view in inside.jobs.items() if job_id != donor}
    ledger = open_ledger(now_s, replace(inside, jobs=jobs, changes=Changes((*inside.changes.finished, donor))))
    return admit(ledger, asker)
