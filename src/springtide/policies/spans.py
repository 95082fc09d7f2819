"""Jobs that no device type alone can take, promised on a block of two types (level D2).

The block is held from now to the end, and both pools certify their part of it like any newcomer. It is taken only if
nobody is lost by it who would be admitted without. No block starts later, grows or shrinks.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations, product
from math import inf

import numpy as np

from springtide.core.decisions import JobView
from springtide.core.jobs import JobId
from springtide.core.mixes import Mix, TypedCurves
from springtide.placement.pools import pools_of
from springtide.policies import filling
from springtide.policies.filling import Capacity
from springtide.policies.ledgers import active_rows, open_ledger
from springtide.policies.parts import find_end_s
from springtide.policies.pools import Table, deal, look_inside
from springtide.policies.promises import Propose

MIXES = 4  # blocks for which all pools decide again, per job


def bridge(table: Table, asker: JobId, propose: Propose) -> Table | None:
    """The decisions with a job promised on two types; None if no block of them is in time and free until then."""
    for mix in find_mixes(table, table.snapshot.jobs[asker])[:MIXES]:
        tried = deal(table.now_s, table.snapshot, propose, table.moves, {**table.spans, asker: mix})
        if tried.is_settled and tried.admitted.keys() >= {*table.admitted, asker}:
            # in this round the first pool has not seen the job arrive
            first = tried.decisions[tried.first]
            tried.decisions[tried.first] = replace(first, memory=table.decisions[table.first].memory)
            return tried
    return None


def find_mixes(table: Table, view: JobView) -> list[Mix]:
    """The blocks that are in time and seem to be free long enough, those first that take the least of the pools."""
    typed, now_s = view.job.typed, table.now_s
    if typed is None or typed.blend is None:
        return []
    room = {kind: look_ahead(table, kind) for kind in typed.types if kind in table.decisions}
    found: list[tuple[float, Mix]] = []
    for mix in list_pairs(typed, room):
        end_s = find_end_s(view, mix, now_s)
        if end_s <= view.job.deadline_s and all(free_until(room[kind], n) >= end_s for kind, n in mix.items()):
            part = sum(count / table.snapshot.cluster.totals[kind] for kind, count in mix.items())
            found.append((part * (end_s - now_s), mix))
    return [mix for _, mix in sorted(found, key=lambda entry: entry[0])]


def list_pairs(typed: TypedCurves, kinds: Iterable[str]) -> Iterator[Mix]:
    """Blocks of two types that are faster than either part of them alone."""
    for first, second in combinations(kinds, 2):
        for shares in product(typed.curves[first].levels, typed.curves[second].levels):
            mix = dict(zip((first, second), shares, strict=True))
            alone = max(typed.curves[kind].rate(share) for kind, share in mix.items())
            if sum(shares) <= typed.most and typed.rate(mix) > alone:
                yield mix


def look_ahead(table: Table, kind: str) -> Capacity:
    """What a pool has free from now on if everybody promised there holds as little as possible."""
    pool = next(pool for pool in pools_of(table.snapshot.cluster) if pool.kind == kind)
    ledger = open_ledger(table.now_s, look_inside(table, pool))
    for row in active_rows(ledger):
        filling.shrink(ledger.capacity, ledger.roster, row, ledger.trial)
    return ledger.capacity


def free_until(capacity: Capacity, share: int) -> float:
    """The first instant at which fewer devices than a share are free."""
    size = int(capacity.size[0])
    short = np.flatnonzero(capacity.free[:size] < share)
    return float(capacity.times[short[0]]) if len(short) else inf
