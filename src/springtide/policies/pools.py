"""Pools: a cluster of several device types as one small homogeneous world per type, for `springtide`.

A pool has its nodes, the jobs promised there with their speeds on that type, and the planning, rehearsal and proof of
`promises`; late_admitted stays 0 by the same argument. A job without an answer is tried in every pool its level allows,
the fastest first. Who may change pools is settled in `transfers`, who is promised on two types at once in `spans`, what
becomes of it all in `mixtures`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any

from springtide.core.curves import Curve
from springtide.core.decisions import Changes, Decision, JobView, Segment, Snapshot, Status
from springtide.core.devices import count_devices
from springtide.core.jobs import Job, JobId
from springtide.core.mixes import Mix
from springtide.placement.pools import Pool, pools_of
from springtide.policies.ledgers import Ledger
from springtide.policies.parts import Word, hear, is_spanning, narrow_newcomer, narrow_part
from springtide.policies.promises import OPEN as ADMITTING
from springtide.policies.promises import Caution, Draft, Propose, admit, decide_firmly

OPEN = (Status.PENDING, Status.WAITLISTED)  # the jobs that wait for an answer
MEMORY = "pools"  # key in the policy's memory: {kind: what the pool's own planning remembers}


@dataclass(slots=True)
class Books:
    """What one decision leaves to the next: the ledger of each pool, and each job as a pool saw it."""

    ledgers: dict[str, Ledger] = field(default_factory=dict)
    seen: dict[tuple[str, JobId], tuple[JobView, JobView]] = field(default_factory=dict)


@dataclass(slots=True)
class Table:
    """One decision in the making."""

    now_s: float
    snapshot: Snapshot
    books: Books
    first: str  # the pool that is asked first: what arrives is its demand; the others get what it turns away
    decisions: dict[str, Decision] = field(default_factory=dict)
    admitted: dict[JobId, str] = field(default_factory=dict)
    moves: Mapping[JobId, str] = field(default_factory=dict)  # promised jobs that change their pool, and to which
    spans: Mapping[JobId, Mix] = field(default_factory=dict)  # jobs that are promised on several types from now on
    words: dict[JobId, Word] = field(default_factory=dict)  # what the pools so far have decided about their parts

    @property
    def memory(self) -> Mapping[str, Any]:
        """What each pool remembers."""
        remembered: Mapping[str, Any] = self.snapshot.memory.get(MEMORY, {})
        return remembered

    @property
    def is_settled(self) -> bool:
        """Whether every job that was to move or to span types has been promised that by all the pools it needs."""
        arrived = all(job_id in self.decisions[kind].promises for job_id, kind in self.moves.items())
        return arrived and all(job_id in self.admitted for job_id in self.spans)

    def mix_of(self, job_id: JobId) -> Mix | None:
        """The block of a job that is promised on several types; None if it is not."""
        view = self.snapshot.jobs[job_id]
        return view.mix if is_spanning(view) else self.spans.get(job_id)


def deal(
    now_s: float, snapshot: Snapshot, propose: Propose, moves: Mapping[JobId, str], spans: Mapping[JobId, Mix]
) -> Table:
    """What the pools decide, one after the other, if some promised jobs change their pool and some newcomers span two.

    A newcomer counts as admitted only if every pool of its block lets its part start now.
    """
    old = snapshot.cache if isinstance(snapshot.cache, Books) else Books()
    pools = order_pools(snapshot)
    table = Table(now_s, snapshot, Books(dict(old.ledgers), old.seen), pools[0].kind, moves=moves, spans=spans)
    for pool in pools:
        table.decisions[pool.kind] = decide_pool(table, pool, propose)
    for job_id, mix in spans.items():
        if all(starts_now(table, job_id, kind, share) for kind, share in mix.items()):
            table.admitted[job_id] = "+".join(mix)
    return table


def starts_now(table: Table, job_id: JobId, kind: str, share: int) -> bool:
    """Whether a pool has promised a newcomer its part from now on."""
    promise = table.decisions[kind].promises.get(job_id)
    return promise is not None and promise.plan.segments == (Segment(table.now_s, share),)


def narrow_arrival(view: JobView, kind: str) -> JobView:
    """A promised job as the pool it moves to sees it: it holds nothing there yet."""
    assert view.job.typed is not None
    own = replace(view.job, curve=view.job.typed.curves[kind], typed=None)
    return replace(view, job=own, devices=(), share=0, promise=None, mix=None)


def order_pools(snapshot: Snapshot) -> list[Pool]:
    """The pools, those first whose devices are the fastest for the jobs that wait for an answer."""
    waiting = [view.job for view in snapshot.jobs.values() if view.status in OPEN and not view.job.best_effort]
    return sorted(pools_of(snapshot.cluster), key=lambda pool: -sum(relative_speed(job, pool.kind) for job in waiting))


def relative_speed(job: Job, kind: str) -> float:
    """The speed of one device of a type beside the job's fastest type; 0 where it cannot run."""
    if job.typed is None or kind not in job.typed.curves:
        return 0.0
    curve, best = job.typed.curves[kind], job.typed.curves[job.typed.fastest]
    return curve.rates[0] / curve.shares[0] / (best.rates[0] / best.shares[0])


