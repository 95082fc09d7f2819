"""Rounds of EasyScale's inter-job scheduling (SC 2023), and which of several lets the jobs end soonest.

In a round jobs with guaranteed devices (minP) get them, from others if need be; waiting jobs start on as few devices as
possible, for which others shrink; what is left goes to the proposals with the largest speed-up per added device.

A round accepts one proposal after the other and never sees where they lead: with 20 s for every change a short job is
left on the two devices it started on. So the usual round is set beside its neighbours (`Bias`): one running job keeps
what it holds, or all do; one of them, or all, give it back first; the shortest grow first. Each is followed, pauses
included, until all jobs have ended, as if nobody else came and every later round let the shortest grow first. The least
sum of finish times wins.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf

from springtide.core.jobs import JobId
from springtide.policies.easyscale.proposals import DraftAllocation, DraftJob, Proposal

FEW = 10  # jobs up to which rounds are played out: O(jobs) rounds of O(jobs) finishes each
SAME_S = 1e-9  # finishes this close are one event


@dataclass(frozen=True, slots=True)
class Bias:
    """Who keeps what it holds, who gives all of it back first, and whether growth goes to the shortest job first."""

    kept: frozenset[JobId] = frozenset()
    cleared: frozenset[JobId] = frozenset()
    shortest_first: bool = False


USUAL = Bias()
LATER = Bias(shortest_first=True)


def hold_round(draft: DraftAllocation, limits: Mapping[str, int], bias: Bias = USUAL) -> None:
    """Hand out the devices of a draft; `limits` are the most devices with which a job was seen to run faster."""
    for job_id, entry in draft.entries.items():
        entry.is_kept = job_id in bias.kept
        if job_id in bias.cleared:
            draft.clear(entry)
    secure_guarantees(draft)
    start_waiting(draft)
    if bias.shortest_first:
        grow_shortest(draft, limits)
    else:
        grow(draft, limits)


def secure_guarantees(draft: DraftAllocation) -> None:
    """Give every job its guaranteed devices in order of arrival, from those who hold more than theirs if need be."""
    for entry in draft.entries.values():
        least = entry.speeds.guaranteed
        if least and entry.size < least:
            make_room(draft, entry, least)
            start(draft, entry, least)


def start_waiting(draft: DraftAllocation) -> None:
    """Start every waiting job on as few devices as possible, in order of arrival; running ones shrink for it."""
    blocked: set[tuple[str, ...]] = set()
    for entry in draft.entries.values():
        if entry.mix or entry.speeds.guaranteed or entry.device_types in blocked or start(draft, entry, 1):
            continue
        make_room(draft, entry, 1)
        if not start(draft, entry, 1):
            blocked.add(entry.device_types)


def start(draft: DraftAllocation, entry: DraftJob, least: int) -> bool:
    """Put a job on the fewest devices of one type that are at least so many, if they are free."""
    proposal = draft.propose_start(entry, least)
    if proposal is None:
        return False
    draft.clear(entry)
    draft.give(entry, proposal.device_type, proposal.devices)
    return True


def make_room(draft: DraftAllocation, entry: DraftJob, least: int) -> None:
    """Take devices from jobs that hold more than is guaranteed to them, where it costs the least speed per device."""
    while draft.propose_start(entry, least) is None:
        wanted = {device_type: 1 for device_type in entry.device_types}
        others = [other for other in draft.entries.values() if other is not entry]
        # those who pay a pause at this instant anyway come first
        cuts = [(not other.is_changing, cut, other) for other in others for cut in list_cuts(draft, other, wanted)]
        if cuts:
            _, cut, victim = min(cuts, key=lambda entry: entry[:2])
            draft.give(victim, cut.device_type, -cut.devices)
        elif not stop_one(draft, entry):
            return


def list_cuts(draft: DraftAllocation, entry: DraftJob, wanted: Mapping[str, int]) -> Iterable[Proposal]:
    """Ways in which a job can give back devices; none if it is kept, or ends within two pauses anyway."""
    pause_s = entry.view.job.overhead.pause_s(max(entry.size, 1))
    if entry.is_kept or not entry.mix or entry.work_left <= 2.0 * pause_s * entry.rate:
        return ()
    return draft.propose_cuts(entry, max(1, entry.speeds.guaranteed), wanted)


def stop_one(draft: DraftAllocation, entry: DraftJob) -> bool:
    """Stop the newest job below this one that holds devices it can use."""
    for victim in reversed(draft.entries.values()):
        if (
            is_below(victim, entry)
            and not victim.speeds.guaranteed
            and any(device_type in entry.device_types for device_type in victim.mix)
        ):
            draft.clear(victim)
            return True
    return False


def is_below(victim: DraftJob, entry: DraftJob) -> bool:
    """Whether a job stops for another: one with a guarantee, of a higher priority, or of its own that starved first."""
    if entry.speeds.guaranteed:
        return True
    lead = entry.view.job.priority - victim.view.job.priority
    return lead > 0 or (lead == 0 and entry.starving < victim.starving)


def grow_shortest(draft: DraftAllocation, limits: Mapping[str, int]) -> None:
    """Let every job take what it can use, the shortest first."""
    for entry in sorted(list_growing(draft), key=lambda entry: entry.rank):
        if not any(draft.free.values()):
            return
        while (proposal := propose(draft, entry, limits)) is not None:
            draft.give(entry, proposal.device_type, proposal.devices)


def list_growing(draft: DraftAllocation) -> list[DraftJob]:
    """The jobs that run and need not keep to what they have."""
    return [entry for entry in draft.entries.values() if entry.mix and not entry.is_kept]


def grow(draft: DraftAllocation, limits: Mapping[str, int]) -> None:
    """Accept the proposals with the largest speed-up per added device until no device or no gain is left."""
    by_arrival = {entry.view.job.index: entry for entry in list_growing(draft)}
    proposals = ((entry, propose(draft, entry, limits)) for entry in by_arrival.values())
    queue = [(-entry.view.job.priority, proposal) for entry, proposal in proposals if proposal is not None]
    heapify(queue)
    while queue:
        minus_priority, best = heappop(queue)
        entry = by_arrival[best.arrival]
        if best.devices <= draft.free[best.device_type]:
            draft.give(entry, best.device_type, best.devices)
        following = propose(draft, entry, limits)
        if following is not None:
            heappush(queue, (minus_priority, following))


def propose(draft: DraftAllocation, entry: DraftJob, limits: Mapping[str, int]) -> Proposal | None:
    """A job's next growth, unless it has been seen not to help."""
    proposal = draft.propose_growth(entry)
    limit = limits.get(entry.view.job.id, inf)
    return proposal if proposal is not None and entry.size + proposal.devices <= limit else None


def choose_round(now_s: float, draft: DraftAllocation, limits: Mapping[str, int], weighs: bool) -> DraftAllocation:
    """The draft after the round that lets its jobs end soonest; after the usual one if nothing is to be weighed."""
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
    """Seconds until each job of a draft ends, added up, if nobody else comes; infinite if not below `bound_s`."""
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
