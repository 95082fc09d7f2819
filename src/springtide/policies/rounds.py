"""One round at a desk: guarantees first, then who waits, then growth (EasyScale's inter-job scheduling, SC 2023).

Jobs with guaranteed devices (minP) get them, from others if need be; waiting jobs start on as few devices as possible,
for which others shrink; what is left goes to the proposals with the largest speed-up per added device. A `Bias` makes a
round depart from that; which one is best is the business of `outlooks`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf

from springtide.core.jobs import JobId
from springtide.policies.proposals import Desk, Member, Proposal


@dataclass(frozen=True, slots=True)
class Bias:
    """Who keeps what it holds, who gives all of it back first, and whether growth goes to the shortest job first."""

    kept: frozenset[JobId] = frozenset()
    cleared: frozenset[JobId] = frozenset()
    shortest_first: bool = False


USUAL = Bias()


def hold_round(desk: Desk, limits: Mapping[str, int], bias: Bias = USUAL) -> None:
    """Deal out the devices of a desk; `limits` are the most devices with which a job was seen to run faster."""
    for job_id, member in desk.members.items():
        member.is_kept = job_id in bias.kept
        if job_id in bias.cleared:
            desk.clear(member)
    secure_guarantees(desk)
    start_waiting(desk)
    if bias.shortest_first:
        grow_shortest(desk, limits)
    else:
        grow(desk, limits)


def secure_guarantees(desk: Desk) -> None:
    """Give every job its guaranteed devices in order of arrival, from those who hold more than theirs if need be."""
    for member in desk.members.values():
        least = member.speeds.guaranteed
        if least and member.size < least:
            make_room(desk, member, least)
            start(desk, member, least)


def start_waiting(desk: Desk) -> None:
    """Start every waiting job on as few devices as possible, in order of arrival; running ones shrink for it."""
    blocked: set[tuple[str, ...]] = set()
    for member in desk.members.values():
        if member.mix or member.speeds.guaranteed or member.kinds in blocked or start(desk, member, 1):
            continue
        make_room(desk, member, 1)
        if not start(desk, member, 1):
            blocked.add(member.kinds)


def start(desk: Desk, member: Member, least: int) -> bool:
    """Put a job on the fewest devices of one type that are at least so many, if they are free."""
    proposal = desk.propose_start(member, least)
    if proposal is None:
        return False
    desk.clear(member)
    desk.give(member, proposal.kind, proposal.devices)
    return True


def make_room(desk: Desk, member: Member, least: int) -> None:
    """Take devices from jobs that hold more than is guaranteed to them, where it costs the least speed per device."""
    while desk.propose_start(member, least) is None:
        wanted = {kind: 1 for kind in member.kinds}
        others = [other for other in desk.members.values() if other is not member]
        # those who pay a pause at this instant anyway come first
        cuts = [(not other.is_changing, cut, other) for other in others for cut in list_cuts(desk, other, wanted)]
        if cuts:
            _, cut, victim = min(cuts, key=lambda entry: entry[:2])
            desk.give(victim, cut.kind, -cut.devices)
        elif not stop_one(desk, member):
            return


def list_cuts(desk: Desk, member: Member, wanted: Mapping[str, int]) -> Iterable[Proposal]:
    """Ways in which a job can give back devices; none if it is kept, or ends within two pauses anyway."""
    pause_s = member.view.job.overhead.pause_s(max(member.size, 1))
    if member.is_kept or not member.mix or member.work_left <= 2.0 * pause_s * member.rate:
        return ()
    return desk.propose_cuts(member, max(1, member.speeds.guaranteed), wanted)


def stop_one(desk: Desk, member: Member) -> bool:
    """Stop the newest job below this one that holds devices it can use.

    Below are jobs without a guarantee, if this one has one, and jobs of a lower priority.
    """
    for victim in reversed(desk.members.values()):
        lower = bool(member.speeds.guaranteed) or victim.view.job.priority < member.view.job.priority
        if lower and not victim.speeds.guaranteed and any(kind in member.kinds for kind in victim.mix):
            desk.clear(victim)
            return True
    return False


def grow_shortest(desk: Desk, limits: Mapping[str, int]) -> None:
    """Let every job take what it can use, the shortest first."""
    for member in sorted(list_growing(desk), key=lambda member: member.rank):
        if not any(desk.free.values()):
            return
        while (proposal := propose(desk, member, limits)) is not None:
            desk.give(member, proposal.kind, proposal.devices)


def list_growing(desk: Desk) -> list[Member]:
    """The jobs that run and need not keep to what they have."""
    return [member for member in desk.members.values() if member.mix and not member.is_kept]


def grow(desk: Desk, limits: Mapping[str, int]) -> None:
    """Accept the proposals with the largest speed-up per added device until no device or no gain is left."""
    by_arrival = {member.view.job.index: member for member in list_growing(desk)}
    proposals = ((member, propose(desk, member, limits)) for member in by_arrival.values())
    queue = [(-member.view.job.priority, proposal) for member, proposal in proposals if proposal is not None]
    heapify(queue)
    while queue:
        minus_priority, best = heappop(queue)
        member = by_arrival[best.arrival]
        if best.devices <= desk.free[best.kind]:
            desk.give(member, best.kind, best.devices)
        following = propose(desk, member, limits)
        if following is not None:
            heappush(queue, (minus_priority, following))


def propose(desk: Desk, member: Member, limits: Mapping[str, int]) -> Proposal | None:
    """A job's next growth, unless it has been seen not to help."""
    proposal = desk.propose_growth(member)
    limit = limits.get(member.view.job.id, inf)
    return proposal if proposal is not None and member.size + proposal.devices <= limit else None