def decide_pool(table: Table, pool: Pool, propose: Propose) -> Decision:
    """What a pool decides on its own; candidates it admits are not shown to the pools after it."""
    inside = look_inside(table, pool)
    coming = [inside.jobs[job_id] for job_id, kind in table.moves.items() if kind == pool.kind]
    coming += [inside.jobs[job_id] for job_id, mix in table.spans.items() if pool.kind in mix]
    crowded = is_crowded(table.snapshot)
    decision = decide_firmly(table.now_s, inside, partial(receive, propose, coming, crowded))
    for job_id in decision.promises:
        if inside.jobs[job_id].status in OPEN:
            table.admitted[job_id] = pool.kind
        elif table.mix_of(job_id) and (word := hear(decision, inside.jobs, job_id)):
            table.words[job_id] = word
    assert isinstance(decision.cache, Ledger)
    table.books.ledgers[pool.kind] = decision.cache
    return decision


def receive(
    propose: Propose, coming: Iterable[JobView], crowded: bool, ledger: Ledger, inside: Snapshot, caution: Caution
) -> Draft:
    """A pool's proposal, after those who come from other pools.

    Promised jobs grow into spare devices only if no best-effort job wants them.
    """
    if caution in ADMITTING:
        for view in coming:
            admit(ledger, view)
    draft = propose(ledger, inside, caution)
    if crowded:
        draft.patience = inf
    return draft


def is_crowded(snapshot: Snapshot) -> bool:
    """Whether there are best-effort jobs."""
    return any(view.job.best_effort for view in snapshot.jobs.values())


def look_inside(table: Table, pool: Pool) -> Snapshot:
    """The world as a pool sees it: its own nodes, who is promised or holds devices there, and who wants to."""
    snapshot = table.snapshot
    jobs: dict[JobId, JobView] = {}
    for job_id, view in snapshot.jobs.items():
        found = find_view(table, pool, view)
        if found is not None:
            jobs[job_id] = found
    free = free_devices(table, pool)
    leaving = tuple(job_id for job_id, kind in table.moves.items() if kind != pool.kind)
    finished = Changes((*snapshot.changes.finished, *leaving))
    memory = table.memory.get(pool.kind, {}) if pool.kind == table.first else {}
    return Snapshot(pool.cluster, jobs, free, finished, memory, table.books.ledgers.get(pool.kind))


def free_devices(table: Table, pool: Pool) -> tuple[int, ...]:
    """The free devices of a pool, with those of jobs that leave it."""
    free = [table.snapshot.free_masks[node] for node in pool.nodes]
    for job_id, kind in table.moves.items():
        if kind != pool.kind:
            for node, mask in pool.narrow(table.snapshot.jobs[job_id].devices):
                free[node] |= mask
    return tuple(free)


def find_view(table: Table, pool: Pool, view: JobView) -> JobView | None:
    """A job as a pool sees it, None if it has no business there; the same object as long as nothing changes."""
    job_id = view.job.id
    if job_id in table.moves:
        return narrow_arrival(view, pool.kind) if table.moves[job_id] == pool.kind else None
    word = table.words.get(job_id)
    if job_id in table.spans:
        mix = table.spans[job_id]
        return narrow_newcomer(view, mix, pool.kind, table.now_s, word) if pool.kind in mix else None
    if not belongs(table, pool, view):
        return None
    if word is not None:
        return narrow_part(pool, view, table.now_s, word)
    key = (pool.kind, job_id)
    known = table.books.seen.get(key)
    if known is None or known[0] is not view:
        part = narrow_part(pool, view, table.now_s, None) if is_spanning(view) else narrow_view(pool, view)
        known = table.books.seen[key] = (view, part)
    return known[1]


def belongs(table: Table, pool: Pool, view: JobView) -> bool:
    """Whether a job is promised in a pool, holds devices there, or waits for an answer and could get it there."""
    job = view.job
    if view.promise is not None and view.promise.kind == pool.kind:
        return True
    if view.mix and view.mix.get(pool.kind):
        return True
    may_ask = view.status in OPEN and not job.best_effort and job.id not in table.admitted
    return may_ask and job.typed is not None and pool.kind in job.typed.curves


def narrow_view(pool: Pool, view: JobView) -> JobView:
    """A job inside a pool: at its speeds on that type, with the devices it holds there.

    Without a promise there it is a guest: it may keep what it holds, as long as nobody needs it.
    """
    devices = pool.narrow(view.devices)
    share = count_devices(devices)
    job, promise = view.job, view.promise
    assert job.typed is not None
    if promise is not None and promise.kind == pool.kind:
        own = replace(job, curve=job.typed.curves[pool.kind], typed=None)
        return replace(view, job=own, devices=devices, share=share, promise=replace(promise, kind=""), mix=None)
    if share:
        own = replace(job, curve=hold_curve(share, view.progress.rate), deadline_s=inf, typed=None)
        return replace(view, job=own, devices=devices, share=share, promise=None, mix=None)
    return replace(view, job=replace(job, curve=job.typed.curves[pool.kind], typed=None), answer_by_s=inf)


def hold_curve(share: int, rate: float) -> Curve:
    """What a guest may hold in a pool: as much as now, or one device."""
    return Curve((1,), (rate,)) if share == 1 else Curve((1, share), (rate / share, rate))
