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
from springtide.core.typed_curves import Mix, TypedCurves
from springtide.placement.type_pools import pools_of
from springtide.policies.planning import filling
from springtide.policies.planning.admission import Propose
from springtide.policies.planning.filling import Capacity
from springtide.policies.planning.plan_table import active_rows, open_table
from springtide.policies.pools.pool_decisions import PoolDecisions, deal, look_inside
from springtide.policies.pools.spanning_parts import find_end_s

MIXES = 4  # blocks for which all pools decide again, per job


def bridge(pooled: PoolDecisions, asker: JobId, propose: Propose) -> PoolDecisions | None:
    """The decisions with a job promised on two types; None if no block of them is in time and free until then."""
    for mix in find_mixes(pooled, pooled.snapshot.jobs[asker])[:MIXES]:
        tried = deal(pooled.now_s, pooled.snapshot, propose, pooled.moves, {**pooled.spans, asker: mix})
        if tried.is_settled and tried.admitted.keys() >= {*pooled.admitted, asker}:
            # in this round the first pool has not seen the job arrive
            first = tried.decisions[tried.first]
            tried.decisions[tried.first] = replace(first, memory=pooled.decisions[pooled.first].memory)
            return tried
    return None


def find_mixes(pooled: PoolDecisions, view: JobView) -> list[Mix]:
    """The blocks that are in time and seem to be free long enough, those first that take the least of the pools."""
    typed, now_s = view.job.typed, pooled.now_s
    if typed is None or typed.blend is None:
        return []
    room = {
        device_type: look_ahead(pooled, device_type) for device_type in typed.types if device_type in pooled.decisions
    }
    found: list[tuple[float, Mix]] = []
    for mix in list_pairs(typed, room):
        end_s = find_end_s(view, mix, now_s)
        if end_s <= view.job.deadline_s and all(
            free_until(room[device_type], n) >= end_s for device_type, n in mix.items()
        ):
            part = sum(count / pooled.snapshot.cluster.totals[device_type] for device_type, count in mix.items())
            found.append((part * (end_s - now_s), mix))
    return [mix for _, mix in sorted(found, key=lambda entry: entry[0])]


def list_pairs(typed: TypedCurves, device_types: Iterable[str]) -> Iterator[Mix]:
    """Blocks of two types that are faster than either part of them alone."""
    for first, second in combinations(device_types, 2):
        for shares in product(typed.curves[first].levels, typed.curves[second].levels):
            mix = dict(zip((first, second), shares, strict=True))
            alone = max(typed.curves[device_type].rate(share) for device_type, share in mix.items())
            if sum(shares) <= typed.most and typed.rate(mix) > alone:
                yield mix


def look_ahead(pooled: PoolDecisions, device_type: str) -> Capacity:
    """What a pool has free from now on if everybody promised there holds as little as possible."""
    pool = next(pool for pool in pools_of(pooled.snapshot.cluster) if pool.device_type == device_type)
    table = open_table(pooled.now_s, look_inside(pooled, pool))
    for row in active_rows(table):
        filling.shrink(table.capacity, table.columns, row, table.trial)
    return table.capacity


def free_until(capacity: Capacity, share: int) -> float:
    """The first instant at which fewer devices than a share are free."""
    size = int(capacity.size[0])
    short = np.flatnonzero(capacity.free[:size] < share)
    return float(capacity.times[short[0]]) if len(short) else inf
