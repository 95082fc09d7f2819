"""Which of several rounds lets the jobs of a desk end soonest: each is played out to the last finish.

A round accepts one proposal after the other and never sees where they lead: with 20 s for every change a short job is
left on the two devices it started on. So the usual round is set beside its neighbours: one running job keeps what it
holds, or all do; one of them, or all, give it back first; the shortest grow first. Each is followed, pauses included,
until all jobs have ended, as if nobody else came and every later round let the shortest grow first. The least sum of
finish times wins.
"""

from collections.abc import Iterator, Mapping
from math import inf

from springtide.core.jobs import JobId
from springtide.policies.easyscale.proposals import DraftAllocation
from springtide.policies.easyscale.rounds import USUAL, Bias, hold_round

FEW = 10  # jobs up to which rounds are played out: O(jobs) rounds of O(jobs) finishes each
SAME_S = 1e-9  # finishes this close are one event
LATER = Bias(shortest_first=True)


def choose_round(now_s: float, draft: DraftAllocation, limits: Mapping[str, int], weighs: bool) -> DraftAllocation:
    """The desk after the round with the best outlook; after the usual round if nothing is to be weighed."""
    best = _try(draft, limits, USUAL)
    if not weighs or not 1 < len(draft.entries) <= FEW:
        return best
    least, seen = play_out(now_s, best.fork(), limits, inf), [best.list_mixes()]
    for bias in list_biases(draft):
        tried = _try(draft, limits, bias)
        mixes = tried.list_mixes()
        if mixes in seen:
            continue
        seen.append(mixes)
        total_s = play_out(now_s, tried.fork(), limits, least - SAME_S)
        if total_s < inf:
            best, least = tried, total_s
    return best


def _try(draft: DraftAllocation, limits: Mapping[str, int], bias: Bias) -> DraftAllocation:
    tried = draft.fork()
    hold_round(tried, limits, bias)
    return tried


def list_biases(draft: DraftAllocation) -> Iterator[Bias]:
    """The neighbours of the usual round."""
    running = [job_id for job_id, entry in draft.entries.items() if entry.mix]
    everyone = frozenset(running)
    for kept in (*map(_only, running), everyone):
        yield Bias(kept=kept)
    for cleared in (frozenset[JobId](), *map(_only, running), everyone):
        yield Bias(cleared=cleared)
        yield Bias(cleared=cleared, shortest_first=True)


def _only(job_id: JobId) -> frozenset[JobId]:
    return frozenset((job_id,))


def play_out(now_s: float, draft: DraftAllocation, limits: Mapping[str, int], bound_s: float) -> float:
    """Seconds until each job of a desk ends, added up, if nobody else comes; infinite if not below `bound_s`."""
    total_s, at_s = 0.0, now_s
    while draft.entries:
        for entry in draft.entries.values():
            entry.begin(at_s)
        at_s = min(entry.finish_s for entry in draft.entries.values())
        if total_s + (at_s - now_s) * len(draft.entries) >= bound_s:
            return inf
        total_s += (at_s - now_s) * end_jobs(draft, at_s)
        hold_round(draft, limits, LATER)
    return total_s


def end_jobs(draft: DraftAllocation, now_s: float) -> int:
    """Let all jobs run up to an instant and take out those that end there; returns how many."""
    ended = [job_id for job_id, entry in draft.entries.items() if entry.finish_s <= now_s + SAME_S]
    for job_id in ended:
        draft.clear(draft.entries[job_id])
        del draft.entries[job_id]
    for entry in draft.entries.values():
        entry.advance(now_s)
    return len(ended)
